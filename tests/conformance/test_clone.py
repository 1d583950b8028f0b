"""A clone is its own machine: what programs find that were running when a snapshot was taken, in forks, after resets and resumes."""

from __future__ import annotations

import shutil
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from clones import NUMBERS, PYTHON, TICKER, WAITER, WATCHER, Machine, clock_error, common, findings
from conftest import Create
from prime_sandboxes import SandboxClient
from server import Server
from target_net import ECHO_PORT, Target

CLOCK_ERROR_SECS = 0.1
CALL_SECS = 60
HOUR_SECS = 3600

Make = Callable[..., Machine]


@pytest.fixture
def machine(server: Server, client: SandboxClient, create: Create) -> Iterator[Make]:
    """Makes sandboxes. What became of them goes at the end, their snapshots too."""
    before = {sandbox.id for sandbox in client.list(per_page=1000).sandboxes}
    with server.http(timeout=CALL_SECS) as http:
        yield lambda **more: Machine(http, client, create(**more).id)
        made = [sandbox.id for sandbox in client.list(per_page=1000).sandboxes if sandbox.id not in before]
        if made:
            client.bulk_delete(sandbox_ids=made)
        for snapshot in http.get("/api/v1/snapshots").raise_for_status().json()["snapshots"]:
            http.delete(f"/api/v1/snapshots/{snapshot['id']}")


@pytest.fixture
def watcher_log(tmp_path: Path) -> Callable[[Machine], list[tuple[str, str]]]:
    """What the watcher in a machine has found until now."""

    def read(machine: Machine) -> list[tuple[str, str]]:
        path = tmp_path / f"watcher-{uuid.uuid4().hex}"
        machine.client.download_file(machine.id, "/root/watcher", str(path))
        return findings(path.read_text())

    return read


@pytest.mark.parametrize("cpus", [1, 2])
def test_programs_find_nothing_stale(machine: Make, watcher_log: Any, cpus: int):
    source = machine(cpu_cores=cpus)
    source.put("/root/watcher.py", WATCHER)
    # As many as there are processors, and one more: some of them run at the moment of the snapshot.
    source.start(f"{PYTHON} /root/watcher.py")
    source.file_has("/root/watcher", "generation 0")
    source.start("sh -c 'while :; do :; done'")
    taken = source.snapshot()
    time.sleep(1.5)
    asked = time.time()
    children = source.fork_of(taken, count=2)
    logs = {child.id: watcher_log(child) for child in children}
    source_log = watcher_log(source)
    drawn = {value for name, value in source_log if name == "random"}
    for child in children:
        assert clock_error(lambda child=child: float(child.shell("date +%s.%N"))) < CLOCK_ERROR_SECS
        log = watcher_log(child)
        begins = common(log, source_log)
        before, after = log[:begins], log[begins:]
        assert {name for name, _ in after} == {name for name, _ in before}, "the watcher went on"
        machine_id = child.shell("cat /etc/machine-id")
        own = {"host": child.id, "id": child.id, "generation": "1", "machine": machine_id}
        for name, value in after:
            assert own.get(name, value) == value, (name, value, own)
            assert name != "wall" or float(value) >= asked - CLOCK_ERROR_SECS, (value, asked)
            assert name != "random" or value not in drawn, value
        drawn |= {value for name, value in after if name == "random"}
        last, first = ([float(value) for name, value in part if name == "mono"] for part in (before, after))
        assert first[0] - last[-1] < 1, "the monotonic clock stood still between the snapshot and the fork"
        assert logs[child.id] == log[: len(logs[child.id])]
    assert {dict(source_log)[name] for name in ("host", "id")} == {source.id}
    assert dict(source_log)["generation"] == "0"
    assert len({child.shell("cat /etc/machine-id") for child in [source, *children]}) == 3


