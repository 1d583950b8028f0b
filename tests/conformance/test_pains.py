"""Faults that users of such systems report, each tried: exec and streams, timeouts and signals, files.

Lifecycle and its faults are in test_faults.py and test_behaviour.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import processes
import pytest
import waiting
import wire
from conftest import request
from prime_sandboxes import (
    APIClient, APIError, AsyncSandboxClient, CommandTimeoutError, SandboxClient, SandboxNotRunningError,
)
from server import Server
from test_gateway_exec import named
from wire import Gateway

MIB = 1 << 20


# Exec, output, streams


def test_output_is_not_cut_at_a_size_limit(client: SandboxClient, shared: str):
    """12 MiB of numbered lines, then exit 0: all bytes."""
    answer = client.execute_command(shared, "seq -f '%063.0f' 1 196608", timeout=120)
    assert answer.exit_code == 0 and len(answer.stdout) == 12 * MIB
    assert all(int(line) == number for number, line in enumerate(answer.stdout.splitlines(), 1))


def test_both_streams_carry_binary_intact(gateway: Gateway):
    frames = gateway.run("head -c 5M /dev/urandom > /tmp/both; tee /dev/stderr < /tmp/both; sha256sum < /tmp/both >&2")
    out, err = wire.output(frames), wire.output(frames, "stderr")
    digest, err = err[-68:][:64].decode(), err[:-68]
    assert hashlib.sha256(out).hexdigest() == hashlib.sha256(err).hexdigest() == digest and len(out) == 5 * MIB


def test_a_killed_machine_is_never_a_success(server: Server, create: Any, client: SandboxClient):
    """The VMM dies in the middle of a stream: an error of its own type, no exit code 0, no empty success."""
    for _ in range(3):
        sandbox = create()
        outcome: list[Any] = []

        def call() -> None:
            try:
                outcome.append(client.execute_command(sandbox.id, "echo begun; sleep 60; echo done"))
            except Exception as error:
                outcome.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        waiting.until(lambda: "sleep 60" in client.execute_command(sandbox.id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout, 20, "the command runs")
        processes.kill(server.vmm_of(sandbox.id))
        thread.join(20)
        assert not thread.is_alive(), "the client hangs after the death of the machine"
        assert isinstance(outcome[0], (SandboxNotRunningError, APIError)), outcome


def test_a_slow_and_a_gone_reader_cost_no_memory(server: Server, gateway: Gateway, shared: str, client: SandboxClient):
    """Three watchers of an endless stream: two vanish without a word, one stops reading."""
    session = wire.new_uuid()
    shim = server.shim_of(shared)
    connections = [stalled_stream(gateway, "Start", wire.start_request("yes", session_uuid=session, stdin=True))]
    connections += [stalled_stream(gateway, "Connect", wire.pb.ConnectRequest(session=wire.session(session))) for _ in range(2)]
    before = {pid: processes.rss_kib(pid) for pid in (server.pid, shim.pid)}
    for connection in connections[1:]:
        connection.close()
    grown = {}
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        assert client.execute_command(shared, "echo others work").stdout == "others work\n"
        grown = {pid: processes.rss_kib(pid) - rss for pid, rss in before.items()}
        assert all(kib < 32 << 10 for kib in grown.values()), grown
    listed = wire.pb.ListResponse.FromString(gateway.unary("List", wire.pb.ListRequest()).content)
    assert session in [s.session_uuid for s in listed.sessions], "the process goes on"
    gateway.unary("SendSignal", wire.pb.SendSignalRequest(session=wire.session(session), signal=9, signal_uuid=wire.new_uuid())).raise_for_status()
    connections[0].close()


def stalled_stream(gateway: Gateway, method: str, message: Any) -> socket.socket:
    """Opens a stream, reads its beginning, and reads no more."""
    url = httpx.URL(gateway.rpc(method))
    body = wire.envelope(message)
    headers = {**gateway.headers(wire.STREAM, 600_000), "host": f"{url.host}:{url.port}", "content-length": str(len(body))}
    connection = socket.create_connection((url.host, url.port), timeout=20)
    connection.sendall(f"POST {url.path} HTTP/1.1\r\n".encode() + "".join(f"{k}: {v}\r\n" for k, v in headers.items()).encode() + b"\r\n" + body)
    assert connection.recv(64).startswith(b"HTTP/1.1 200")
    return connection


def test_a_pty_has_the_same_output(gateway: Gateway):
    plain = wire.output(gateway.run("seq 1 200000"))
    request = wire.start_request("seq 1 200000")
    request.pty.size.cols, request.pty.size.rows = 80, 24
    with gateway.client() as http, gateway.stream(http, "Start", request) as answer:
        frames = list(wire.frames(answer.iter_raw()))
    data = (f.event.data for f in frames if not f.is_end and f.event.WhichOneof("event") == "data")
    assert b"".join(d.pty or d.stdout for d in data).replace(b"\r", b"") == plain and wire.exit_code(frames) == 0


def test_long_commands_and_environment(client: SandboxClient, create: Any, shared: str):
    text = "x" * 100_000
    # One argument of exec is 128 KiB at most in Linux: beyond that the answer is a clear error, never a cut command.
    assert client.execute_command(shared, f"echo -n {text} | wc -c").stdout.strip() == "100000"
    try:
        answer = client.execute_command(shared, f"echo -n {'x' * 900_000} | wc -c")
        assert answer.stdout.strip() == "900000"
    except APIError as error:
        assert "too long" in str(error).lower() or "too large" in str(error).lower(), error
    value = ('line "quoted" \'single\' $HOME `id` \\\n' * 3000)[:100_000]
    assert client.execute_command(shared, 'printf %s "$LONG" | sha256sum', env={"LONG": value}).stdout.split()[0] == hashlib.sha256(value.encode()).hexdigest()
    sandbox = create(environment_vars={"JSON": '{"a": ["b", {"c": "d e"}]}', "LONG": value})
    assert client.execute_command(sandbox.id, 'printf %s "$JSON"').stdout == '{"a": ["b", {"c": "d e"}]}'
    assert client.execute_command(sandbox.id, 'printf %s "$LONG" | wc -c').stdout.strip() == str(len(value))


@pytest.mark.parametrize("command", ["cat > /tmp/eof.py", "python3", "read x; echo $?", "head -c1; echo end", "bash"])
def test_commands_that_read_stdin_get_its_end_at_once(client: SandboxClient, shared: str, command: str):
    begun = time.monotonic()
    client.execute_command(shared, command, timeout=10)
    assert time.monotonic() - begun < 5


def test_heredocs_quotes_and_children(client: SandboxClient, shared: str):
    """Every call is a shell of its own and returns at once with its own exit code."""
    cases = {
        "cat <<'EOF'\nit's \"quoted\" $HOME\nEOF": (0, "it's \"quoted\" $HOME\n"), "sleep 100 & echo started": (0, "started\n"), "exit 3": (3, ""),
        "set -e; false; echo never": (1, ""), "(sleep 100 &) ; exit 5": (5, ""), "cd /usr; X=1": (0, ""), "echo $PWD${X:-}": (0, "/\n"),
    }
    for script, expected in cases.items():
        begun = time.monotonic()
        answer = client.execute_command(shared, script, timeout=30)
        assert (answer.exit_code, answer.stdout) == expected, script
        assert time.monotonic() - begun < 5, script
    unclosed = client.execute_command(shared, "echo 'unclosed")
    assert unclosed.exit_code != 0 and "unexpected EOF" in unclosed.stderr
    client.execute_command(shared, "pkill -f 'sleep 100'")


# Timeouts, signals, zombies, background jobs


@pytest.mark.parametrize("escape", [
    "bash -c 'exec -a {name} sleep 300' & wait", "setsid --wait bash -c 'exec -a {name} sleep 300'", "setsid bash -c 'exec -a {name} sleep 300' & wait",
    "(setsid bash -c 'exec -a {name} sleep 300' &) ; sleep 300", "trap '' TERM; nohup setsid --wait bash -c 'trap \"\" TERM HUP; exec -a {name} sleep 300'",
])
def test_a_timeout_kills_every_descendant(client: SandboxClient, shared: str, escape: str):
    name = f"escape{hashlib.sha256(escape.encode()).hexdigest()[:8]}"
    begun = time.monotonic()
    with pytest.raises(CommandTimeoutError):
        client.execute_command(shared, escape.format(name=name), timeout=2)
    assert time.monotonic() - begun < 3.5
    waiting.until(lambda: not named(client, shared, name), 3, "every descendant is dead")


def test_the_server_holds_the_deadline_too(gateway: Gateway, client: SandboxClient, shared: str):
    """A client that does not cut: at connect-timeout-ms the command is killed and the stream says deadline_exceeded."""
    begun = time.monotonic()
    with gateway.client() as http, gateway.stream(http, "Start", wire.start_request("exec -a deadline sleep 60"), timeout_ms=1000) as answer:
        frames = list(wire.frames(answer.iter_raw()))
    assert time.monotonic() - begun < 3
    assert frames[-1].end["error"]["code"] == "deadline_exceeded"
    waiting.until(lambda: not named(client, shared, "deadline"), 3, "the command is killed")


def test_what_was_left_in_the_background_outlives_the_deadline_of_its_exec(client: SandboxClient, shared: str):
    """An exec with a short deadline that ends in time: its background child lives on after that deadline."""
    pid = client.execute_command(shared, "sleep 300 & echo $!", timeout=2).stdout.strip()
    client.execute_command(shared, "sleep 3", timeout=20)
    assert client.execute_command(shared, f"kill {pid}").exit_code == 0


@pytest.mark.parametrize("header", ["0", "-1", "abc", "99999999999999999999", "2147483648", None])
def test_odd_deadlines_have_a_meaning(gateway: Gateway, header: str | None):
    """A deadline that is no number of Connect's grammar (1 to 10 digits) is refused; a missing or far one is none."""
    headers = gateway.headers(wire.STREAM)
    del headers["connect-timeout-ms"]
    if header is not None:
        headers["connect-timeout-ms"] = header
    with gateway.client(timeout=20) as http:
        answer = http.post(gateway.rpc("Start"), headers=headers, content=wire.envelope(wire.start_request("echo ran")))
    code = answer.json()["code"] if answer.status_code != 200 else None
    frames = list(wire.frames(iter([answer.content]))) if code is None else []
    if frames:
        code = frames[-1].end.get("error", {}).get("code")
    if header in ("2147483648", None):
        assert code is None and wire.exit_code(frames) == 0
    elif header == "0":
        assert code in ("deadline_exceeded", "invalid_argument")
    else:
        assert code == "invalid_argument", (header, answer.status_code, answer.content[:200])


