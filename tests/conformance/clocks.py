"""What takes minutes by its nature (lifetimes, idle timeouts, keepalives): started with the session, looked at in its last tests."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from prime_sandboxes import APIClient, CreateSandboxRequest, SandboxClient
from prime_sandboxes._proto.command_session import command_session_pb2 as pb

import wire
from server import Server
from wire import Gateway

TERMINAL = ("ERROR", "TERMINATED", "TIMEOUT")
END_SECS = 240
ECHO = "/tmp/echo-of-writes"
KEEPALIVES = 2


@dataclass
class Life:
    """One sandbox from RUNNING to its end, as seen by polling `get`."""

    id: str
    running_at: float
    ended_at: float | None = None
    last: dict[str, Any] = field(default_factory=dict)
    exec_error: Exception | None = None
    exec_code: int | None = None
    exec_ended_at: float | None = None

    @property
    def lasted(self) -> float:
        assert self.ended_at, f"{self.id} did not end"
        return self.ended_at - self.running_at


@dataclass
class Write:
    """A SendInput request, and when it was first sent."""

    request: Any
    at: float


class Clocks:
    """`minute`: lifetime 1; `idle`: idle timeout 1, no lifetime; `idle_zero`: the same with lifetime 0; `busy`: idle timeout 1 and
    one quiet exec of 80 s; `pauses`: idle timeout 1, at which it pauses; `forever`: lifetime -1. `quiet`: keepalives seen on a stream without output."""

    def __init__(self, server: Server, image: str) -> None:
        self._server, self._image = server, image
        self._client = SandboxClient(APIClient())
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="clock")
        self._closing = threading.Event()
        self.lives: dict[str, Future[Life]] = {}
        self.keepalives: Future[list[float]] | None = None
        self.quiet_gateway: Gateway | None = None
        self.quiet_session = wire.new_uuid()
        self.first_write: Write | None = None

    def start(self) -> None:
        kinds: dict[str, dict[str, Any]] = {
            "minute": {"timeout_minutes": 1},
            "idle": {"timeout_minutes": -1, "idle_timeout_minutes": 1},
            "idle_zero": {"timeout_minutes": 0, "idle_timeout_minutes": 1},
            "busy": {"timeout_minutes": -1, "idle_timeout_minutes": 1},
            "pauses": {"timeout_minutes": -1, "idle_timeout_minutes": 1, "advanced_configs": {"idle_action": "pause"}},
            "forever": {"timeout_minutes": -1},
        }
        for name, limits in kinds.items():
            life = self._create(name, limits)
            self.lives[name] = self._pool.submit(self._watch, name, life)
        auth = self._client.client.request("POST", f"/sandbox/{self.lives['forever'].result(60).id}/auth")
        self.quiet_gateway = Gateway(auth)
        self.keepalives = self._pool.submit(self._count_keepalives)
        self.first_write = self._write_once()

    def _create(self, name: str, limits: dict[str, Any]) -> Life:
        sandbox = self._client.create(CreateSandboxRequest(
            name=f"clock-{name}", docker_image=self._image, cpu_cores=1, memory_gb=0.25, disk_size_gb=1, labels=["clock"], **limits))
        self._client.wait_for_creation(sandbox.id)
        return Life(sandbox.id, time.monotonic())

    def _watch(self, name: str, life: Life) -> Life:
        if name == "forever":
            life.last = self._get(life.id)
            return life
        worker = threading.Thread(target=self._run_quietly, args=(life,)) if name == "busy" else None
        if worker:
            worker.start()
        deadline = time.monotonic() + END_SECS
        while time.monotonic() < deadline and not self._closing.wait(0.5):
            life.last = self._get(life.id)
            if life.last["status"] in (*TERMINAL, "PAUSED"):
                life.ended_at = time.monotonic()
                break
        if worker:
            worker.join()
        return life

    def _run_quietly(self, life: Life) -> None:
        try:
            life.exec_code = self._client.execute_command(life.id, "sleep 80", timeout=120).exit_code
        except Exception as error:
            life.exec_error = error
        life.exec_ended_at = time.monotonic()

    def _get(self, sandbox_id: str) -> dict[str, Any]:
        return self._client.client.request("GET", f"/sandbox/{sandbox_id}")

    def _count_keepalives(self) -> list[float]:
        """Seconds between the events of a live process that says nothing; its stream stays open until the session ends."""
        assert self.quiet_gateway
        begun, seen = time.monotonic(), []
        request = wire.start_request("read line; echo got $line; exit 5", session_uuid=self.quiet_session, stdin=True)
        with self.quiet_gateway.client(timeout=90) as http, self.quiet_gateway.stream(http, "Start", request, timeout_ms=86_400_000) as answer:
            for frame in wire.frames(answer.iter_raw()):
                if not frame.is_end and frame.event.WhichOneof("event") == "keepalive":
                    seen.append(time.monotonic() - begun)
                if len(seen) >= KEEPALIVES or frame.is_end:
                    break
        return seen

    def _write_once(self) -> Write:
        """Writes a line to a process that copies its stdin to a file."""
        assert self.quiet_gateway
        gateway, session = self.quiet_gateway, wire.new_uuid()
        with gateway.client() as http, gateway.stream(http, "Start", wire.start_request(f"cat > {ECHO}", session_uuid=session, stdin=True)) as answer:
            next(wire.frames(answer.iter_raw()))
            request = pb.SendInputRequest(session=wire.session(session), input=pb.CommandInput(stdin=b"written once\n"), input_uuid=wire.new_uuid())
            gateway.unary("SendInput", request).raise_for_status()
        return Write(request, time.monotonic())

    def read_echo(self) -> str:
        return self._client.execute_command(self.life("forever").id, f"cat {ECHO}").stdout

    def life(self, name: str) -> Life:
        return self.lives[name].result(END_SECS + 60)

    def close(self) -> None:
        self._closing.set()
        self._pool.shutdown(wait=True)
