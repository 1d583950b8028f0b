"""The `prime` CLI from PyPI, and our own `warren`, as a user types them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import waiting
from commands import created_id, prime, warren
from prime_sandboxes import SandboxClient
from server import Server

SIZE = ("--memory-gb", "0.25", "--disk-size-gb", "1")


@pytest.fixture(scope="module")
def of_prime(server: Server, glibc: str) -> Iterator[str]:
    sandbox_id = created_id(prime("sandbox", "create", glibc, "-y", *SIZE, "--name", "of-prime", "--label", "cli", "--env", "A=from create", "--secret", "S=hush"))
    yield sandbox_id
    prime("sandbox", "delete", sandbox_id, "-y")


@pytest.fixture(scope="module")
def of_warren(server: Server, glibc: str) -> Iterator[str]:
    made = json.loads(warren("sandbox", "create", glibc, *SIZE, "--name", "of-warren", "--label", "cli", "--env", "A=from create", "--output", "json").ok().stdout)
    yield made["id"]
    warren("sandbox", "delete", made["id"], "--yes")


def test_prime_run(of_prime: str):
    waiting.until(lambda: prime("sandbox", "run", of_prime, "true").code == 0, 60, "the sandbox takes commands")
    assert "hello" in prime("sandbox", "run", of_prime, "--", "python3", "-c", "print('hello')").ok().stdout
    assert "from create hush" in prime("sandbox", "run", of_prime, "--", "bash", "-c", "echo $A $S").ok().stdout
    failed = prime("sandbox", "run", of_prime, "--", "bash", "-c", "echo on stderr >&2; exit 42")
    assert failed.code == 42 and "on stderr" in failed.stdout
    placed = prime("sandbox", "run", of_prime, "-w", "/usr", "-e", "B=x y", "-u", "nobody", "--", "bash", "-c", "echo $(id -un) $PWD $B").ok()
    assert "nobody /usr x y" in placed.stdout
    assert "Command Timeout" in prime("sandbox", "run", of_prime, "--timeout", "1", "sleep 30").text


def test_prime_upload_and_download(of_prime: str, tmp_path: Path):
    data = os.urandom(1 << 20)
    (tmp_path / "in.bin").write_bytes(data)
    assert "1,048,576 bytes" in prime("sandbox", "upload", of_prime, str(tmp_path / "in.bin"), "/data/dir/").ok().stdout
    prime("sandbox", "download", of_prime, "/data/dir/in.bin", str(tmp_path / "out.bin")).ok()
    assert (tmp_path / "out.bin").read_bytes() == data
    missing = prime("sandbox", "download", of_prime, "/no/such/file", str(tmp_path / "none"))
    assert missing.code == 1 and "404" in missing.text and not (tmp_path / "none").exists()


def test_prime_list_get_and_logs(of_prime: str):
    shown = prime("sandbox", "get", of_prime).ok().stdout
    assert "RUNNING" in shown and "of-prime" in shown and "hush" not in shown
    detail = json.loads(prime("sandbox", "get", of_prime, "-o", "json").ok().stdout)
    assert (detail["id"], detail["status"], detail["labels"], detail["memory_gb"]) == (of_prime, "RUNNING", ["cli"], 0.25)
    assert of_prime in prime("sandbox", "list").ok().stdout
    prime("sandbox", "logs", of_prime).ok()


def test_prime_delete(server: Server, glibc: str, client: SandboxClient):
    ids = [created_id(prime("sandbox", "create", glibc, "-y", *SIZE, "--label", "cli-delete")) for _ in range(4)]
    assert "Successfully deleted" in prime("sandbox", "delete", ids[0], "-y").ok().stdout
    assert ids[1] in prime("sandbox", "delete", f"{ids[1]},{ids[2]}", "-y").ok().stdout
    prime("whoami").ok()
    assert ids[3] in prime("sandbox", "delete", "--label", "cli-delete", "-y").ok().stdout
    assert "No sandboxes to delete" in prime("sandbox", "delete", "--label", "cli-delete", "-y").ok().stdout
    assert {client.get(i).status for i in ids} == {"TERMINATED"}


def test_prime_create_with_a_command(server: Server, glibc: str, client: SandboxClient):
    sandbox_id = created_id(prime("sandbox", "create", *SIZE, "-y", glibc, "--", "/bin/bash", "-c", "echo started; exec sleep inf"))
    try:
        waiting.until(lambda: "started" in prime("sandbox", "logs", sandbox_id).stdout, 30, "the start command ran")
    finally:
        client.delete(sandbox_id)


def test_warren_run_passes_streams_and_exit_codes_through(of_warren: str):
    done = warren("sandbox", "run", of_warren, "--", "bash", "-c", "echo out; echo err >&2; exit 42")
    assert (done.code, done.stdout, done.stderr) == (42, "out\n", "err\n")
    assert warren("sandbox", "run", of_warren, "--", "bash", "-c", "kill -9 $$").code == 137
    assert warren("sandbox", "run", of_warren, "--", "no-such-command").code == 127
    assert warren("sandbox", "run", of_warren, "--timeout", "1", "--", "sleep", "30").code == 124
    assert warren("sandbox", "run", of_warren, "-e", "B=1 2", "-w", "/usr", "-u", "nobody", "--", "bash", "-c", "echo $A,$B,$PWD,$(id -un)").ok().stdout == "from create,1 2,/usr,nobody\n"
    assert warren("sandbox", "run", "-i", of_warren, "--", "sha256sum", stdin=b"abc").ok().stdout.startswith("ba7816bf")
    assert warren("sandbox", "run", of_warren, "--", "cat").ok().stdout == ""
    unknown = warren("sandbox", "run", "snosuchsandbox1", "--", "true")
    assert unknown.code == 125 and "snosuchsandbox1" in unknown.stderr


def test_warren_upload_and_download(of_warren: str, tmp_path: Path):
    data = os.urandom(3 << 20)
    (tmp_path / "in").write_bytes(data)
    warren("sandbox", "upload", of_warren, str(tmp_path / "in"), "/deep/er/in").ok()
    warren("sandbox", "download", of_warren, "/deep/er/in", str(tmp_path / "out")).ok()
    assert (tmp_path / "out").read_bytes() == data
    missing = warren("sandbox", "download", of_warren, "/no/such/file", str(tmp_path / "none"))
    assert missing.code == 1 and "/no/such/file" in missing.stderr and not (tmp_path / "none").exists()


def test_warren_json_answers(of_warren: str, server: Server):
    detail = json.loads(warren("sandbox", "get", of_warren, "--output", "json").ok().stdout)
    assert (detail["id"], detail["name"], detail["status"]) == (of_warren, "of-warren", "RUNNING")
    listed = json.loads(warren("sandbox", "list", "--label", "cli", "-o", "json").ok().stdout)
    assert of_warren in [s["id"] for s in listed["sandboxes"]]
    images = json.loads(warren("images", "list", "-o", "json").ok().stdout)
    assert any("glibc" in image["reference"] for image in images["images"])
    assert json.loads(warren("sandbox", "delete", "snosuchsandbox1", "--yes", "-o", "json").stdout or "{}") is not None


def test_warren_errors_say_what_to_do(server: Server, tmp_path: Path):
    for words, env, texts in (
        (("sandbox", "get", "snosuchsandbox1"), {}, ("snosuchsandbox1",)),
        (("sandbox", "list"), {"PRIME_API_KEY": "wrong"}, ("hint:",)),
        (("sandbox", "list"), {"PRIME_API_BASE_URL": "http://127.0.0.1:1"}, ("127.0.0.1:1", "hint:")),
        (("images", "import", "/no/such/path", "--name", "x:v1"), {}, ("/no/such/path",)),
    ):
        failed = warren(*words, env=env)
        assert failed.code == 1 and failed.stderr.startswith("error:") and all(text in failed.stderr for text in texts), failed
    assert warren("sandbox", "create").code == 2


def test_warren_doctor_and_completions(server: Server):
    doctor = warren("doctor", "--data-dir", str(server.data_dir))
    assert "kvm" in doctor.text.lower() and "qemu" in doctor.text.lower()
    assert "warren" in warren("completions", "bash").ok().stdout


def test_the_api_key_file_and_the_description(server: Server):
    assert (server.data_dir / "api-key").stat().st_mode & 0o777 == 0o600
    assert (server.data_dir / "node.key").stat().st_mode & 0o777 == 0o600
    with server.http() as http:
        description = http.get("/openapi.json").raise_for_status().json()
    assert description["openapi"].startswith("3.") and "/api/v1/sandbox" in description["paths"]


def test_no_secret_is_on_disk_or_in_a_log(server: Server, of_prime: Any):
    """The canary of `of_prime` is in the guest's memory alone."""
    for path in (*server.data_dir.rglob("*"), server.log):
        if path.is_file() and path.stat().st_size < 64 << 20:
            assert b"S=hush" not in path.read_bytes() and b'"hush"' not in path.read_bytes(), path
