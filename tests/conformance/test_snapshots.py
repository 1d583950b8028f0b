"""Snapshots, forks, resets, pauses and app templates on real machines."""

from __future__ import annotations

import concurrent.futures
import contextlib
import hashlib
import json
import random
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import waiting
from conftest import Create, request
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server

# A program that holds its state in memory alone: it answers what it counted so far.
COUNTER = "(i=0; while :; do i=$((i+1)); echo $i > /tmp/count.new; mv /tmp/count.new /tmp/count; sleep 0.05; done) > /dev/null 2>&1 & echo started"


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with server.http() as http:
        http.timeout = 60
        yield http


def post(http: httpx.Client, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    answer = http.post(f"/api/v1{path}", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def run(client: SandboxClient, sandbox_id: str, command: str) -> str:
    done = client.execute_command(sandbox_id, command)
    assert done.exit_code == 0, done
    return done.stdout.strip()


def counted(client: SandboxClient, sandbox_id: str) -> int:
    return int(run(client, sandbox_id, "cat /tmp/count"))


def snapshots_of(server: Server, sandbox_id: str) -> list[str]:
    """Folders of the snapshots of one sandbox, deleted ones too."""
    found = []
    for record in (server.data_dir / "snapshots").glob("*/snapshot.json"):
        # One that goes just now is gone.
        with contextlib.suppress(FileNotFoundError):
            found += [record.parent.name] if json.loads(record.read_text())["sandbox"] == sandbox_id else []
    return found


def test_forks_have_the_processes_and_go_their_own_ways(http: httpx.Client, client: SandboxClient, create: Create):
    source = create(environment_vars={"A": "1"}, secrets={"S": "hidden"})
    run(client, source.id, COUNTER)
    run(client, source.id, "sleep 0.5; echo before > /root/file; cat /proc/sys/kernel/random/boot_id")
    forked = post(http, f"/sandbox/{source.id}/fork", {"count": 3, "name": "kid"})["sandboxes"]
    assert [f["status"] for f in forked] == ["RUNNING"] * 3 and len({f["id"] for f in forked}) == 3
    try:
        at_fork = counted(client, source.id)
        for fork in forked:
            assert (fork["name"], fork["snapshotId"] is not None, fork["secrets"]) == ("kid", True, {"S": "***"})
            first = counted(client, fork["id"])
            assert first > 5
            assert run(client, fork["id"], "sleep 0.3; cat /root/file; hostname; echo $A $S").split() == ["before", fork["id"], "1", "hidden"]
            assert counted(client, fork["id"]) > first, "the program goes on"
            run(client, fork["id"], f"echo {fork['id']} > /root/file")
        assert run(client, source.id, "cat /root/file") == "before"
        assert [run(client, f["id"], "cat /root/file") for f in forked] == [f["id"] for f in forked]
        assert counted(client, source.id) > at_fork
        # Children of children, and then all that lies below them goes.
        grandchild = post(http, f"/sandbox/{forked[0]['id']}/fork")["sandboxes"][0]
        forked.append(grandchild)
        great = post(http, f"/sandbox/{grandchild['id']}/fork")["sandboxes"][0]
        forked.append(great)
        for gone in (source.id, forked[0]["id"], grandchild["id"]):
            client.delete(gone)
        before = counted(client, great["id"])
        assert run(client, great["id"], "sleep 0.3; cat /root/file") == forked[0]["id"]
        assert counted(client, great["id"]) > before
    finally:
        for fork in forked:
            client.delete(fork["id"])


def test_a_snapshot_outlives_its_source_and_its_parent(http: httpx.Client, client: SandboxClient, create: Create, server: Server):
    source = create()
    run(client, source.id, "echo one > /root/file; python3 -c 'print(1)' || true")
    first = post(http, f"/sandbox/{source.id}/snapshots", {"name": "first"})
    run(client, source.id, "echo two > /root/file")
    second = post(http, f"/sandbox/{source.id}/snapshots", {"name": "second"})
    listed = http.get(f"/api/v1/sandbox/{source.id}/snapshots").json()["snapshots"]
    assert [s["name"] for s in listed] == ["first", "second"]
    assert {s["id"] for s in listed} <= {s["id"] for s in http.get("/api/v1/snapshots").json()["snapshots"]}
    digest = waiting.until(lambda: http.get(f"/api/v1/snapshots/{second['id']}").json()["digest"], 30, "the digest is known")
    assert digest.startswith("blake3:")
    assert http.delete(f"/api/v1/snapshots/{first['id']}").status_code == 200
    assert http.get(f"/api/v1/snapshots/{first['id']}").status_code == 404
    client.delete(source.id)
    fork = post(http, f"/snapshots/{second['id']}/fork")["sandboxes"][0]
    try:
        assert run(client, fork["id"], "cat /root/file") == "two"
        assert (server.data_dir / "snapshots" / first["id"]).exists(), "the second lies on it"
    finally:
        client.delete(fork["id"])
    assert http.delete(f"/api/v1/snapshots/{second['id']}").status_code == 200
    waiting.until(lambda: not snapshots_of(server, source.id), 10, "all files are gone")


def test_a_snapshot_does_not_disturb_what_runs(http: httpx.Client, client: SandboxClient, create: Create):
    """Commands that run while snapshots are taken lose no output, and a large upload arrives whole."""
    source = create(memory_gb=0.5, disk_size_gb=2.0)
    made: list[str] = []
    with concurrent.futures.ThreadPoolExecutor() as pool:
        counting = pool.submit(client.execute_command, source.id, "for i in $(seq 400); do echo $i; sleep 0.01; done")
        data = random.Random(7).randbytes(40 << 20)
        upload = pool.submit(client.upload_bytes, source.id, "/root/data", data, "data")
        while not (counting.done() and upload.done()) and len(made) < 12:
            made.append(post(http, f"/sandbox/{source.id}/snapshots")["id"])
        assert counting.result().stdout.split() == [str(n) for n in range(1, 401)]
        upload.result()
    assert run(client, source.id, "wc -c < /root/data; md5sum /root/data | cut -c1-32").split() == [str(len(data)), hashlib.md5(data).hexdigest()]
    assert len(made) >= 3
    for snapshot in made:
        http.delete(f"/api/v1/snapshots/{snapshot}")


def test_reset_puts_memory_and_disk_back(http: httpx.Client, client: SandboxClient, create: Create, server: Server):
    sandbox = create()
    run(client, sandbox.id, "echo ledger > /root/file; sleep 7777 > /dev/null 2>&1 & echo $! > /root/pid")
    assert http.post(f"/api/v1/sandbox/{sandbox.id}/reset").json()["code"] == "not_found", "it has no snapshot yet"
    start = post(http, f"/sandbox/{sandbox.id}/snapshots")
    for episode in range(1, 6):
        run(client, sandbox.id, f"rm /root/file; kill $(cat /root/pid); echo {episode} > /root/mine; echo {episode} > /dev/shm/mine")
        back = post(http, f"/sandbox/{sandbox.id}/reset")
        assert (back["status"], back["generation"], back["id"]) == ("RUNNING", episode, sandbox.id)
        assert run(client, sandbox.id, "cat /root/file; ls /root /dev/shm; kill -0 $(cat /root/pid) && echo alive").split() == ["ledger", "/dev/shm:", "/root:", "file", "pid", "alive"]
    # Commands that run at a reset end with a reason of their own.
    with concurrent.futures.ThreadPoolExecutor() as pool:
        running = pool.submit(client.execute_command, sandbox.id, "echo begun; sleep 60", None, None, 90)
        time.sleep(0.5)
        post(http, f"/sandbox/{sandbox.id}/reset", {"snapshot_id": start["id"]})
        with pytest.raises(Exception, match="was reset to a snapshot") as error:
            running.result(timeout=20)
        assert "generation 6" in str(error.value)
    other = create()
    refused = http.post(f"/api/v1/sandbox/{other.id}/reset", json={"snapshot_id": start["id"]})
    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    http.delete(f"/api/v1/snapshots/{start['id']}")


def test_twenty_pauses_lose_nothing(http: httpx.Client, client: SandboxClient, create: Create, server: Server):
    """Files that were never synced, in a page cache that is dirty; memory of programs; and no process while it is paused."""
    sandbox = create(memory_gb=0.5, disk_size_gb=2.0)
    run(client, sandbox.id, COUNTER)
    run(client, sandbox.id, "head -c 60000000 /dev/urandom > /root/big; md5sum /root/big > /root/sum")
    for cycle in range(20):
        run(client, sandbox.id, f"head -c 100000 /dev/urandom > /root/f{cycle}; md5sum /root/f{cycle} >> /root/sum" + ("; sync" if cycle % 5 == 0 else ""))
        assert post(http, f"/sandbox/{sandbox.id}/pause")["status"] == "PAUSED"
        assert not server.processes_of(sandbox.id)
        assert post(http, f"/sandbox/{sandbox.id}/resume")["status"] == "RUNNING"
    assert run(client, sandbox.id, "md5sum --quiet -c /root/sum && wc -l < /root/sum") == "21"
    before = counted(client, sandbox.id)
    waiting.until(lambda: counted(client, sandbox.id) > before, 5, "the program goes on")
    # Paused, it takes no commands, and says so; deleted, it leaves nothing.
    post(http, f"/sandbox/{sandbox.id}/pause")
    with pytest.raises(Exception, match="PAUSED"):
        client.execute_command(sandbox.id, "true")
    client.delete(sandbox.id)
    waiting.until(lambda: not snapshots_of(server, sandbox.id), 10, "its own snapshots go with it")


def test_a_paused_sandbox_survives_the_server_and_resumes_by_itself(own_server: Server, registry: Registry):
    client = SandboxClient(APIClient())
    sandbox = client.create(request(registry.reference("glibc"), advanced_configs={"auto_resume": True}))
    client.wait_for_creation(sandbox.id)
    run(client, sandbox.id, COUNTER)
    run(client, sandbox.id, "sleep 0.3; echo kept > /root/file")
    with own_server.http() as http:
        post(http, f"/sandbox/{sandbox.id}/pause")
    own_server.kill()
    own_server.start()
    assert client.get(sandbox.id).status == "PAUSED" and not own_server.processes_of(sandbox.id)
    # Many commands at once: one resume, and each has its answer.
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: run(client, sandbox.id, "cat /root/file"), range(8)))
    assert answers == ["kept"] * 8
    first = counted(client, sandbox.id)
    waiting.until(lambda: counted(client, sandbox.id) > first, 5, "the program goes on")
    client.delete(sandbox.id)


