"""kill -9 of each process: serve, the VMM, the shim. What lives on, what is reported, what is left."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import processes
import pytest
import waiting
from conftest import request
from prime_sandboxes import APIClient, SandboxClient, SandboxNotRunningError
from registry import Registry
from server import Server

VMM_DEATH_SECS = 2.0


@pytest.fixture
def reference(registry: Registry) -> str:
    return registry.reference("glibc")


def test_sandboxes_outlive_serve(own_server: Server, reference: str):
    """Twice in a row, the second time while a command runs: the same machines, their processes alive, and exec works."""
    client = SandboxClient(APIClient())
    ids = [client.create(request(reference, labels=["outlive"])).id for _ in range(5)]
    for i in ids:
        client.wait_for_creation(i)
    marks = {i: client.execute_command(i, "echo $RANDOM$RANDOM > /tmp/mark; cat /tmp/mark; sleep 10000 & echo $! > /tmp/pid").stdout for i in ids}
    job = client.start_background_job(ids[0], "sleep 3; echo survived; exit 5")
    vmms = {i: own_server.vmm_of(i).pid for i in ids}
    for _ in range(2):
        own_server.kill()
        assert {i: own_server.vmm_of(i).pid for i in ids} == vmms
        begun = time.monotonic()
        own_server.start()
        waiting.until(lambda: {client.get(i).status for i in ids} == {"RUNNING"}, 10, "all sandboxes are adopted")
        assert time.monotonic() - begun < 10
        for i in ids:
            assert client.execute_command(i, "cat /tmp/mark; kill -0 $(cat /tmp/pid)").stdout == marks[i]
    assert {i: own_server.vmm_of(i).pid for i in ids} == vmms
    done = waiting.until(lambda: (s := client.get_background_job(ids[0], job)).completed and s, 20, "the job ends")
    assert (done.exit_code, done.stdout) == (5, "survived\n")
    assert client.list(labels=["outlive"]).total == 5
    # A create of before the death is still the same create.
    again = client.create(request(reference))
    client.wait_for_creation(again.id)
    client.bulk_delete(sandbox_ids=[*ids, again.id])


def test_what_happened_while_serve_was_dead_is_found_out(own_server: Server, reference: str):
    client = SandboxClient(APIClient())
    killed, ending = client.create(request(reference)), client.create(request(reference, timeout_minutes=1))
    for sandbox in (killed, ending):
        client.wait_for_creation(sandbox.id)
    own_server.kill()
    processes.kill(own_server.vmm_of(killed.id))
    own_server.start()
    dead = waiting.until(lambda: (s := client.get(killed.id)).status == "ERROR" and s, 10, "the dead machine is found")
    assert dead.error_type == "VMM_DIED" and dead.error_message
    waiting.until(lambda: not own_server.processes_of(killed.id) and killed.id not in own_server.folders(), 10, "nothing is left of it")
    # The lifetime goes on from where it was.
    waiting.until(lambda: client.get(ending.id).status == "TIMEOUT", 75, "the lifetime ends")


def test_serve_killed_amid_creates_and_deletes_leaves_nothing(own_server: Server, reference: str):
    """Rows without machines, machines without rows, half-made folders: after a restart every sandbox runs or is over."""
    client = SandboxClient(APIClient())
    warm = client.create(request(reference))
    client.wait_for_creation(warm.id)
    for pause in (0.0, 0.05, 0.15, 0.3, 0.6):
        with own_server.http() as http:
            bodies = [request(reference, labels=["amid"]).model_dump(exclude_none=True) | {"vm": True, "idempotency_key": f"amid-{pause}-{n}"} for n in range(4)]
            ids = create_and_kill(own_server, bodies, pause)
        own_server.start()
        with own_server.http() as http:
            repeated = [http.post("/api/v1/sandbox", json=body).raise_for_status().json()["id"] for body in bodies]
        assert set(ids) <= set(repeated) and len(set(repeated)) == 4, "a repeated create is the same create after a crash"
        for i in repeated:
            waiting.until(lambda: client.get(i).status in ("RUNNING", "ERROR", "TERMINATED"), 60, f"{i} runs or is over")
        assert client.bulk_delete(sandbox_ids=repeated).failed == []
        waiting.until(lambda: own_server.folders() == [warm.id], 15, "only the first sandbox is left")
    client.delete(warm.id)


def create_and_kill(server: Server, bodies: list[dict[str, Any]], pause: float) -> list[str]:
    """Sends creates side by side and kills serve `pause` seconds after the first was sent; ids that were answered."""
    ids: list[str] = []

    def create(body: dict[str, Any]) -> None:
        try:
            with server.http(timeout=60) as http:
                ids.append(http.post("/api/v1/sandbox", json=body).json()["id"])
        except (httpx.HTTPError, KeyError):
            pass  # The server died: that is what this is about.

    threads = [threading.Thread(target=create, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    time.sleep(pause)
    server.kill()
    for thread in threads:
        thread.join(60)
    return ids


def test_a_killed_vmm_is_error_with_a_reason_within_2_s(server: Server, client: SandboxClient, create: Any):
    sandbox = create()
    processes.kill(server.vmm_of(sandbox.id))
    killed = time.monotonic()
    after = waiting.until(lambda: (s := client.get(sandbox.id)).status == "ERROR" and s, 5, "the sandbox is ERROR")
    assert time.monotonic() - killed < VMM_DEATH_SECS
    assert after.error_type == "VMM_DIED" and after.error_message and after.terminated_at
    context = client.client.request("GET", f"/sandbox/{sandbox.id}/error-context")
    assert (context["status"], context["errorType"], context["infra_fault"]) == ("ERROR", "VMM_DIED", True)
    with pytest.raises(SandboxNotRunningError):
        client.execute_command(sandbox.id, "true")
    waiting.until(lambda: not server.processes_of(sandbox.id) and sandbox.id not in server.folders(), 10, "nothing is left of it")


def test_a_killed_shim_is_error_and_takes_its_vmm_along(server: Server, client: SandboxClient, create: Any):
    sandbox = create()
    vmm = server.vmm_of(sandbox.id)
    processes.kill(server.shim_of(sandbox.id))
    after = waiting.until(lambda: (s := client.get(sandbox.id)).status == "ERROR" and s, 10, "the sandbox is ERROR")
    assert after.error_type and after.error_message
    waiting.until(lambda: processes.Process.read(vmm.pid) is None, 10, "the machine is gone")
    waiting.until(lambda: not server.processes_of(sandbox.id) and sandbox.id not in server.folders(), 10, "nothing is left of it")


def test_a_guest_that_ends_itself_is_reported(server: Server, client: SandboxClient, create: Any):
    ends = {"echo o > /proc/sysrq-trigger": ("TERMINATED", "POWERED_OFF"), "echo c > /proc/sysrq-trigger": ("ERROR", "GUEST_DIED"), "echo b > /proc/sysrq-trigger": ("ERROR", "GUEST_DIED")}
    for last_words, (status, kind) in ends.items():
        sandbox = create()
        client.start_background_job(sandbox.id, f"sleep 0.5; echo 1 > /proc/sys/kernel/sysrq; {last_words}")
        after = waiting.until(lambda: (s := client.get(sandbox.id)).status == status and s, 20, f"{last_words}: the sandbox is {status}")
        assert after.error_type == kind and after.error_message, (last_words, after)
        waiting.until(lambda: not server.processes_of(sandbox.id) and sandbox.id not in server.folders(), 10, "nothing is left of it")


def test_a_deleted_sandbox_leaves_nothing(server: Server, client: SandboxClient, create: Any):
    sandbox = create(start_command={"executable": "sleep", "args": ["inf"]})
    folder = server.data_dir / "sandboxes" / sandbox.id
    pids = [p.pid for p in server.processes_of(sandbox.id)]
    assert folder.is_dir() and len(pids) >= 2
    client.delete(sandbox.id)
    # The answer comes when it is done.
    assert not folder.exists()
    assert [p for p in pids if processes.Process.read(p)] == []
    assert sandbox.id not in "".join(p.command for p in processes.all_processes())
    assert sandbox.id not in open("/proc/net/unix").read() and sandbox.id not in open("/proc/mounts").read()


def test_an_orderly_stop_of_serve_leaves_sandboxes_running(own_server: Server, reference: str):
    client = SandboxClient(APIClient())
    sandbox = client.create(request(reference))
    client.wait_for_creation(sandbox.id)
    assert own_server.terminate() == 0
    assert own_server.vmm_of(sandbox.id)
    own_server.start()
    waiting.until(lambda: client.get(sandbox.id).status == "RUNNING", 10, "the sandbox is adopted")
    assert client.execute_command(sandbox.id, "echo on").stdout == "on\n"
    client.delete(sandbox.id)
