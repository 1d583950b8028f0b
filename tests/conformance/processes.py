"""Reads /proc: which processes belong to a data directory, to a sandbox; how much memory they hold."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import waiting


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    command: str
    folder: str
    parent: int

    @classmethod
    def read(cls, pid: int) -> Process | None:
        """`None` if it is gone, or is a zombie that only waits to be reaped."""
        base = Path(f"/proc/{pid}")
        try:
            stat = (base / "stat").read_text()
            name, rest = stat[stat.index("(") + 1 : stat.rindex(")")], stat[stat.rindex(")") + 2 :].split()
            if rest[0] in "ZX":
                return None
            command = (base / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            return cls(pid, name, command, os.readlink(base / "cwd"), int(rest[1]))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            return None

    @property
    def is_vmm(self) -> bool:
        return self.name.startswith("qemu-system")


def all_processes() -> list[Process]:
    found = (Process.read(int(entry)) for entry in os.listdir("/proc") if entry.isdigit())
    return [process for process in found if process]


def of_path(path: Path | str) -> list[Process]:
    """Processes that name `path` on their command line or work below it, and their children."""
    text = str(path).rstrip("/")
    everything = all_processes()
    mine = {p.pid: p for p in everything if p.pid != os.getpid() and (text in p.command or f"{p.folder}/".startswith(text + "/"))}
    grown = True
    while grown:
        children = {p.pid: p for p in everything if p.parent in mine and p.pid not in mine and p.pid != os.getpid()}
        mine.update(children)
        grown = bool(children)
    return list(mine.values())


def rss_kib(pid: int) -> int:
    """Resident memory that is the process's own: anonymous pages, not files that it maps or shares."""
    return _field(Path(f"/proc/{pid}/status"), "RssAnon:")


def pss_kib(pid: int) -> int:
    """Proportional share of all that it maps."""
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Pss:")


def private_kib(pid: int) -> int:
    """Memory that is this process's alone: what is clean is a file's, and stays when it goes."""
    return _field(Path(f"/proc/{pid}/smaps_rollup"), "Private_Dirty:")


def private_of_mapping_kib(pid: int, name: str) -> int:
    """The same of the mappings whose path has `name` in it."""
    total, counts = 0, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and len(words) >= 5:
            counts = name in line
        elif counts and words[0] == "Private_Dirty:":
            total += int(words[1])
    return total


def peak_kib(pid: int) -> int:
    """The most memory that it ever had resident."""
    return _field(Path(f"/proc/{pid}/status"), "VmHWM:")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def _field(path: Path, key: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1])
    raise LookupError(f"{path} has no {key}")


def kill(process: Process, secs: float = 5) -> None:
    """SIGKILL to that one process; returns when it is gone."""
    os.kill(process.pid, signal.SIGKILL)
    waiting.until(lambda: Process.read(process.pid) is None, secs, f"{process.name} {process.pid} is gone")