def test_creates_go_on_from_an_app_template(http: httpx.Client, client: SandboxClient, create: Create, glibc: str):
    command = {"executable": "/bin/sh", "args": ["-c", "sleep 1; echo warm > /tmp/warm; echo started; exec sleep 100000"]}
    body = {"docker_image": glibc, "memory_gb": 0.25, "disk_size_gb": 1.0, "start_command": command, "ready": {"executable": "/bin/sh", "args": ["-c", "test -e /tmp/warm"]}}
    template = post(http, "/templates", body)
    try:
        ready = waiting.until(lambda: (t := http.get(f"/api/v1/templates/{template['id']}").json())["state"] != "MAKING" and t, 60, "the template is made")
        assert ready["state"] == "READY", ready
        like = create(start_command=command, environment_vars=None, secrets=None)
        shown = http.get(f"/api/v1/sandbox/{like.id}").json()
        assert shown["templateId"] and run(client, like.id, "cat /tmp/warm; hostname").split() == ["warm", like.id]
        assert "started" in client.get_logs(like.id)
        for unlike in ({"start_command": command, "environment_vars": {"A": "1"}}, {"memory_gb": 0.5, "start_command": command}, {}, {"start_command": command, "advanced_configs": {"template": False}}):
            other = create(**unlike)
            assert http.get(f"/api/v1/sandbox/{other.id}").json()["templateId"] is None, unlike
    finally:
        assert http.delete(f"/api/v1/templates/{template['id']}").status_code == 200
    waiting.until(lambda: http.get(f"/api/v1/templates/{template['id']}").status_code == 404, 20, "it is gone")


