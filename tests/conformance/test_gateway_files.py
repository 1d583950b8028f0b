"""Lines 60 to 62 of the checklist: job output, windows of files, upload and download."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
import waiting
from prime_sandboxes import (
    APIError, AsyncSandboxClient, SandboxClient, SandboxFileNotFoundError, SandboxFileTooLargeError,
)
from wire import Gateway

MIB = 1 << 20


def test_line_60_job_output_above_10_mib_is_its_last_10_mib(client: SandboxClient, shared: str):
    # 12 MiB of numbered lines of 64 bytes, then silence on stderr.
    job = client.start_background_job(shared, "seq -f '%063.0f' 1 196608")
    done = waiting.until(lambda: (status := client.get_background_job(shared, job, timeout=60)).completed and status, 90, "the job ends")
    assert done.exit_code == 0 and done.stdout_error is None and done.stdout_truncated is True
    assert len(done.stdout) == 10 * MIB and done.stdout.endswith(f"{196608:063}\n")
    lines = done.stdout.splitlines()
    assert [int(line) for line in lines] == list(range(196608 - len(lines) + 1, 196609))
    assert (done.stderr, done.stderr_truncated) == ("", False)


def test_line_60_404_is_for_a_missing_file_only(client: SandboxClient, gateway: Gateway, shared: str):
    with pytest.raises(SandboxFileNotFoundError):
        client.read_file(shared, "/no/such/file")
    client.execute_command(shared, "mkdir -p /tmp/line60; : > /tmp/line60/empty")
    assert client.read_file(shared, "/tmp/line60/empty").content == ""
    for path in ("/tmp/line60", "/", "relative/path", "", "/tmp/line60/empty/below-a-file"):
        for operation in ("read-file", "download"):
            answer = gateway.file("GET", operation, params={"path": path})
            assert 400 <= answer.status_code < 500, (operation, path, answer.status_code, answer.text)
            if path in ("/tmp/line60", "/", "relative/path", ""):
                assert answer.status_code != 404, (operation, path)


def test_line_61_windows_of_read_file(client: SandboxClient, shared: str):
    client.upload_bytes(shared, "/tmp/line61", b"0123456789", "line61")
    read = lambda **window: client.read_file(shared, "/tmp/line61", **window)
    whole = read()
    assert (whole.content, whole.size, whole.total_size) == ("0123456789", 10, 10)
    for window, content, offset, truncated in (
        ({"offset": -3}, "789", 7, True), ({"offset": -3, "length": 2}, "78", 7, True), ({"offset": -99, "length": 99}, "0123456789", 0, False),
        ({"offset": 2, "length": 3}, "234", 2, True), ({"offset": 10, "length": 5}, "", 10, True), ({"offset": 99}, "", None, True),
        ({"length": 4}, "0123", 0, False), ({"offset": 0, "length": 0}, "", 0, False),
    ):
        answer = read(**window)
        assert (answer.content, answer.size, answer.total_size, answer.truncated) == (content, len(content), 10, truncated), (window, answer)
        assert offset is None or answer.offset == offset, (window, answer)
    # A window that cuts a character, and bytes that are no text, are decoded with replacement.
    client.upload_bytes(shared, "/tmp/line61", "äöü".encode() + b"\xff", "line61")
    assert read(offset=1, length=4).content == "\ufffdö\ufffd" and read().content == "äöü\ufffd"


def test_line_61_a_whole_read_above_the_limit_is_413_and_a_window_of_10_mib_is_not(client: SandboxClient, shared: str):
    client.execute_command(shared, "head -c 33554432 /dev/zero | tr '\\0' x > /tmp/line61.large")
    with pytest.raises(SandboxFileTooLargeError):
        client.read_file(shared, "/tmp/line61.large")
    window = client.read_file(shared, "/tmp/line61.large", offset=-10 * MIB, length=10 * MIB)
    assert (window.size, window.total_size, window.offset, window.truncated) == (10 * MIB, 32 * MIB, 22 * MIB, True)
    assert len(window.content) == 10 * MIB
    client.execute_command(shared, "rm /tmp/line61.large")


async def test_line_62_upload_and_download(client: SandboxClient, async_client: AsyncSandboxClient, shared: str, tmp_path: Path):
    large = os.urandom(100 * MIB)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(large)
    path = "/tmp/line62/new/folders/large file.bin"
    answer = client.upload_file(shared, path, str(source))
    assert (answer.success, answer.path, answer.size) == (True, path, 100 * MIB)
    digest = client.execute_command(shared, f"sha256sum < '{path}'").stdout.split()[0]
    assert digest == hashlib.sha256(large).hexdigest()
    client.download_file(shared, path, str(back))
    assert hashlib.sha256(back.read_bytes()).hexdigest() == digest
    again = await async_client.upload_bytes(shared, path, b"\x00short\xff\r\n", "x")
    assert again.size == 9
    await async_client.download_file(shared, path, str(back))
    assert back.read_bytes() == b"\x00short\xff\r\n"
    client.execute_command(shared, "rm -r /tmp/line62")


def test_line_62_a_gz_stays_compressed_and_names_are_taken_as_they_are(client: SandboxClient, shared: str, tmp_path: Path):
    packed = gzip.compress(b"packed" * 1000, mtime=0)
    for name in ("a.gz", "a.tar.gz", "page.html", "50% & more?#+.json", "ümläut ☃.txt", "line\nbreak", "-n"):
        path, back = f"/tmp/line62b/{name}", tmp_path / "back"
        assert client.upload_bytes(shared, path, packed, name.replace("\n", "_")).path == path
        client.download_file(shared, path, str(back))
        assert back.read_bytes() == packed, name
    assert client.execute_command(shared, "ls /tmp/line62b | wc -l; rm -r /tmp/line62b").stdout.strip() == "8", "seven names, one with a line break"


def test_line_62_uploads_act_as_the_default_user(client: SandboxClient, create: Any, registry: Any):
    sandbox = create(image=registry.reference("user"))
    client.upload_bytes(sandbox.id, "/home/app/sub/file", b"x", "file")
    assert client.execute_command(sandbox.id, "stat -c %U:%G /home/app/sub /home/app/sub/file").stdout == "app:app\napp:app\n"
    with pytest.raises(APIError, match="(?i)permission"):
        client.upload_bytes(sandbox.id, "/etc/not-allowed", b"x", "not-allowed")
    assert client.execute_command(sandbox.id, "ls /etc/not-allowed", user="root").exit_code != 0
