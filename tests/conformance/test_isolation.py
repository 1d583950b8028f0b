"""What a VMM that a guest has taken over could reach on the host, seen from the host. The suite runs as root."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from processes import Process
from server import Server

FIRST_UID = 0x7000_0000


def status(process: Process) -> dict[str, str]:
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    return {key: value.strip() for key, value in (line.split(":", 1) for line in lines)}


@pytest.fixture
def two(server: Server, create: Any) -> list[list[Process]]:
    """Processes of two sandboxes."""
    return [server.processes_of(create().id) for _ in range(2)]


def test_each_sandbox_is_a_user_of_its_own_without_capabilities(two: list[list[Process]]):
    users = [{status(process)["Uid"] for process in processes} for processes in two]
    assert all(len(of_one) == 1 for of_one in users) and users[0] != users[1], users
    for process in (process for processes in two for process in processes):
        shown = status(process)
        assert int(shown["Uid"].split()[0]) >= FIRST_UID and len(set(shown["Uid"].split() + shown["Gid"].split())) == 1, shown
        assert {int(shown[name], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapAmb")} == {0}, shown
        assert shown["NoNewPrivs"] == "1", shown
        assert shown["Seccomp"] == ("2" if process.is_vmm else "0"), shown


def test_a_vmm_has_no_network_and_no_processes_but_its_own(two: list[list[Process]]):
    for process in (process for processes in two for process in processes if process.is_vmm):
        for kind in ("net", "ipc", "mnt"):
            assert os.readlink(f"/proc/{process.pid}/ns/{kind}") != os.readlink(f"/proc/self/ns/{kind}"), kind
        devices = Path(f"/proc/{process.pid}/net/dev").read_text()
        assert [line.split(":")[0].strip() for line in devices.splitlines()[2:]] == ["lo"], devices


def test_a_vmm_sees_its_own_folder_and_nothing_that_it_can_write_to_besides(server: Server, two: list[list[Process]]):
    for processes in two:
        vmm = next(process for process in processes if process.is_vmm)
        root = Path(f"/proc/{vmm.pid}/root")
        data_dir = root / server.data_dir.relative_to("/")
        folder = root / Path(vmm.folder).relative_to("/")
        assert sorted(path.name for path in (data_dir / "sandboxes").iterdir()) == [folder.parent.name]
        assert [path.name for path in (data_dir / "sandboxes").glob("*/*")] == ["vm"]
        assert not (data_dir / "api-key").exists() and not (data_dir / "warren.db").exists() and not (root / "home").exists()
        mounts = [line.split() for line in Path(f"/proc/{vmm.pid}/mounts").read_text().splitlines()]
        writable = {place for _, place, kind, options, *_ in mounts if "rw" in options.split(",") and not place.startswith("/dev/") and kind != "proc"}
        assert writable == {"/", vmm.folder}, writable
        # The root belongs to root, and nothing in it can be made by others.
        assert (root.stat().st_uid, root.stat().st_mode & 0o022) == (0, 0)


def test_the_template_cannot_be_written(two: list[list[Process]]):
    vmm = next(process for process in two[0] if process.is_vmm)
    memory = [fd for fd in Path(f"/proc/{vmm.pid}/fd").iterdir() if "warren-template" in os.readlink(fd)]
    assert memory
    with memory[0].open("r+b") as file, pytest.raises(PermissionError):
        os.pwrite(file.fileno(), b"x", 0)
