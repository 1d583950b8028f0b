"""Runs the unmodified `prime` CLI of the venv, and our own `warren`, as a user's shell would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PRIME = Path(sys.executable).with_name("prime")
COMMAND_SECS = 120


@dataclass
class Done:
    code: int
    stdout: str
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout + self.stderr

    def ok(self) -> Done:
        assert self.code == 0, f"exit code {self.code}\n{self.text}"
        return self


def run(command: list[str], *, env: dict[str, str] | None = None, stdin: bytes | None = None, secs: float = COMMAND_SECS) -> Done:
    source = {"input": stdin} if stdin is not None else {"stdin": subprocess.DEVNULL}
    done = subprocess.run(command, env={**os.environ, **(env or {})}, capture_output=True, timeout=secs, **source)
    return Done(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))


def prime(*words: str, env: dict[str, str] | None = None, secs: float = COMMAND_SECS) -> Done:
    return run([str(PRIME), *words], env=env, secs=secs)


def warren(*words: str, env: dict[str, str] | None = None, stdin: bytes | None = None, secs: float = COMMAND_SECS) -> Done:
    binary = os.environ["WARREN"]
    return run([binary, *words], env=env, stdin=stdin, secs=secs)


def created_id(done: Done) -> str:
    """The id in the answer of `prime sandbox create`."""
    found = re.search(r"Successfully created sandbox (\S+)", done.ok().text)
    assert found, done.text
    return found[1]
