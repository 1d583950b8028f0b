"""A Docker daemon for one run: its own data, its own network namespace, ended by its process id."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import waiting

READY_SECS = 60
STOP_SECS = 30
COMMAND_SECS = 300


class Docker:
    def __init__(self, folder: Path, *arguments: str) -> None:
        self._folder, self._arguments = folder, arguments
        self._process: subprocess.Popen[bytes] | None = None
        self.env = {**os.environ, "DOCKER_HOST": f"unix://{folder}/sock"}

    def start(self) -> Docker:
        self._folder.mkdir(parents=True)
        dockerd = shutil.which("dockerd", path=os.environ["PATH"] + ":/usr/sbin")
        assert dockerd
        # In a network namespace of its own, docker0 and its packet filter rules go when the daemon goes.
        command = ["unshare", "--net", dockerd, "--data-root", f"{self._folder}/data", "--exec-root", f"{self._folder}/exec",
                   "--pidfile", f"{self._folder}/pid", "--host", f"unix://{self._folder}/sock", *self._arguments]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        waiting.until(self._ready, READY_SECS, f"dockerd answers; see {self._folder}/log")
        return self

    def _ready(self) -> bool:
        assert self._process
        assert self._process.poll() is None, (self._folder / "log").read_text()[-3000:]
        return subprocess.run(["docker", "version"], env=self.env, capture_output=True, timeout=COMMAND_SECS).returncode == 0

    def __call__(self, *words: str) -> str:
        done = subprocess.run(["docker", *words], env=self.env, capture_output=True, text=True, timeout=COMMAND_SECS, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout.strip()

    def _enter(self, *command: str) -> list[str]:
        assert self._process
        return ["nsenter", f"--net=/proc/{self._process.pid}/ns/net", *command]

    def inside(self, *command: str) -> None:
        """Runs a command in the daemon's network namespace."""
        subprocess.run(self._enter(*command), check=True, timeout=COMMAND_SECS)

    def inside_ok(self, *command: str) -> bool:
        return subprocess.run(self._enter(*command), capture_output=True, timeout=COMMAND_SECS).returncode == 0

    def start_inside(self, *command: str) -> subprocess.Popen[bytes]:
        """Starts what the caller ends."""
        return subprocess.Popen(self._enter(*command), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def layer_folder(self, diff_ids: list[str]) -> Path:
        """Where the vfs driver unpacked these layers, the last of them freshly: its attributes are all there."""
        chain = diff_ids[0]
        for diff_id in diff_ids[1:]:
            chain = "sha256:" + hashlib.sha256(f"{chain} {diff_id}".encode()).hexdigest()
        known = self._folder / "data/image/vfs/layerdb" / chain.replace(":", "/") / "cache-id"
        return self._folder / "data/vfs/dir" / known.read_text()

    def pids(self, container: str) -> list[int]:
        """The container's first process and the shim that watches it."""
        pid = int(self("inspect", "--format", "{{.State.Pid}}", container))
        parent = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
        return [pid, parent]

    def close(self) -> None:
        if self._process and self._process.poll() is None:
            for container in self("ps", "--all", "--quiet").split():
                with contextlib.suppress(AssertionError):
                    self("rm", "--force", container)
            self._process.terminate()
            self._process.wait(STOP_SECS)
        shutil.rmtree(self._folder, ignore_errors=True)
