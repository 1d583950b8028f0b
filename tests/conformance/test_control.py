"""Lines 13 to 30 of the checklist: sandboxes as the control API shows them."""

from __future__ import annotations

import asyncio
import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import waiting
from clocks import Clocks
from commands import created_id, prime
from conftest import SMALL, request
from prime_sandboxes import (
    APIClient, AsyncSandboxClient, SandboxClient, SandboxImagePullError, SandboxOOMError, SandboxTimeoutError,
)
from recorder import Recorder
from registry import Registry
from server import Server
from target_net import GREETING, PORT, Target

WORDS = {"PENDING", "PROVISIONING", "RUNNING", "PAUSED", "ERROR", "TERMINATED", "TIMEOUT"}
REQUIRED = ("id", "name", "dockerImage", "cpuCores", "memoryGB", "diskSizeGB", "diskMountPath", "gpuCount", "status", "timeoutMinutes", "createdAt", "updatedAt")
MEMORY_EATER = "python3 -c \"x = []\nwhile True: x.append(bytearray(b'x' * (8 << 20)))\""


def body(image: str, **more: Any) -> dict[str, Any]:
    """A create body as the SDK sends it."""
    return {"name": f"t-{uuid.uuid4().hex[:8]}", "docker_image": image, **SMALL, "gpu_count": 0, "timeout_minutes": 60,
            "labels": [], "vm": True, "idempotency_key": uuid.uuid4().hex, **more}


def test_line_13_bodies_of_cli_and_sdk_and_unknown_fields(server: Server, create: Any, client: SandboxClient, glibc: str):
    create(wait=False)
    made = [created_id(prime("sandbox", "create", glibc, "-y", "--memory-gb", "0.25", "--disk-size-gb", "1"))]
    with server.http() as http:
        answer = http.post("/api/v1/sandbox", json=body(glibc, arch="amd64", from_the_future={"a": [1]}, lan_tags=None)).raise_for_status()
        made.append(answer.json()["id"])
        least = http.post("/api/v1/sandbox", json={"name": "least", "docker_image": glibc}).raise_for_status().json()
        made.append(least["id"])
    assert (least["cpuCores"], least["memoryGB"], least["diskSizeGB"], least["timeoutMinutes"]) == (1.0, 1.0, 5.0, 60)
    for sandbox_id in made:
        client.wait_for_creation(sandbox_id)
        client.delete(sandbox_id)


def test_line_14_the_answer_has_all_required_fields(server: Server, create: Any, glibc: str, shared: str):
    sandbox = create(environment_vars={"A": "1"}, secrets={"TOKEN": "hush"}, labels=["x"], advanced_configs={"k": [1]}, region="here",
                     start_command={"executable": "sleep", "args": ["inf"]})
    with server.http() as http:
        one = http.get(f"/api/v1/sandbox/{sandbox.id}").json()
        listed = next(s for s in http.get("/api/v1/sandbox", params={"per_page": 100}).json()["sandboxes"] if s["id"] == sandbox.id)
    for answer in (one, listed):
        assert all(answer.get(key) is not None for key in REQUIRED), answer
        assert isinstance(answer["diskMountPath"], str) and answer["labels"] == ["x"] and answer["vm"] is True
        assert isinstance(answer["timeoutMinutes"], int) and isinstance(answer["gpuCount"], int)
        assert answer["startCommand"] == {"executable": "sleep", "args": ["inf"]}
        assert answer["environmentVars"] == {"A": "1"} and answer["advancedConfigs"] == {"k": [1]} and answer["region"] == "here"
        assert list(answer["secrets"]) == ["TOKEN"] and "hush" not in json.dumps(answer)
        assert answer["startedAt"] and answer["dockerImage"] == glibc