def test_a_client_that_goes_away_does_not_kill_its_command(gateway: Gateway, client: SandboxClient, shared: str):
    connection = stalled_stream(gateway, "Start", wire.start_request("for i in 1 2 3; do echo line; sleep 0.5; done; echo finished > /tmp/orphan"))
    connection.close()
    waiting.until(lambda: client.execute_command(shared, "cat /tmp/orphan").stdout == "finished\n", 20, "the command ran to its end")


async def test_a_dropped_start_is_attached_to_and_not_run_again(gateway: Gateway, client: SandboxClient, shared: str):
    """The connection is cut 100 ms into a Start with a session id, five times; one process ran, and its end is told."""
    message = wire.start_request("echo line >> /tmp/once; sleep 2; exit 6", session_uuid=wire.new_uuid(), stdin=True)
    for _ in range(5):
        connection = await asyncio.to_thread(stalled_stream, gateway, "Start", message)
        await asyncio.sleep(0.1)
        connection.close()
    with gateway.client() as http, gateway.stream(http, "Start", message) as answer:
        assert wire.exit_code(list(wire.frames(answer.iter_raw()))) == 6
    assert client.execute_command(shared, "cat /tmp/once").stdout == "line\n"


def test_orphans_are_reaped(client: SandboxClient, shared: str):
    client.execute_command(shared, "for i in $(seq 200); do (sleep 0.01 &) ; done; sleep 1", timeout=60)
    zombies = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"
    waiting.until(lambda: client.execute_command(shared, zombies).stdout.strip() == "0", 5, "no zombie is left")


