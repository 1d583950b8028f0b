"""Checkpoints, lines 36 and 37 of the checklist: the disk at one moment, durable whatever happens to the sandbox, its node and its server."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import waiting
from commands import prime, warren
from conftest import BINARY, request, seed
from objects import Objects
from prime_sandboxes import APIClient, APIError, CreateSandboxRequest, Sandbox, SandboxClient
from server import Server

DURABLE_SECS = 60
FILES = "mkdir -p /data/dir && echo kept > /data/dir/file && head -c 3000000 /dev/urandom > /data/noise && ln -s file /data/dir/link && chmod 741 /data/noise"
SUMS = "cd /data && find . | sort && sha256sum noise dir/file && stat -c %a noise && readlink dir/link"

Restore = Callable[..., Sandbox]


@pytest.fixture
def client(server: Server) -> SandboxClient:
    return SandboxClient(APIClient())


@pytest.fixture
def restore(client: SandboxClient) -> Iterator[Restore]:
    """Makes running sandboxes of checkpoints that the end of the test deletes."""
    made: list[str] = []

    def restore(checkpoint_id: str, **more: object) -> Sandbox:
        body = {"name": f"r-{uuid.uuid4().hex[:8]}", "checkpoint_id": checkpoint_id, "cpu_cores": 1.0, "memory_gb": 0.25, **more}
        sandbox = client.create(CreateSandboxRequest(**body))
        made.append(sandbox.id)
        client.wait_for_creation(sandbox.id)
        return sandbox

    yield restore
    for sandbox_id in made:
        client.delete(sandbox_id)


def sh(client: SandboxClient, sandbox: Sandbox | str, command: str) -> str:
    done = client.execute_command(sandbox if isinstance(sandbox, str) else sandbox.id, command)
    assert done.exit_code == 0, done
    return done.stdout


def refused(call: Callable[[], object], *words: str) -> None:
    with pytest.raises(APIError) as error:
        call()
    assert all(word in str(error.value) for word in words), str(error.value)


def test_line_36_a_restored_sandbox_has_the_same_files(client: SandboxClient, create: Callable[..., Sandbox], restore: Restore) -> None:
    source = create(environment_vars={"A": "of the source"}, labels=["ckpt"])
    sh(client, source, FILES)
    before = sh(client, source, SUMS)
    # Not written out by anybody: what is in the guest's memory belongs to the disk, too.
    sh(client, source, "echo unsynced > /data/late")
    asked = client.checkpoint(source.id)
    assert (asked.sandbox_id, asked.parent_id, asked.depth, asked.docker_image) == (source.id, None, 0, source.docker_image)
    sh(client, source, "echo after > /data/dir/file; rm /data/noise")
    made = client.wait_for_checkpoint(asked.id, DURABLE_SECS)
    assert made.disk_size_bytes == 1 << 30 and made.occupied_bytes > made.stored_bytes >= 3_000_000
    assert [c.id for c in client.list_checkpoints(source.id)] == [made.id]

    child = restore(made.id)
    assert (child.docker_image, child.disk_size_gb, child.status in ("PENDING", "PROVISIONING", "RUNNING")) == (source.docker_image, 1.0, True)
    assert sh(client, child, SUMS).replace("./late\n", "") == before
    assert sh(client, child, "cat /data/late; echo ${A:-none}; hostname").split() == ["unsynced", "none", child.id]
    assert "after" in sh(client, source, "cat /data/dir/file"), "the source goes on"
    assert sh(client, child, "dmesg | grep -ci 'EXT4-fs error\\|orphan\\|recovery' || true").strip() == "0", "it was at rest"
    # It is a disk like any other: it can be written and made a checkpoint of.
    sh(client, child, "head -c 20000000 /dev/zero > /data/zeroes && sync && e=$(df --output=size -B1M / | tail -1) && test $e -gt 900")
    second = client.wait_for_checkpoint(client.checkpoint(child.id).id, DURABLE_SECS)
    assert (second.parent_id, second.depth, second.docker_image) == (made.id, 1, source.docker_image)
    grandchild = restore(second.id)
    assert "kept" in sh(client, grandchild, "cat /data/dir/file && cmp -n 20000000 /data/zeroes /dev/zero")


def test_a_second_checkpoint_lies_on_the_first(client: SandboxClient, create: Callable[..., Sandbox], restore: Restore) -> None:
    source = create()
    checkpoints = []
    for number in range(4):
        sh(client, source, f"echo {number} > /n; echo {number} > /only-{number}; rm -f /only-{number - 1}; head -c 1000000 /dev/urandom > /blob")
        sh(client, source, f"sha256sum /blob > /sum")
        checkpoints.append(client.checkpoint(source.id))
    for number, checkpoint in enumerate(checkpoints):
        made = client.wait_for_checkpoint(checkpoint.id, DURABLE_SECS)
        assert (made.depth, made.parent_id) == (number, checkpoints[number - 1].id if number else None)
    for number in (0, 3):
        child = restore(checkpoints[number].id)
        assert sh(client, child, "cat /n; ls / | grep only; sha256sum -c /sum").split() == [str(number), f"only-{number}", "/blob:", "OK"]
    assert [c.id for c in client.list_checkpoints(source.id)] == [c.id for c in checkpoints]
    assert [c.id for c in client.list_checkpoints(source.id, checkpoints[2].id)] == [checkpoints[2].id]


@pytest.mark.parametrize("pause", [0.001, 0.05])
def test_line_36_deleting_the_source_at_once_still_ends_durable(client: SandboxClient, create: Callable[..., Sandbox], restore: Restore, server: Server, pause: float) -> None:
    source = create()
    sh(client, source, FILES)
    before = sh(client, source, SUMS)
    asking = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    asking.connect()
    asking.request("POST", f"/api/v1/sandbox/{source.id}/checkpoints", headers={"Authorization": f"Bearer {server.api_key}", "Content-Length": "0"})
    time.sleep(pause)
    client.delete(source.id)
    answer = asking.getresponse()
    asked = json.loads(answer.read())
    assert answer.status == 200, asked
    made = client.wait_for_checkpoint(asked["id"], DURABLE_SECS)
    assert not server.processes_of(source.id)
    assert sh(client, restore(made.id), SUMS) == before


def test_line_36_batch_get_has_an_error_for_each_id_and_waits(client: SandboxClient, create: Callable[..., Sandbox]) -> None:
    source = create()
    asked = client.checkpoint(source.id)
    got = client.get_checkpoints([asked.id, "knosuchcheckpoint", "../odd"])
    assert [c.id for c in got.checkpoints] == [asked.id]
    assert [(e.checkpoint_id, e.code) for e in got.errors] == [("knosuchcheckpoint", "NOT_FOUND"), ("../odd", "NOT_FOUND")]
    client.wait_for_checkpoint(asked.id, DURABLE_SECS)
    refused(lambda: client.get_checkpoint("knosuchcheckpoint"), "HTTP 404")
    refused(lambda: client.checkpoint("snosuchsandbox"), "HTTP 404")


def test_line_37_delete_rules(client: SandboxClient, create: Callable[..., Sandbox], restore: Restore, server: Server) -> None:
    source = create()
    sh(client, source, "echo one > /one")
    first = client.wait_for_checkpoint(client.checkpoint(source.id).id, DURABLE_SECS)
    sh(client, source, "head -c 40000000 /dev/urandom > /large")
    second = client.checkpoint(source.id)
    if client.get_checkpoint(second.id).state == "PENDING":
        refused(lambda: client.delete_checkpoint(second.id), "HTTP 409")
    client.wait_for_checkpoint(second.id, DURABLE_SECS)
    refused(lambda: client.delete_checkpoint(second.id), "HTTP 409", "newest")

    child = restore(first.id)
    answer = client.delete_sandbox_checkpoints(source.id)
    assert answer.deleted == [first.id] and [(e.checkpoint_id, e.code) for e in answer.errors] == [(second.id, "CONFLICT")]
    client.delete_checkpoint(first.id)
    refused(lambda: client.get_checkpoint(first.id), "HTTP 404")
    refused(lambda: restore(first.id), "HTTP 404", "deleted")
    assert [c.id for c in client.list_checkpoints(source.id)] == [second.id]
    # What was made from it keeps what it needs.
    assert sh(client, child, "cat /one && find / -xdev -type f -exec cat {} + | wc -c") > ""

    client.delete(source.id)
    assert client.list_checkpoints(source.id)[0].state == "DURABLE", "it outlives its sandbox"
    assert client.delete_sandbox_checkpoints(source.id).deleted == [second.id]
    client.delete(child.id)
    waiting.until(lambda: not {first.id, second.id} & {p.name for p in (server.data_dir / "checkpoints").iterdir()}, 15, "the node keeps nothing of them")
    names = [json.loads(p.read_text())["reference"] for p in (server.data_dir / "images/names").iterdir()]
    assert not [n for n in names if first.id in n or second.id in n]


def test_disks_that_lie_on_snapshots_are_whole(client: SandboxClient, create: Callable[..., Sandbox], restore: Restore, server: Server) -> None:
    """Before and after a snapshot, in a fork of it, and after a reset: each has all that lies below its disk, and nothing from elsewhere."""
    source = create()
    sh(client, source, "echo 0 > /0")
    with server.http(timeout=60) as http:
        def post(path: str, **body: object) -> dict[str, Any]:
            return http.post(f"/api/v1{path}", json=body).raise_for_status().json()

        before = client.checkpoint(source.id)
        sh(client, source, "echo 1 > /1")
        snapshot = post(f"/sandbox/{source.id}/snapshots")
        waiting.until(lambda: http.get(f"/api/v1/snapshots/{snapshot['id']}").json()["state"] == "READY", 60, "the snapshot is there")
        sh(client, source, "echo 2 > /2")
        after = client.checkpoint(source.id)
        fork = post(f"/sandbox/{source.id}/fork", count=1)["sandboxes"][0]["id"]
        try:
            client.wait_for_creation(fork)
            sh(client, fork, "echo f > /f")
            of_fork = client.checkpoint(fork)
            post(f"/sandbox/{source.id}/reset", snapshot_id=snapshot["id"])
            client.wait_for_creation(source.id)
            sh(client, source, "echo r > /r")
            reset = client.checkpoint(source.id)
            for checkpoint, expected in ((before, "0"), (after, "0 1 2"), (of_fork, "0 1 2 f"), (reset, "0 1 r")):
                client.wait_for_checkpoint(checkpoint.id, DURABLE_SECS)
                found = sh(client, restore(checkpoint.id), "cd / && for f in 0 1 2 f r; do test -e $f && cat $f; done; true").split()
                assert found == expected.split(), (checkpoint, found)
        finally:
            client.delete(fork)
    post_delete = client.delete_sandbox_checkpoints(source.id)
    assert len(post_delete.errors) == 1, "the newest alone is kept"


def test_what_cannot_be_done_says_why(client: SandboxClient, create: Callable[..., Sandbox], server: Server) -> None:
    ended = create()
    client.delete(ended.id)
    refused(lambda: client.checkpoint(ended.id), "HTTP 409", "TERMINATED")
    with server.http() as http:
        def post(**body: object) -> tuple[int, str]:
            answer = http.post("/api/v1/sandbox", json={"name": "x", **body})
            return answer.status_code, answer.text
        assert post(checkpoint_id="knosuchcheckpoint")[0] == 404
        assert post(checkpoint_id="k1", docker_image="debian")[0] == 422
        assert post(checkpoint_id="k1", disk_size_gb=5)[0] == 422
        assert post(checkpoint_id="../x")[0] == 422


def test_line_36_prime_checkpoint_and_fork(client: SandboxClient, create: Callable[..., Sandbox]) -> None:
    source = create(labels=["forked"], memory_gb=0.25)
    sh(client, source, FILES)
    before = sh(client, source, SUMS)
    made = json.loads(prime("sandbox", "checkpoint", "create", source.id, "-o", "json").ok().stdout)
    client.wait_for_checkpoint(made["id"], DURABLE_SECS)
    listed = json.loads(prime("sandbox", "checkpoint", "list", source.id, "-o", "json").ok().stdout)
    assert [(c["id"], c["state"]) for c in listed["checkpoints"]] == [(made["id"], "DURABLE")]
    assert "DURABLE" in prime("sandbox", "checkpoint", "get", made["id"]).ok().stdout
    restored = re.search(r"created sandbox (\S+)", prime("sandbox", "checkpoint", "restore", made["id"], "--memory-gb", "0.25", "-y").ok().text)
    forked = re.search(r"forked into sandbox (\S+)", prime("sandbox", "fork", source.id, "-y").ok().text)
    assert restored and forked
    try:
        for sandbox_id in (restored[1], forked[1]):
            client.wait_for_creation(sandbox_id)
            assert sh(client, sandbox_id, SUMS) == before
        assert client.get(forked[1]).labels == ["forked"]
        assert "409" in prime("sandbox", "checkpoint", "delete", client.list_checkpoints(source.id)[-1].id, "-y").text
    finally:
        client.bulk_delete(sandbox_ids=[restored[1], forked[1], source.id])
    assert made["id"] in prime("sandbox", "checkpoint", "delete", "--sandbox", source.id, "-y").ok().text
    assert client.list_checkpoints(source.id) == []


def test_warren_checkpoint(client: SandboxClient, create: Callable[..., Sandbox]) -> None:
    source = create()
    sh(client, source, "echo of warren > /w")
    made = json.loads(warren("sandbox", "checkpoint", "create", source.id, "--wait", "--output", "json").ok().stdout)
    assert (made["state"], made["sandbox_id"], made["depth"]) == ("DURABLE", source.id, 0)
    assert made["id"] in warren("sandbox", "checkpoint", "list", source.id).ok().stdout
    assert "DURABLE" in warren("sandbox", "checkpoint", "get", made["id"]).ok().stdout
    restored = json.loads(warren("sandbox", "checkpoint", "restore", made["id"], "--memory-gb", "0.25", "--output", "json").ok().stdout)
    assert "of warren" in warren("sandbox", "run", restored["id"], "cat", "/w").ok().stdout
    kept = warren("sandbox", "checkpoint", "delete", made["id"])
    assert kept.code != 0 and "newest" in kept.stderr
    warren("sandbox", "delete", source.id, restored["id"]).ok()
    assert made["id"] in warren("sandbox", "checkpoint", "delete", "--sandbox", source.id).ok().stdout
    assert warren("sandbox", "checkpoint", "get", made["id"]).code != 0


def test_a_killed_server_finishes_what_it_began(own_server: Server, glibc: str) -> None:
    """kill -9 of serve at several moments after the call, the source gone with it: durable in the end, or never promised."""
    client = SandboxClient(APIClient())
    for pause in (0.0, 0.05, 0.3):
        source = client.create(request(glibc))
        client.wait_for_creation(source.id)
        sh(client, source, "head -c 30000000 /dev/urandom > /blob; sha256sum /blob > /sum")
        asked = client.checkpoint(source.id)
        time.sleep(pause)
        own_server.kill()
        own_server.start()
        client.delete(source.id)
        made = client.wait_for_checkpoint(asked.id, DURABLE_SECS)
        body = {"name": "after", "checkpoint_id": made.id, "cpu_cores": 1.0, "memory_gb": 0.25}
        child = client.create(CreateSandboxRequest(**body))
        client.wait_for_creation(child.id)
        assert "OK" in sh(client, child, "sha256sum -c /sum")
        client.delete(child.id)
        client.delete_checkpoint(made.id)
    waiting.until(lambda: not list((own_server.data_dir / "checkpoints").iterdir()), 15, "nothing of them is left")


def test_a_server_killed_amid_the_call_leaves_nothing_half_made(own_server: Server, glibc: str) -> None:
    client = SandboxClient(APIClient())
    source = client.create(request(glibc))
    client.wait_for_creation(source.id)
    folder = own_server.data_dir / "checkpoints"
    for pause in (0.0, 0.02, 0.1, 0.2):
        asking = threading.Thread(target=ask_and_lose, args=(own_server, source.id))
        asking.start()
        waiting.until(lambda: any(folder.iterdir()) or not asking.is_alive(), 10, "the server has the call")
        time.sleep(pause)
        own_server.kill()
        asking.join(30)
        own_server.start()
        waiting.until(lambda: all(c.state in ("DURABLE", "FAILED") for c in client.list_checkpoints(source.id)), DURABLE_SECS, "each has an end")
        assert sh(client, source, "echo alive > /x; cat /x").strip() == "alive"
    durable = [c for c in client.list_checkpoints(source.id) if c.state == "DURABLE"]
    client.delete(source.id)
    assert set(client.delete_sandbox_checkpoints(source.id).deleted) >= {c.id for c in durable}
    waiting.until(lambda: not list(folder.iterdir()), 15, "nothing of them is left")


def ask_and_lose(server: Server, sandbox_id: str) -> None:
    """The answer may be lost with the server."""
    with server.http() as http, contextlib.suppress(httpx.HTTPError):
        http.post(f"/api/v1/sandbox/{sandbox_id}/checkpoints")


@pytest.fixture
def objects(workspace: Path) -> Iterator[Objects]:
    objects = Objects(workspace / f"objects-{uuid.uuid4().hex[:6]}").start()
    yield objects
    objects.close()


def test_durable_means_in_the_object_store(workspace: Path, server: Server, objects: Objects, glibc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Server(BINARY, workspace / f"stored-{uuid.uuid4().hex[:6]}", arguments=["--objects", objects.url])
    seed(node.data_dir, server.data_dir)
    try:
        node.start()
        for name, value in node.environment().items():
            monkeypatch.setenv(name, value)
        client = SandboxClient(APIClient())
        source = client.create(request(glibc))
        client.wait_for_creation(source.id)
        sh(client, source, FILES)
        before = sh(client, source, SUMS)
        waiting.until(lambda: objects.images() == 1, 120, "the image is in the object store")
        asked = client.checkpoint(source.id)
        client.delete(source.id)
        client.wait_for_checkpoint(asked.id, DURABLE_SECS)
        assert objects.images() == 2, "the checkpoint is there, too"
        # Nothing of it on this node any more: the object store alone has it, as for a node that never had it.
        node.terminate()
        for kind in ("records", "manifests", "names", "artifacts"):
            for path in (node.data_dir / "images" / kind).iterdir():
                path.unlink()
        node.start()
        body = {"name": "elsewhere", "checkpoint_id": asked.id, "cpu_cores": 1.0, "memory_gb": 0.25}
        children = [client.create(CreateSandboxRequest(**body)) for _ in range(2)]
        for child in children:
            client.wait_for_creation(child.id)
            assert sh(client, child, SUMS) == before
        node.delete_all()
        node.assert_clean()
    finally:
        node.close()