def test_line_15_one_idempotency_key_makes_one_sandbox(server: Server, client: SandboxClient, glibc: str):
    wanted = body(glibc, labels=["same-key"])
    with server.http() as http, ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda _: http.post("/api/v1/sandbox", json=wanted), range(20)))
        answers.append(http.post("/api/v1/sandbox", json=wanted))
        assert {a.is_success for a in answers} == {True}, [a.text for a in answers if not a.is_success]
        assert len({a.json()["id"] for a in answers}) == 1
        assert http.get("/api/v1/sandbox", params={"labels": "same-key"}).json()["total"] == 1
        other = http.post("/api/v1/sandbox", json={**wanted, "name": "another"})
        assert other.status_code == 409 and other.json()["detail"]
        client.delete(answers[0].json()["id"])
        assert http.post("/api/v1/sandbox", json=wanted).json()["id"] == answers[0].json()["id"]


def test_line_16_create_carries_gateway_auth_so_the_first_exec_asks_for_none(server: Server, glibc: str, monkeypatch: pytest.MonkeyPatch):
    with Recorder(server) as recorder:
        monkeypatch.setenv("PRIME_API_BASE_URL", recorder.url)
        client = SandboxClient(APIClient())
        sandbox = client.create(request(glibc))
        try:
            client.wait_for_creation(sandbox.id)
            assert client.execute_command(sandbox.id, "echo hi").stdout == "hi\n"
        finally:
            client.delete(sandbox.id)
    assert not [path for path in recorder.paths() if path.endswith("/auth")], recorder.paths()


@pytest.mark.last
@pytest.mark.parametrize("name", ["idle", "idle_zero"])
def test_line_17_minus_one_and_zero_are_unlimited_and_idle_still_works(clocks: Clocks, client: SandboxClient, name: str):
    life = clocks.life(name)
    assert life.last["timeoutMinutes"] == (-1 if name == "idle" else 0)
    assert life.last["status"] == "TERMINATED" and 58 <= life.lasted <= 120, life
    assert client.get(clocks.life("forever").id).status == "RUNNING"


@pytest.mark.last
def test_line_18_lifetime_ends_in_timeout_and_exec_says_so(clocks: Clocks, client: SandboxClient):
    life = clocks.life("minute")
    assert (life.last["status"], life.last["errorType"]) == ("TIMEOUT", "TIMEOUT"), life.last
    assert 57 <= life.lasted <= 75, life
    with pytest.raises(SandboxTimeoutError):
        client.execute_command(life.id, "true")
    context = client.client.request("GET", f"/sandbox/{life.id}/error-context")
    assert (context["status"], context["errorType"]) == ("TIMEOUT", "TIMEOUT")


@pytest.mark.last
def test_line_19_a_running_exec_keeps_a_sandbox_and_polling_does_not(clocks: Clocks):
    busy, idle = clocks.life("busy"), clocks.life("idle")
    assert busy.exec_error is None and busy.exec_code == 0
    assert busy.exec_ended_at and busy.ended_at and 55 <= busy.ended_at - busy.exec_ended_at <= 120, busy
    # `idle` was asked for by `get` twice a second all its life.
    assert idle.last["status"] == "TERMINATED" and idle.lasted <= 120


FETCH = "exec 3<>/dev/tcp/{address}/{port} && printf 'GET / HTTP/1.0\\r\\n\\r\\n' >&3 && cat <&3"


def test_line_20_an_empty_allowlist_blocks_all_and_an_empty_denylist_nothing(server: Server, create: Any, client: SandboxClient, target: Target):
    fetch = FETCH.format(address=target.address, port=PORT)
    opened = create(network_denylist=[])
    answer = client.execute_command(opened.id, fetch, timeout=30)
    assert answer.exit_code == 0 and answer.stdout.encode().endswith(GREETING), answer
    unrestricted = create()
    assert client.execute_command(unrestricted.id, fetch, timeout=30).stdout.encode().endswith(GREETING)
    closed = create(network_allowlist=[])
    blocked = client.execute_command(closed.id, f"timeout 10 bash -c {json.dumps(fetch)}; echo $?", timeout=30)
    assert GREETING.decode() not in blocked.stdout and blocked.stdout.strip() != "0"
    lookup = client.execute_command(closed.id, "timeout 10 getent hosts deb.debian.org; echo $?", timeout=30)
    assert lookup.stdout.strip() != "0" and lookup.stdout.strip().isdigit(), lookup
    # Loopback of the host is never a guest's to reach, not even by the address of its gateway.
    for address in ("$(python3 -c '%s')" % GATEWAY_ADDRESS, "169.254.169.254"):
        host = client.execute_command(opened.id, FETCH.format(address=address, port=server.port), timeout=60)
        assert host.exit_code != 0 and "HTTP/1" not in host.stdout, host