def test_a_guest_at_full_load_answers(client: SandboxClient, create: Any):
    sandbox = create()
    job = client.start_background_job(sandbox.id, "for i in 1 2 3 4; do (while :; do :; done) & done; wait")
    for _ in range(5):
        assert client.execute_command(sandbox.id, "echo here", timeout=20).stdout == "here\n"
    assert not client.get_background_job(sandbox.id, job).completed


def test_the_agent_stays_small(client: SandboxClient, shared: str):
    """Its own memory, after everything that the tests before did to it."""
    rss = client.execute_command(shared, "awk '/VmRSS/ {print $2}' /proc/1/status").stdout
    assert 0 < int(rss) < 8 << 10, f"{rss} KiB"


# Files


def test_what_was_uploaded_is_there_at_once(client: SandboxClient, shared: str):
    for size in (0, 1, 4095, 4096, 18_000, MIB, 64 * MIB):
        data = os.urandom(size)
        assert client.upload_bytes(shared, "/tmp/sizes", data, "sizes").size == size
        assert client.execute_command(shared, "sha256sum < /tmp/sizes", timeout=60).stdout.split()[0] == hashlib.sha256(data).hexdigest(), size


async def test_an_exec_reads_an_upload_every_time(async_client: AsyncSandboxClient, shared: str):
    async def once(number: int) -> None:
        text = f"{number}" * 100
        await async_client.upload_bytes(shared, f"/tmp/every/{number % 7}/{number}", text.encode(), "f")
        assert (await async_client.execute_command(shared, f"cat /tmp/every/{number % 7}/{number}")).stdout == text

    for first in range(0, 200, 20):
        await asyncio.gather(*(once(n) for n in range(first, first + 20)))


