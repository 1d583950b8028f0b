"""Snapshots, forks, resets, pauses and execs hammered in any order, and processes killed amid each: minutes long."""

from __future__ import annotations

import concurrent.futures
import contextlib
import random
import threading
import time
from collections import Counter

import httpx
import processes
import pytest
import waiting
from conftest import request
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server
from test_snapshots import post

# What a call may answer besides success while others hammer the same sandbox.
TYPED = {"not_running", "not_found", "snapshot_not_ready", "snapshot_failed", "conflict", "node_unavailable", "limit_reached"}


def test_any_order(own_server: Server, registry: Registry):
    """Eight clients hammer the same five sandboxes: each call succeeds or says by a code why not; a delete ends each within ten seconds."""
    client = SandboxClient(APIClient())
    ids = [client.create(request(registry.reference("glibc"))).id for _ in range(5)]
    for sandbox_id in ids:
        client.wait_for_creation(sandbox_id)
    deadline = time.monotonic() + 120
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    lock = threading.Lock()

    def note(what: str, answer: httpx.Response) -> None:
        code = "ok" if answer.status_code == 200 else answer.json().get("code", "?")
        with lock:
            outcomes[f"{what} {code}"] += 1
            if code != "ok" and code not in TYPED:
                wrong.append(f"{what}: {answer.status_code} {answer.text[:300]}")

    def hammer(seed: int) -> None:
        dice = random.Random(seed)
        mine = SandboxClient(APIClient())
        with own_server.http() as http:
            http.timeout = 60
            while time.monotonic() < deadline:
                sandbox_id = dice.choice(ids)
                what = dice.choice(["snapshot", "fork", "reset", "pause", "resume", "exec", "exec"])
                if what == "exec":
                    try:
                        mine.execute_command(sandbox_id, "echo hi", timeout=30)
                        with lock:
                            outcomes["exec ok"] += 1
                    except Exception as error:
                        text = str(error)
                        known = any(word in text for word in ("PAUSED", "was reset", "was paused", "not ready", "no requests", "unavailable", "broke"))
                        with lock:
                            outcomes["exec typed" if known else "exec wrong"] += 1
                            if not known:
                                wrong.append(f"exec: {text[:300]}")
                    continue
                path = {"snapshot": "snapshots"}.get(what, what)
                answer = http.post(f"/api/v1/sandbox/{sandbox_id}/{path}")
                note(what, answer)
                if answer.status_code != 200:
                    continue
                if what == "snapshot" and dice.random() < 0.8:
                    note("delete snapshot", http.delete(f"/api/v1/snapshots/{answer.json()['id']}"))
                if what == "fork":
                    begun = time.monotonic()
                    note("delete fork", http.delete(f"/api/v1/sandbox/{answer.json()['sandboxes'][0]['id']}"))
                    if time.monotonic() - begun > 10:
                        wrong.append(f"a delete took {time.monotonic() - begun:.1f} s")

    threads = [threading.Thread(target=hammer, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=240)
        assert not thread.is_alive(), "a call hangs"
    print(dict(outcomes))
    assert not wrong, wrong[:10]
    assert all(outcomes[f"{what} ok"] > 0 for what in ("snapshot", "fork", "reset", "pause", "resume", "exec")), outcomes
    for sandbox_id in ids:
        begun = time.monotonic()
        client.delete(sandbox_id)
        assert time.monotonic() - begun < 10
    with own_server.http() as http:
        for snapshot in http.get("/api/v1/snapshots").json()["snapshots"]:
            assert http.delete(f"/api/v1/snapshots/{snapshot['id']}").status_code == 200
    waiting.until(lambda: not list((own_server.data_dir / "snapshots").iterdir()), 20, "no snapshot is left")


@pytest.mark.parametrize("victim", ["vmm", "shim"])
@pytest.mark.parametrize("what", ["snapshots", "fork", "reset", "pause", "resume"])
def test_a_process_killed_amid_an_operation(own_server: Server, registry: Registry, what: str, victim: str):
    """Afterwards store, files and processes agree: the sandbox runs, is paused, or ended by a fault of the platform."""
    client = SandboxClient(APIClient())
    for delay in (0.0, 0.02, 0.08):
        sandbox = client.create(request(registry.reference("glibc")))
        client.wait_for_creation(sandbox.id)
        with own_server.http() as http, concurrent.futures.ThreadPoolExecutor() as pool:
            http.timeout = 60
            post(http, f"/sandbox/{sandbox.id}/snapshots")
            if what == "resume":
                post(http, f"/sandbox/{sandbox.id}/pause")
            call = pool.submit(http.post, f"/api/v1/sandbox/{sandbox.id}/{what}")
            time.sleep(delay)
            for process in own_server.processes_of(sandbox.id):
                if process.is_vmm == (victim == "vmm"):
                    processes.kill(process)
            answer = call.result(timeout=60)
            assert answer.status_code == 200 or answer.json()["code"] in TYPED, answer.text
            # What it is now shows within a moment, and stays.
            shown = waiting.until(lambda: (s := client.get(sandbox.id)).status in ("RUNNING", "PAUSED", "ERROR") and s, 10, "it has a state")
            if shown.status == "RUNNING":
                with contextlib.suppress(Exception):
                    client.execute_command(sandbox.id, "true", timeout=10)
                shown = client.get(sandbox.id)
            if shown.status == "ERROR":
                assert http.get(f"/api/v1/sandbox/{sandbox.id}").json()["infra_fault"], shown
            ids = [s.id for s in client.list().sandboxes]
            client.bulk_delete(sandbox_ids=ids or [sandbox.id])
            for snapshot in http.get("/api/v1/snapshots").json()["snapshots"]:
                http.delete(f"/api/v1/snapshots/{snapshot['id']}")
        waiting.until(lambda: not list((own_server.data_dir / "snapshots").iterdir()) and not own_server.folders(), 20, f"nothing is left after {delay} s")