GATEWAY_ADDRESS = (
    'import socket; words = [l.split() for l in open("/proc/net/route")]; '
    'print(*[socket.inet_ntoa(bytes.fromhex(w[2])[::-1]) for w in words if w[1] == "00000000"])'
)


def test_line_21_batch_get_lists_every_id_and_never_answers_404(server: Server, client: SandboxClient, shared: str):
    unknown = "snosuchsandbox1"
    with server.http() as http:
        answer = http.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [unknown, shared, "Not An Id"]})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        alone = http.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [unknown]})
        assert alone.status_code == 200 and alone.json()["statuses"] == []
    assert [s["sandbox_id"] for s in body["statuses"]] == [shared] and body["statuses"][0]["status"] == "RUNNING"
    assert [(e["sandbox_id"], e["code"]) for e in body["errors"]] == [(unknown, "NOT_FOUND"), ("Not An Id", "NOT_FOUND")]
    assert all(isinstance(e["message"], str) for e in body["errors"])
    parsed = client.get_sandbox_statuses([shared, unknown])
    assert len(parsed.statuses) == len(parsed.errors) == 1
    too_many = [f"s{i}" for i in range(101)]
    with server.http() as http:
        assert http.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": too_many}).status_code == 422


def test_line_22_no_other_word_is_ever_visible(server: Server, client: SandboxClient, glibc: str):
    """Watches the whole life of sandboxes, deletes included, through every call that shows a status."""
    seen: set[str] = set()
    with server.http() as http:
        made = [http.post("/api/v1/sandbox", json=body(glibc, labels=["words"])).json() for _ in range(3)]
        ids = [s["id"] for s in made]
        seen.update(s["status"] for s in made)

        def look() -> bool:
            batch = http.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": ids}).json()["statuses"]
            listed = http.get("/api/v1/sandbox", params={"labels": "words"}).json()["sandboxes"]
            contexts = [http.get(f"/api/v1/sandbox/{i}/error-context").json() for i in ids]
            statuses = [s["status"] for s in [*batch, *listed, *contexts]]
            seen.update(statuses)
            return all(s["status"] in ("TERMINATED", "ERROR", "TIMEOUT") for s in batch)

        with ThreadPoolExecutor(3) as pool:
            waiting.until(lambda: look() or seen >= {"RUNNING"}, 60, "a sandbox runs")
            deletes = [pool.submit(client.delete, i) for i in ids]
            waiting.until(look, 60, "all are deleted")
            for delete in deletes:
                delete.result()
    assert seen <= WORDS and {"RUNNING", "TERMINATED"} <= seen, seen


def test_line_23_the_first_use_of_an_image_is_pending_with_a_build_id(server: Server, registry: Registry, client: SandboxClient):
    """An image of 100,000 files, so that the conversion can be watched; six sandboxes wait for one pull of it."""
    reference = registry.reference("many")
    layer = registry.images.get("many").layers[-1].digest
    label = f"line-23-{uuid.uuid4().hex}"
    with server.http() as http, ThreadPoolExecutor(6) as pool:
        creates = [pool.submit(http.post, "/api/v1/sandbox", json={**body(reference), "labels": [label]}) for _ in range(6)]
        got, batched = set(), set()
        while not all(create.done() for create in creates):
            rows = http.get("/api/v1/sandbox", params={"labels": label}).raise_for_status().json()["sandboxes"]
            got |= {s["pendingImageBuildId"] for s in rows if s["status"] == "PENDING" and s["pendingImageBuildId"]}
            if rows:
                batch = http.post("/api/v1/sandbox/status:batchGet", json={"sandbox_ids": [s["id"] for s in rows]}).json()["statuses"]
                batched |= {s["pending_image_build_id"] for s in batch if s["status"] == "PENDING" and s.get("pending_image_build_id")}
        ids = [create.result().raise_for_status().json()["id"] for create in creates]
        assert got == batched and len(got) == 1, (got, batched)
        try:
            for i in ids:
                client.wait_for_creation(i)
            after = http.get(f"/api/v1/sandbox/{ids[0]}").json()
            assert after["status"] == "RUNNING" and after["pendingImageBuildId"] is None
            assert registry.requests(layer) == 1, "the layer was pulled more than once"
            assert client.execute_command(ids[0], "ls /many | wc -l").stdout.strip() == "100"
        finally:
            client.bulk_delete(sandbox_ids=ids)


