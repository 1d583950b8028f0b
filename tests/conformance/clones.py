"""Sandboxes that go on from snapshots, and the programs that run in them meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from prime_sandboxes import SandboxClient

import waiting

READY_SECS = 30
PYTHON = "python3 -u"

# Says again and again what it finds, each finding alone on a line that is written at once: what was read before a snapshot and is written after it is
# therefore the same in the source and in its forks.
WATCHER = """
import os, socket, time
def text(path):
    with open(path) as file: return file.read().strip()
found = [
    ("wall", time.time), ("mono", time.monotonic), ("host", socket.gethostname), ("random", lambda: os.urandom(8).hex()),
    ("machine", lambda: text("/etc/machine-id")), ("id", lambda: text("/run/warren/sandbox-id")), ("generation", lambda: text("/run/warren/generation")),
]
log = open("/root/watcher", "w", buffering=1)
while True:
    for name, find in found:
        log.write(f"{name} {find()}\\n")
"""

# Waits for bytes of a connection, says at each signal something on it, and notes what comes of that, with the time.
WAITER = """
import os, signal, socket, sys, time
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 20)
connection.settimeout(None)
signal.signal(signal.SIGUSR1, lambda *_: connection.send(b"ping"))
def note(line):
    with open(sys.argv[3], "a", buffering=1) as file: file.write(f"{line} {time.time()}\\n")
note(f"connected {os.getpid()}")
while True:
    try:
        got = connection.recv(100)
    except OSError as error:
        note(type(error).__name__)
        break
    note(got.decode() or "end")
    if not got: break
"""

# One random number for each line of input, with and without the helper.
NUMBERS = """
import random, sys
if sys.argv[1] == "reseeds":
    sys.path.append("/dev/warren/tools/python")
    import warren_reseed
    assert warren_reseed.armed
print(random.random(), file=open(sys.argv[2] + ".ready", "w"), flush=True)
for line in open(sys.argv[2] + ".ask"):
    print(random.random(), file=open(sys.argv[2], "w"), flush=True)
    break
"""

# A timer of the wall clock that fires each second, as cron's: says how many times it had to fire at once.
TICKER = """
my $fd = syscall(283, 0, 0);
my $spec = pack("q4", 1, 0, time() + 1, 0);
syscall(286, $fd, 1, $spec, 0) == 0 or die "timerfd_settime: $!";
open(my $timer, "<&=", $fd) or die;
open(my $log, ">", "/root/ticks") or die;
select($log); $| = 1;
while (sysread($timer, my $count, 8)) { print unpack("Q", $count), "\\n"; }
"""


class Machine:
    """One sandbox, with what the tests here do to it."""

    def __init__(self, http: httpx.Client, client: SandboxClient, sandbox_id: str) -> None:
        self.http, self.client, self.id = http, client, sandbox_id

    def shell(self, script: str, code: int = 0) -> str:
        answer = self.client.execute_command(self.id, script, timeout=READY_SECS)
        assert answer.exit_code == code, f"{script}\nexit code {answer.exit_code}\n{answer.stdout}\n{answer.stderr}"
        return answer.stdout.strip()

    def put(self, path: str, content: bytes | str) -> None:
        content = content.encode() if isinstance(content, str) else content
        self.client.upload_bytes(self.id, path, content, Path(path).name)

    def start(self, command: str) -> None:
        """Starts a program that lives on."""
        self.shell(f"nohup {command} >/root/nohup.out 2>&1 </dev/null &")

    def file_has(self, path: str, text: str, secs: float = READY_SECS) -> str:
        """Waits until a file has `text`; answers all that it has."""

        def read() -> str:
            found = self.shell(f"cat {path} 2>/dev/null || true")
            return found if text in found else ""

        return waiting.until(read, secs, f"{path} has {text!r}")

    def post(self, what: str, body: dict[str, Any] | None = None) -> Any:
        answer = self.http.post(f"/api/v1/sandbox/{self.id}/{what}", json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def snapshot(self, **body: Any) -> dict[str, Any]:
        return self.post("snapshots", body)

    def fork(self, **body: Any) -> list[Machine]:
        return self.of(self.post("fork", body))

    def fork_of(self, snapshot: dict[str, Any], **body: Any) -> list[Machine]:
        answer = self.http.post(f"/api/v1/snapshots/{snapshot['id']}/fork", json=body)
        assert answer.is_success, answer.text
        return self.of(answer.json())

    def of(self, forked: dict[str, Any]) -> list[Machine]:
        return [Machine(self.http, self.client, sandbox["id"]) for sandbox in forked["sandboxes"]]

    def delete(self) -> None:
        self.http.delete(f"/api/v1/sandbox/{self.id}")


def findings(log: str) -> list[tuple[str, str]]:
    """Whole lines of the watcher's log."""
    return [(name, value) for name, _, value in (line.partition(" ") for line in log.split("\n")[:-1])]


def common(a: list[Any], b: list[Any]) -> int:
    """How long the two are the same."""
    return next((at for at, (one, other) in enumerate(zip(a, b, strict=False)) if one != other), min(len(a), len(b)))


def clock_error(now: Callable[[], float], tries: int = 8) -> float:
    """How far the clock that `now` reads is off this one's, seconds, as well as the fastest of some readings tells: at least so much."""
    readings = []
    for _ in range(tries):
        before, there, after = time.time(), now(), time.time()
        readings.append((after - before, max(before - there, there - after, 0.0)))
    return min(readings)[1]
