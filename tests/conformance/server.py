"""One `warren serve` with its data directory: start, kill -9, start again, and what it leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import httpx

import processes
import waiting
from processes import Process

# The first start makes the guest's assets and decides on the accelerator by booting the kernel.
READY_SECS = 180
STOP_SECS = 30
DELETE_SECS = 60


# Every server of this run, for whoever wants to read its log.
STARTED: list[Server] = []


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@dataclass
class Tls:
    """Files of a server certificate for 127.0.0.1 and localhost, and of the authority that signed it."""

    certificate: Path
    key: Path
    authority: Path


@dataclass(eq=False)
class Server:
    binary: Path
    data_dir: Path
    tls: Tls | None = None
    port: int = field(default_factory=free_port)
    arguments: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def api_key(self) -> str:
        return (self.data_dir / "api-key").read_text().strip()

    @property
    def pid(self) -> int:
        assert self.process, "the server was never started"
        return self.process.pid

    @property
    def log(self) -> Path:
        return self.data_dir.parent / (self.data_dir.name + ".serve.log")

    def environment(self) -> dict[str, str]:
        """What a client process needs, in addition to HOME."""
        return {"PRIME_API_BASE_URL": self.url, "PRIME_API_KEY": self.api_key, "PRIME_DISABLE_VERSION_CHECK": "1", "NO_PROXY": "127.0.0.1,localhost"}

    def cli_environment(self) -> dict[str, str]:
        """What our own client needs."""
        return {"WARREN_URL": self.url, "WARREN_API_KEY": self.api_key}

    def start(self) -> Server:
        if self not in STARTED:
            STARTED.append(self)
        command = [str(self.binary), "serve", "--data-dir", str(self.data_dir), "--listen", f"127.0.0.1:{self.port}", *self.arguments]
        if self.tls:
            command += ["--tls-cert", str(self.tls.certificate), "--tls-key", str(self.tls.key)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        waiting.until(self._ready, READY_SECS, f"{self.url}/healthz answers 200; see {self.log}")
        return self

    def _ready(self) -> bool:
        assert self.process
        if self.process.poll() is not None:
            raise AssertionError(f"warren serve ended with {self.process.returncode}:\n{self.tail()}")
        with contextlib.suppress(httpx.HTTPError):
            return self.http().get("/healthz").status_code == 200
        return False

    def tail(self, length: int = 4000) -> str:
        return self.log.read_text(errors="replace")[-length:]

    def http(self, key: str | None = None, timeout: float = 30) -> httpx.Client:
        """A bare client of the control API, with the owner's key unless another is given."""
        if key is None and (self.data_dir / "api-key").exists():
            key = self.api_key
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=timeout, verify=str(self.tls.authority) if self.tls else False, trust_env=False)

    def kill(self) -> None:
        """kill -9 of the serve process alone."""
        assert self.process
        self.process.kill()
        self.process.wait(STOP_SECS)

    def terminate(self) -> int:
        """An orderly stop; its exit code."""
        assert self.process
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECS)

    def delete_all(self) -> None:
        """Deletes every sandbox that is not over, page by page."""
        with self.http(timeout=DELETE_SECS) as http:
            while ids := [s["id"] for s in http.get("/api/v1/sandbox", params={"per_page": 100, "is_active": "true"}).raise_for_status().json()["sandboxes"]]:
                answer = http.request("DELETE", "/api/v1/sandbox", json={"sandbox_ids": ids, "all_users": False}).raise_for_status().json()
                assert not answer["failed"], answer

    def folders(self) -> list[str]:
        """Ids with a folder on disk."""
        base = self.data_dir / "sandboxes"
        return sorted(os.listdir(base)) if base.exists() else []

    def sandbox_processes(self) -> list[Process]:
        """Every process of this data directory but serve itself: shims and VMMs."""
        return [p for p in processes.of_path(self.data_dir) if p.pid != self.pid]

    def processes_of(self, sandbox_id: str) -> list[Process]:
        return [p for p in processes.of_path(self.data_dir / "sandboxes" / sandbox_id) if p.pid != self.pid] or [
            p for p in self.sandbox_processes() if sandbox_id in p.command
        ]

    def vmm_of(self, sandbox_id: str) -> Process:
        return waiting.until(lambda: next((p for p in self.processes_of(sandbox_id) if p.is_vmm), None), 5, f"a VMM of {sandbox_id}")

    def shim_of(self, sandbox_id: str) -> Process:
        return waiting.until(lambda: next((p for p in self.processes_of(sandbox_id) if not p.is_vmm), None), 5, f"a shim of {sandbox_id}")

    def left_overs(self) -> list[str]:
        return [f"{p.pid} {p.command[:200]}" for p in self.sandbox_processes() if p.is_vmm or " shim" in p.command] + [f"sandboxes/{x}" for x in self.folders()]

    def assert_clean(self, secs: float = 15) -> None:
        """Nothing of any sandbox is left on the host."""
        waiting.until(lambda: not self.left_overs(), secs, "no process and no folder of a sandbox is left") if self.left_overs() else None
        assert not self.left_overs()

    def close(self) -> None:
        """Ends everything that this server started, also after a failure."""
        if self.process and self.process.poll() is None:
            with contextlib.suppress(httpx.HTTPError, AssertionError):
                self.delete_all()
            try:
                self.terminate()
            except subprocess.TimeoutExpired:
                self.kill()
        for process in self.sandbox_processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