def test_an_upload_that_breaks_leaves_nothing(gateway: Gateway, client: SandboxClient, shared: str):
    """The connection dies in the middle of the body: the old file stays, and no part of the new one is anywhere."""
    client.upload_bytes(shared, "/tmp/broken/file", b"old", "file")
    url = httpx.URL(f"{gateway.base}/upload")
    head = b'--B\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    for target in ("file", "other"):
        connection = socket.create_connection((url.host, url.port), timeout=20)
        headers = f"POST {url.path}?path=/tmp/broken/{target} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {gateway.auth['token']}\r\ncontent-type: multipart/form-data; boundary=B\r\ncontent-length: 50000000\r\n\r\n"
        connection.sendall(headers.encode() + head + b"n" * 5_000_000)
        connection.close()
    waiting.until(lambda: client.execute_command(shared, "ls -A /tmp/broken").stdout.split() == ["file"], 10, "only the old file is there")
    assert client.read_file(shared, "/tmp/broken/file").content == "old"


def test_guest_links_are_not_resolved_on_the_host(client: SandboxClient, shared: str, tmp_path: Path):
    """Links that point out of anything a server could take for the sandbox's folder: they lead to the guest's own files."""
    client.execute_command(shared, "mkdir -p /root/links; ln -sfn /etc /root/links/out; ln -sfn ../../.. /root/links/up; echo of the guest > /etc/warren-links")
    assert client.read_file(shared, "/root/links/out/warren-links").content == "of the guest\n"
    client.upload_bytes(shared, "/root/links/up/etc/warren-links", b"changed", "x")
    assert client.read_file(shared, "/etc/warren-links").content == "changed" and not Path("/etc/warren-links").exists()


@pytest.mark.parametrize("odd", ["../../etc/passwd", "%2e%2e%2f%2e%2e", "a\x00b", "..", "s" * 5000, "shared/../x", "%00", "a/b/c", " "])
def test_odd_ids_and_references_are_refused(server: Server, odd: str):
    with server.http() as http:
        for verb, path in (("GET", ""), ("DELETE", ""), ("POST", "/auth"), ("GET", "/logs")):
            try:
                answer = http.request(verb, httpx.URL(server.url + "/api/v1/sandbox/").join("./" + odd.replace("\x00", "%00").replace(" ", "%20")).raw_path.decode() + path)
            except (httpx.InvalidURL, httpx.RemoteProtocolError):
                continue
            assert 400 <= answer.status_code < 500 or answer.url.path in ("/api/v1/sandbox", "/api/v1/sandbox/"), (odd, answer.status_code)
        created = http.post("/api/v1/sandbox", json={"name": "x", "docker_image": odd, "memory_gb": 0.25})
        if created.is_success:
            sandbox_id = created.json()["id"]
            waiting.until(lambda: http.get(f"/api/v1/sandbox/{sandbox_id}").json()["status"] == "ERROR", 30, "the reference is refused")
        else:
            assert created.status_code == 422, created.text


# Lifecycle


def test_a_delete_beats_a_late_create(server: Server, client: SandboxClient, glibc: str):
    """Deleted after 0 to 2,000 ms, in the midst of each step of the start: always done within seconds, never a process left."""
    made = []
    with server.http() as http:
        for delay in (0, 10, 30, 60, 100, 150, 200, 300, 400, 600, 800, 1000, 1500, 2000):
            body = request(glibc, labels=["races"]).model_dump(exclude_none=True) | {"vm": True}
            creating = threading.Thread(target=lambda: made.append(http.post("/api/v1/sandbox", json=body).json()["id"]))
            creating.start()
            begun = time.monotonic()
            found = waiting.until(lambda: [s["id"] for s in http.get("/api/v1/sandbox", params={"labels": "races", "is_active": "true"}).json()["sandboxes"]], 10, "the sandbox is listed")
            while (time.monotonic() - begun) * 1000 < delay:
                time.sleep(0.005)
            for sandbox_id in found:
                deleted = time.monotonic()
                client.delete(sandbox_id)
                assert time.monotonic() - deleted < 10
            creating.join(30)
            assert client.get(found[0]).status == "TERMINATED"
        assert len(made) == 14
    for sandbox_id in made:
        waiting.until(lambda: not server.processes_of(sandbox_id) and sandbox_id not in server.folders(), 15, f"nothing is left of {sandbox_id}")


def test_unclear_ends_have_a_type_each(server: Server, client: SandboxClient, create: Any):
    """A delete while a command streams: the command ends with the sandbox's end, not with a bare reset."""
    sandbox = create()
    outcome: list[Any] = []
    other = SandboxClient(APIClient())

    def call() -> None:
        try:
            outcome.append(other.execute_command(sandbox.id, "echo begun; sleep 60"))
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    waiting.until(lambda: "sleep 60" in client.execute_command(sandbox.id, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout, 20, "the command runs")
    client.delete(sandbox.id)
    thread.join(20)
    assert isinstance(outcome[0], SandboxNotRunningError), outcome