@pytest.mark.parametrize("kind", ["no-such-image", "no-such-registry"])
async def test_line_24_an_image_that_cannot_be_pulled(registry: Registry, client: SandboxClient, async_client: AsyncSandboxClient, kind: str):
    reference = f"{registry.address}/no/such:v1" if kind == "no-such-image" else "127.0.0.1:1/some/image:v1"
    sandbox = client.create(request(reference))
    with pytest.raises(SandboxImagePullError):
        await async_client.wait_for_creation(sandbox.id)
    with pytest.raises(SandboxImagePullError):
        client.wait_for_creation(sandbox.id)
    now = client.get(sandbox.id)
    assert (now.status, now.error_type) == ("ERROR", "IMAGE_PULL_FAILED")
    assert reference.split(":v1")[0] in (now.error_message or ""), now.error_message
    client.delete(sandbox.id)


def test_line_25_list_by_status_and_plain_list(server: Server, client: SandboxClient, create: Any):
    running, ended = create(labels=["line25"]), create(labels=["line25"], wait=False)
    client.delete(ended.id)
    shown = json.loads(prime("sandbox", "list", "--status", "RUNNING", "--label", "line25", "-o", "json").ok().stdout)
    assert [s["id"] for s in shown["sandboxes"]] == [running.id]
    plain = json.loads(prime("sandbox", "list", "--label", "line25", "-o", "json").ok().stdout)
    assert [s["id"] for s in plain["sandboxes"]] == [running.id]
    everything = json.loads(prime("sandbox", "list", "--all", "--label", "line25", "-o", "json").ok().stdout)
    assert {s["id"] for s in everything["sandboxes"]} == {running.id, ended.id}
    assert [s.id for s in client.list(status="TERMINATED", labels=["line25"]).sandboxes] == [ended.id]


def test_line_26_labels_are_anded_and_paging_is_right(client: SandboxClient, create: Any):
    made = [create(labels=["page", f"n{n}", "even" if n % 2 == 0 else "odd"], wait=False) for n in range(5)]
    both = client.list(labels=["page", "even"])
    assert {s.id for s in both.sandboxes} == {made[n].id for n in (0, 2, 4)} and both.total == 3
    assert client.list(labels=["page", "n1", "n2"]).total == 0
    pages = [client.list(labels=["page"], page=n, per_page=2) for n in (1, 2, 3, 4)]
    assert [len(p.sandboxes) for p in pages] == [2, 2, 1, 0]
    assert [(p.total, p.page, p.per_page, p.has_next) for p in pages] == [(5, 1, 2, True), (5, 2, 2, True), (5, 3, 2, False), (5, 4, 2, False)]
    assert {s.id for p in pages for s in p.sandboxes} == {s.id for s in made}