def test_a_reset_and_a_resume_are_told_too(machine: Make):
    source = machine()
    machine_id = source.shell("cat /etc/machine-id")
    source.snapshot()
    read = "cat /run/warren/generation /run/warren/sandbox-id"
    assert source.shell(read).split() == ["0", source.id]
    source.post("reset")
    assert source.shell(read).split() == ["1", source.id]
    for generation in ("2", "3"):
        source.post("pause")
        time.sleep(0.5)
        source.post("resume")
        assert source.shell(read).split() == [generation, source.id]
        assert clock_error(lambda: float(source.shell("date +%s.%N"))) < CLOCK_ERROR_SECS
    assert source.shell("hostname; cat /etc/machine-id").split() == [source.id, machine_id]
    (child,) = source.fork()
    assert child.shell(read).split() == ["4", child.id]


def test_open_connections_are_reset(machine: Make, target: Target):
    source = machine()
    source.put("/root/waiter.py", WAITER)
    source.start(f"{PYTHON} /root/waiter.py {target.address} {ECHO_PORT} /root/waiter")
    source.file_has("/root/waiter", "connected")
    taken = source.snapshot()
    (child,) = source.fork_of(taken)
    answered = time.time()
    assert reset_at(child) < answered + 1
    # In the source it lives on.
    source.shell("kill -USR1 $(grep connected /root/waiter | cut -d' ' -f2)")
    assert "Connection" not in source.file_has("/root/waiter", "ping")
    source.post("pause")
    source.post("resume")
    assert reset_at(source) < time.time() + 1
    source.post("reset", {"snapshotId": taken["id"]})
    assert "ping" not in source.shell("cat /root/waiter")
    assert reset_at(source) < time.time() + 1
    # What is opened now works.
    source.start(f"{PYTHON} /root/waiter.py {target.address} {ECHO_PORT} /root/again")
    source.file_has("/root/again", "connected")


def reset_at(machine: Machine) -> float:
    """When the waiter's connection was reset."""
    noted = machine.file_has("/root/waiter", "Connection", secs=5).splitlines()[-1].split()
    assert noted[0] in ("ConnectionResetError", "ConnectionAbortedError"), noted
    return float(noted[1])


def test_timers_do_not_stampede(machine: Make):
    source = machine()
    source.put("/root/ticker.pl", TICKER)
    # The wall clock of the forks will be hours ahead of the source's.
    source.shell(f"date -s @$(($(date +%s) - {3 * HOUR_SECS})) >/dev/null")
    source.start("sh -c 'sleep 60; echo fired >/root/fired'")
    source.start("perl /root/ticker.pl")
    source.file_has("/root/ticks", "1\n1")
    (child,) = source.fork()
    assert clock_error(lambda: float(child.shell("date +%s.%N"))) < CLOCK_ERROR_SECS
    ticks = [int(count) for count in child.file_has("/root/ticks", str(3 * HOUR_SECS)[:3]).split()]
    assert [count >= 3 * HOUR_SECS - 60 for count in ticks].count(True) == 1, ticks
    assert sum(count for count in ticks if count < HOUR_SECS) < 60, ticks
    child.shell("test ! -e /root/fired")


def test_random_numbers_of_programs_differ(machine: Make):
    source = machine()
    source.put("/root/numbers.py", NUMBERS)
    for name in ("reseeds", "plain"):
        source.shell(f"mkfifo /root/{name}.ask")
        source.start(f"{PYTHON} /root/numbers.py {name} /root/{name} 3<>/root/{name}.ask")
        source.file_has(f"/root/{name}.ready", ".")
    children = source.fork(count=8)
    ask = "for n in reseeds plain; do echo >/root/$n.ask; done; cat /proc/sys/kernel/random/uuid; head -c 8 /dev/urandom | base64"
    kernel = [child.shell(ask).split() for child in children]
    assert len({value for values in kernel for value in values}) == 16, kernel
    assert len({child.file_has("/root/reseeds", ".") for child in children}) == 8
    # Without the helper they are the same: the test can fail.
    assert len({child.file_has("/root/plain", ".") for child in children}) == 1