def test_a_template_that_is_never_ready_says_why(http: httpx.Client, glibc: str):
    body = {"docker_image": glibc, "memory_gb": 0.25, "disk_size_gb": 1.0, "ready": {"executable": "/bin/false"}, "ready_within_secs": 2}
    template = post(http, "/templates", body)
    failed = waiting.until(lambda: (t := http.get(f"/api/v1/templates/{template['id']}").json())["state"] != "MAKING" and t, 60, "it fails")
    assert failed["state"] == "FAILED" and "not ready within 2 s" in failed["error"] and "exit code 1" in failed["error"]
    http.delete(f"/api/v1/templates/{template['id']}")


def test_trimmed_space_comes_back_and_an_unwritten_fork_costs_little(http: httpx.Client, client: SandboxClient, create: Create, server: Server):
    sandbox = create(memory_gb=0.5, disk_size_gb=2.0)
    overlay = server.data_dir / "sandboxes" / sandbox.id / "vm" / "disk.qcow2"
    run(client, sandbox.id, "head -c 200000000 /dev/urandom > /root/big; sync")
    full = overlay.stat().st_blocks * 512
    assert full > 200_000_000
    run(client, sandbox.id, "rm /root/big; sync; fstrim / || fstrim -v /")
    assert overlay.stat().st_blocks * 512 < full - 150_000_000
    fork = post(http, f"/sandbox/{sandbox.id}/fork")["sandboxes"][0]
    folder = server.data_dir / "sandboxes" / fork["id"]
    used = sum(f.lstat().st_blocks * 512 for f in folder.rglob("*"))
    client.delete(fork["id"])
    assert used < 2 << 20, f"{used} bytes"