def test_line_27_bulk_delete(server: Server, client: SandboxClient, create: Any, glibc: str, monkeypatch: pytest.MonkeyPatch):
    with server.http() as http:
        me = http.get("/api/v1/user/whoami").json()["data"]["id"]
        made = http.post("/api/v1/admin/users", json={"slug": f"u{uuid.uuid4().hex[:8]}"}).raise_for_status().json()
        other = server.http(made["apiKey"])
    one, two, three = (create(labels=["bulk", f"b{n}"], wait=False) for n in range(3))
    partial = client.bulk_delete(sandbox_ids=[one.id, "snosuchsandbox1"])
    assert partial.succeeded == [one.id] and [f["sandbox_id"] for f in partial.failed] == ["snosuchsandbox1"] and partial.failed[0]["error"]
    assert client.bulk_delete(labels=["bulk", "b1"], user_id=me).succeeded == [two.id]
    with other:
        theirs = other.post("/api/v1/sandbox", json=body(glibc, labels=["bulk"])).raise_for_status().json()["id"]
        refused = other.request("DELETE", "/api/v1/sandbox", json={"all_users": True, "labels": ["bulk"]})
        assert refused.status_code == 403 and refused.json()["detail"]
        foreign = other.request("DELETE", "/api/v1/sandbox", json={"all_users": False, "sandbox_ids": [three.id]}).json()
        assert foreign["succeeded"] == [] and foreign["failed"][0]["sandbox_id"] == three.id
        assert other.get(f"/api/v1/sandbox/{three.id}").status_code in (403, 404)
        assert other.get("/api/v1/sandbox").json()["total"] == 1
        assert client.bulk_delete(labels=["bulk"], user_id=me).succeeded == [three.id]
        own = other.request("DELETE", "/api/v1/sandbox", json={"all_users": False, "user_id": made["userId"], "labels": ["bulk"]}).json()
        assert own["succeeded"] == [theirs] and own["failed"] == [] and isinstance(own["message"], str)


def test_line_28_a_terminated_sandbox_still_answers(client: SandboxClient, create: Any):
    sandbox = create(start_command={"executable": "/bin/bash", "args": ["-c", "echo from the start command; exec sleep inf"]})
    waiting.until(lambda: "from the start command" in client.get_logs(sandbox.id), 20, "the start command's output is in the logs")
    client.delete(sandbox.id)
    after = client.get(sandbox.id)
    assert after.status == "TERMINATED" and after.terminated_at and after.termination_reason
    assert "from the start command" in client.get_logs(sandbox.id)
    context = client.client.request("GET", f"/sandbox/{sandbox.id}/error-context")
    assert context["status"] == "TERMINATED" and context["errorType"] is None
    assert "from the start command" in prime("sandbox", "logs", sandbox.id).ok().stdout


def test_line_29_a_guest_out_of_memory_is_reported_as_such(client: SandboxClient, create: Any):
    sandbox = create()
    with pytest.raises(SandboxOOMError):
        client.execute_command(sandbox.id, MEMORY_EATER, timeout=120)
    context = client.client.request("GET", f"/sandbox/{sandbox.id}/error-context")
    assert context["errorType"] == "OOM_KILLED" and context["errorMessage"], context
    # What else ran in it is untouched.
    assert client.execute_command(sandbox.id, "echo still here").stdout == "still here\n"


async def test_line_30_delete_twice_does_not_break(server: Server, glibc: str, monkeypatch: pytest.MonkeyPatch):
    """The server's first answer to each DELETE is thrown away and replaced by 503, as a proxy on its way out would do."""
    lost: set[str] = set()

    def lose_first_delete(verb: str, path: str, status: int) -> int | None:
        if verb == "DELETE" and path not in lost:
            lost.add(path)
            return 503
        return None

    with Recorder(server, lose_first_delete) as recorder:
        monkeypatch.setenv("PRIME_API_BASE_URL", recorder.url)
        client = SandboxClient(APIClient())
        one, two = client.create(request(glibc)), client.create(request(glibc))
        await asyncio.to_thread(client.delete, one.id)
        async with AsyncSandboxClient() as async_client:
            await async_client.delete(two.id)
        for sandbox in (one, two):
            client.delete(sandbox.id)
            assert client.get(sandbox.id).status == "TERMINATED"
    assert [seen.answer for seen in recorder.requests if seen.verb == "DELETE"] == [503, 200, 503, 200, 200, 200]