def test_host_keys_are_new_before_a_server_goes_on(machine: Make):
    source = machine()
    keygen = shutil.which("ssh-keygen")
    assert keygen
    source.put("/usr/bin/ssh-keygen", Path(keygen).read_bytes())
    # A server of SSH, as far as the agent can tell: it notes which key it finds when it is told to read it again.
    source.put("/root/server.py", "import signal\nsignal.signal(signal.SIGHUP, lambda *_: open('/root/read', 'w').write(open('/etc/ssh/ssh_host_ed25519_key.pub').read()))\nopen('/root/up', 'w').write('up')\nwhile True: signal.pause()\n")
    source.shell("chmod +x /usr/bin/ssh-keygen; mkdir -p /etc/ssh; for t in ed25519 ecdsa; do ssh-keygen -q -t $t -N '' -f /etc/ssh/ssh_host_${t}_key; done; touch /etc/ssh/ssh_host_rsa_key; cp $(readlink -f /usr/bin/python3) /usr/local/bin/sshd")
    source.start("/usr/local/bin/sshd /root/server.py")
    source.file_has("/root/up", "up")
    show = "cat /etc/ssh/ssh_host_*_key.pub"
    old = source.shell(show).splitlines()
    children = source.fork(count=2)
    new = [child.shell(show).splitlines() for child in children]
    assert len(old) == 2 and len({key.split()[1] for keys in [old, *new] for key in keys}) == 6, (old, new)
    for child, keys in zip(children, new, strict=True):
        assert child.file_has("/root/read", "ssh-ed25519") in keys
        assert child.shell("stat -c '%a %u' /etc/ssh/ssh_host_ed25519_key") == "600 0"
        child.shell("test ! -e /etc/ssh/ssh_host_rsa_key")
    assert source.shell(f"{show}; test ! -e /root/read").splitlines() == old
    # The same machine keeps its keys.
    children[0].post("pause")
    children[0].post("resume")
    assert children[0].shell(show).splitlines() == new[0]


def test_secrets_of_forks(server: Server, machine: Make):
    source = machine(secrets={"TOKEN": "first", "OTHER": "kept"})
    show = 'echo "${TOKEN-none} ${OTHER-none}"'
    assert source.shell(show) == "first kept"
    taken = source.snapshot()
    assert taken["hasSecrets"] is True
    policies: list[tuple[dict[str, Any], str]] = [
        ({}, "first kept"), ({"secrets_policy": "drop"}, "none none"), ({"secrets": {"TOKEN": "second"}}, "second kept"),
        ({"secrets_policy": "drop", "secrets": {"TOKEN": "second"}}, "second none"),
    ]
    for body, shown in policies:
        (child,) = source.fork_of(taken, **body)
        assert child.shell(show) == shown, body
        # What programs of the source have read may be in its memory.
        assert child.snapshot()["hasSecrets"] is True
        child.delete()
    assert machine().snapshot()["hasSecrets"] is False
    # They are whose the sandbox is, and an administrator's.
    made = source.http.post("/api/v1/admin/users", json={"slug": f"u{uuid.uuid4().hex[:8]}"}).raise_for_status().json()
    with server.http(made["apiKey"]) as other:
        assert other.get("/api/v1/snapshots").raise_for_status().json()["snapshots"] == []
        for verb, path in [
            ("GET", f"snapshots/{taken['id']}"), ("POST", f"snapshots/{taken['id']}/fork"), ("DELETE", f"snapshots/{taken['id']}"),
            ("POST", f"sandbox/{source.id}/fork"), ("POST", f"sandbox/{source.id}/snapshots"), ("POST", f"sandbox/{source.id}/reset"),
        ]:
            assert other.request(verb, f"/api/v1/{path}").status_code in (403, 404), (verb, path)
    assert source.http.get(f"/api/v1/snapshots/{taken['id']}").raise_for_status().json()["hasSecrets"] is True


def test_the_helper_runs_anywhere(tmp_path: Path):
    helper = Path(__file__).resolve().parents[2] / "clients/python/warren_reseed.py"
    shutil.copy(helper, tmp_path)
    script = "import warren_reseed as w; assert w.generation() is None and not w.armed and not w.check()"
    subprocess.run(["python3", "-c", script], cwd=tmp_path, check=True)
