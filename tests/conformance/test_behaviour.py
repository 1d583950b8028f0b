"""What must hold under weight: large output, many commands, large files, full disks, many sandboxes, many lives."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crowd
import httpx
import processes
import pytest
import waiting
import wire
from conftest import request
from prime_sandboxes import (
    APIClient, APIError, AsyncSandboxClient, SandboxClient, SandboxFileNotFoundError,
)
from server import Server
from wire import Gateway

MIB = 1 << 20
GIB = 1 << 30
FLAT_MIB = 48


def test_10_mb_of_binary_output_intact_and_in_order(gateway: Gateway):
    """Random bytes on stdout, a counter on stderr: both whole, each in order."""
    script = "head -c 10000000 /dev/urandom > /tmp/ten; (for i in $(seq 1 500); do echo $i >&2; done) & cat /tmp/ten; wait; sha256sum /tmp/ten > /tmp/ten.sha"
    frames = gateway.run(script)
    out = wire.output(frames)
    assert len(out) == 10_000_000 and wire.exit_code(frames) == 0
    assert wire.output(frames, "stderr").split() == [str(n).encode() for n in range(1, 501)]
    digest = gateway.file("GET", "read-file", params={"path": "/tmp/ten.sha"}).json()["content"].split()[0]
    assert hashlib.sha256(out).hexdigest() == digest


async def test_200_concurrent_execs_in_one_sandbox(async_client: AsyncSandboxClient, shared: str):
    crowd.assert_met(await crowd.meet(async_client, shared, 200, secs=280))


def test_a_command_that_closes_stdout_early(gateway: Gateway, client: SandboxClient, shared: str):
    begun = time.monotonic()
    frames = gateway.run("echo before; exec >&- 2>&-; sleep 1; exit 9")
    assert (wire.output(frames), wire.exit_code(frames)) == (b"before\n", 9) and time.monotonic() - begun >= 0.9
    assert client.execute_command(shared, "yes | head -n 1").stdout == "y\n"


def test_file_names_that_are_not_utf_8(gateway: Gateway, client: SandboxClient, shared: str, tmp_path: Path):
    """Raw bytes, percent-encoded in the path; output and environment of such commands too."""
    name = "/tmp/raw-%FF%FEname"
    with gateway.client() as http:
        headers = {"authorization": f"Bearer {gateway.auth['token']}"}
        up = http.post(f"{gateway.base}/upload?path={name}", headers=headers, files={"file": ("f", b"raw bytes")})
        assert up.status_code == 200, up.text
        down = http.get(f"{gateway.base}/download?path={name}", headers=headers)
        assert down.content == b"raw bytes"
    assert client.execute_command(shared, "cat $'/tmp/raw-\\xff\\xfename'").stdout == "raw bytes"
    assert wire.output(gateway.run("cd /tmp; printf '%s\\n' raw-*name")) == b"raw-\xff\xfename\n"
    assert client.execute_command(shared, "printf '\\xff'").stdout == "\ufffd"


class Watch:
    """Largest growth of processes' own memory while a block runs, KiB."""

    def __init__(self, pids: list[int]) -> None:
        self._before = {pid: processes.rss_kib(pid) for pid in pids}
        self.most = dict.fromkeys(pids, 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._over.wait(0.1):
            for pid, before in self._before.items():
                self.most[pid] = max(self.most[pid], processes.rss_kib(pid) - before)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join()


@pytest.mark.hard
def test_a_1_gib_upload_and_download_with_flat_memory(server: Server, client: SandboxClient, create: Any, tmp_path: Path):
    """Serve, shim and agent hold none of it; the guest has 256 MiB, so it cannot."""
    sandbox = create(disk_size_gb=3)
    block = os.urandom(16 * MIB)
    source, back = tmp_path / "source", tmp_path / "back"
    with source.open("wb") as file:
        for _ in range(64):
            file.write(block)
    digest = hashlib.sha256(source.read_bytes()).hexdigest()
    with Watch([server.pid, server.shim_of(sandbox.id).pid]) as watch:
        assert client.upload_file(sandbox.id, "/large", str(source)).size == GIB
        assert client.execute_command(sandbox.id, "stat -c %s /large").stdout.strip() == str(GIB)
        client.download_file(sandbox.id, "/large", str(back))
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest
    assert all(kib < FLAT_MIB << 10 for kib in watch.most.values()), watch.most
    assert int(client.execute_command(sandbox.id, "awk '/VmHWM/ {print $2}' /proc/1/status").stdout) < 8 << 10


EDGES = [0, 1, 128 * 1024 - 1, 128 * 1024, 512 * 1024 - 1, 512 * 1024, 512 * 1024 + 1, 4 * MIB, 5 * MIB + 4097]


def test_files_of_any_length_come_back_the_same(client: SandboxClient, shared: str, tmp_path: Path):
    """Short files and long ones take different ways, and long ones go in pieces."""
    for size in EDGES:
        data, back = os.urandom(size), tmp_path / "back"
        assert client.upload_bytes(shared, "/tmp/edge", data, "edge").size == size
        for drop_caches in (False, True):
            if drop_caches:
                client.execute_command(shared, "sync; echo 3 > /proc/sys/vm/drop_caches")
            client.download_file(shared, "/tmp/edge", str(back))
            assert back.read_bytes() == data, (size, drop_caches)


async def test_40_files_up_and_down_at_once(async_client: AsyncSandboxClient, shared: str, tmp_path: Path):
    """More than the ways for long files can take at once; each stays itself."""
    files = {f"/tmp/many/{n}": os.urandom(2 * MIB + n) for n in range(40)}

    async def there_and_back(path: str, data: bytes) -> None:
        back = tmp_path / Path(path).name
        assert (await async_client.upload_bytes(shared, path, data, "file")).size == len(data)
        await async_client.download_file(shared, path, str(back))
        assert back.read_bytes() == data, path

    await asyncio.gather(*(there_and_back(path, data) for path, data in files.items()))
    await async_client.execute_command(shared, "rm -r /tmp/many")


def test_clients_that_vanish_amid_transfers_spoil_no_later_one(gateway: Gateway, client: SandboxClient, shared: str, tmp_path: Path):
    data = os.urandom(8 * MIB)
    client.upload_bytes(shared, "/tmp/whole", data, "whole")
    headers = {"authorization": f"Bearer {gateway.auth['token']}"}

    def broken() -> Iterator[bytes]:
        yield b'--edge\r\ncontent-disposition: form-data; name="file"; filename="f"\r\n\r\n' + data[: 3 * MIB]
        raise httpx.WriteError("the client goes away")

    for _ in range(20):
        with gateway.client() as http:
            with http.stream("GET", f"{gateway.base}/download?path=/tmp/whole", headers=headers) as response:
                next(response.iter_raw(1000))
            with pytest.raises(httpx.HTTPError):
                more = {"content-type": "multipart/form-data; boundary=edge", "content-length": str(8 * MIB)}
                http.post(f"{gateway.base}/upload?path=/tmp/whole", headers={**headers, **more}, content=broken())
    client.download_file(shared, "/tmp/whole", str(tmp_path / "back"))
    assert (tmp_path / "back").read_bytes() == data
    waiting.until(lambda: not client.execute_command(shared, "ls -A /tmp | grep warren-upload").stdout, 20, "no half of an upload is left")


def test_a_path_without_permission_and_a_missing_file(client: SandboxClient, create: Any, registry: Any, tmp_path: Path):
    sandbox = create(image=registry.reference("user"))
    client.execute_command(sandbox.id, "mkdir -m 700 /closed; echo x > /closed/f; chmod 600 /closed/f", user="root")
    for failing in (
        lambda: client.upload_bytes(sandbox.id, "/closed/g", b"x", "g"), lambda: client.download_file(sandbox.id, "/closed/f", str(tmp_path / "f")),
        lambda: client.read_file(sandbox.id, "/closed/f"),
    ):
        with pytest.raises(APIError, match="(?i)permission"):
            failing()
    assert not (tmp_path / "f").exists()
    with pytest.raises(SandboxFileNotFoundError):
        client.read_file(sandbox.id, "/none")
    with pytest.raises(APIError, match="404"):
        client.download_file(sandbox.id, "/none", str(tmp_path / "f"))
    assert client.execute_command(sandbox.id, "ls -A /closed", user="root").stdout == "f\n"


def test_a_refused_upload_of_any_size_is_answered(client: SandboxClient, shared: str):
    for size in (1, 200 * 1024, 3 * MIB, 20 * MIB):
        for path in ("/tmp", "/proc/nothing", "/tmp/"):
            with pytest.raises(APIError, match="Upload failed"):
                client.upload_bytes(shared, path, os.urandom(size), "file", timeout=30)
    assert client.upload_bytes(shared, "/tmp/after", os.urandom(3 * MIB), "after").size == 3 * MIB


def test_a_full_disk_is_a_clear_error_and_nothing_is_half_written(client: SandboxClient, create: Any):
    sandbox = create(disk_size_gb=0.5)
    client.upload_bytes(sandbox.id, "/data/file", b"old", "file")
    client.execute_command(sandbox.id, "head -c 20G /dev/zero > /filler", timeout=200)
    with pytest.raises(APIError, match="(?i)no space|space left|disk is full"):
        client.upload_bytes(sandbox.id, "/data/file", os.urandom(64 * MIB), "file")
    with pytest.raises(APIError, match="(?i)no space|space left|disk is full"):
        client.upload_bytes(sandbox.id, "/data/new", os.urandom(64 * MIB), "new")
    assert client.read_file(sandbox.id, "/data/file").content == "old"
    assert client.execute_command(sandbox.id, "ls -A /data").stdout == "file\n"
    # Commands still run, and a job says that it could not start.
    assert client.execute_command(sandbox.id, "echo still works; rm /filler").stdout == "still works\n"
    assert client.upload_bytes(sandbox.id, "/data/new", b"fits", "new").size == 4


async def test_50_creates_at_once_all_reach_running(server: Server, async_client: AsyncSandboxClient, glibc: str):
    begun = time.monotonic()
    made = await asyncio.gather(*(async_client.create(request(glibc, labels=["fifty"])) for _ in range(50)))
    ids = [s.id for s in made]
    try:
        assert len(set(ids)) == 50
        await asyncio.gather(*(async_client.wait_for_creation(i) for i in ids))
        answers = await asyncio.gather(*(async_client.execute_command(i, "hostname", timeout=120) for i in ids))
        assert len({a.stdout for a in answers}) == 50 and {a.exit_code for a in answers} == {0}
        print(f"50 sandboxes at once: {time.monotonic() - begun:.1f} s to the last one's second command")
        assert (await async_client.list(labels=["fifty"], status="RUNNING")).total == 50
    finally:
        await async_client.bulk_delete(sandbox_ids=ids)
    waiting.until(lambda: not [i for i in ids if i in server.folders()], 30, "no folder of the fifty is left")


LIVES = 200
AT_ONCE = 4


@pytest.mark.hard
def test_200_lives_leak_nothing(own_server: Server, glibc: str):
    """Create, exec, delete: afterwards as many processes, files and open descriptors as before, and serve's memory within 10 %."""
    client = SandboxClient(APIClient())

    def live(_: int) -> None:
        sandbox = client.create(request(glibc))
        try:
            client.wait_for_creation(sandbox.id)
            assert client.execute_command(sandbox.id, "echo alive").stdout == "alive\n"
        finally:
            client.delete(sandbox.id)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        # Warm-up until memory stands still: allocator arenas, caches, and the store's pages are filled once.
        list(pool.map(live, range(60)))
        before = settle(own_server)
        list(pool.map(live, range(LIVES)))
        after = settle(own_server)
    assert after["processes"] == before["processes"] == []
    assert after["folders"] == [] and after["files"] == before["files"]
    assert after["descriptors"] <= before["descriptors"] + 2, (before, after)
    print(f"serve: {before['rss_kib']} KiB before, {after['rss_kib']} KiB after {LIVES} lives")
    assert after["rss_kib"] <= before["rss_kib"] * 1.10, (before, after)


def settle(server: Server) -> dict[str, Any]:
    """What a server holds once nothing runs; not counted: the store's own files, and records of ends, which the next test is about."""
    server.assert_clean(30)
    files = sorted(str(p.relative_to(server.data_dir)) for p in server.data_dir.rglob("*") if not p.name.startswith("warren.db") and p.parent.name != "ended")
    # The clients keep idle connections for minutes; these are theirs, not a leak.
    descriptors = processes.open_files(server.pid) - connections(server.pid)
    return {
        "processes": [p.command for p in server.sandbox_processes()], "folders": server.folders(), "files": files,
        "descriptors": descriptors, "rss_kib": processes.rss_kib(server.pid),
    }


@pytest.mark.last
def test_records_of_ends_go_within_minutes(server: Server):
    """The node keeps how a sandbox ended for two minutes, for a control plane that was away. This server has ended hundreds by now."""
    ended = server.data_dir / "ended"
    assert [p.name for p in ended.iterdir() if time.time() - p.stat().st_mtime > 180] == []


def connections(pid: int) -> int:
    """Established TCP connections that the process holds."""
    inodes = set()
    for entry in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return sum(row[9] in inodes and row[3] == "01" for row in rows)


async def test_a_hundred_idle_connections_do_not_stop_others(server: Server, client: SandboxClient, shared: str):
    """Connections that say nothing, or half a request, hold nobody else up."""
    writers = []
    for n in range(100):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"POST /api/v1/sandbox HTTP/1.1\r\nhost: x\r\ncontent-le" if n % 2 else b"")
        writers.append(writer)
    answer = await asyncio.to_thread(client.execute_command, shared, "echo through", timeout=20)
    assert answer.stdout == "through\n"
    async with httpx.AsyncClient(trust_env=False) as http:
        assert (await http.get(f"{server.url}/healthz", timeout=5)).status_code == 200
    for writer in writers:
        writer.close()
