"""Lines 41 to 52 and 68 of the checklist: the data plane on the wire, and who may use it."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import time
from typing import Any

import crowd
import httpx
import pytest
import waiting
import wire
from conftest import SMALL, request
from prime_sandboxes import (
    APIClient, AsyncSandboxClient, SandboxClient, SandboxNotRunningError,
)
from prime_sandboxes._proto.command_session import command_session_pb2 as pb
from registry import Registry
from server import Server
from wire import Gateway


async def test_line_41_exec_on_http_with_http_1_1_and_a_chunked_body(client: SandboxClient, async_client: AsyncSandboxClient, gateway: Gateway, shared: str):
    assert gateway.base.startswith("http://")
    assert client.execute_command(shared, "echo sync").stdout == "sync\n"
    assert (await async_client.execute_command(shared, "echo async")).stdout == "async\n"
    with gateway.client() as http, gateway.stream(http, "Start", wire.start_request("echo raw")) as answer:
        assert answer.http_version == "HTTP/1.1" and answer.request.headers["transfer-encoding"] == "chunked"
        assert wire.output(list(wire.frames(answer.iter_raw()))) == b"raw\n"


async def test_line_42_https_offers_h2_and_http_1_1_and_a_hundred_streams(tls_server: Server, registry: Registry, monkeypatch: pytest.MonkeyPatch):
    for offered, expected in ((["h2", "http/1.1"], "h2"), (["http/1.1"], "http/1.1"), (["h2"], "h2")):
        context = ssl.create_default_context(cafile=str(tls_server.tls.authority))
        context.set_alpn_protocols(offered)
        with socket.create_connection(("127.0.0.1", tls_server.port)) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            assert secure.selected_alpn_protocol() == expected
    monkeypatch.setenv("PRIME_API_BASE_URL", tls_server.url)
    monkeypatch.setenv("PRIME_API_KEY", tls_server.api_key)
    sync_client = await asyncio.to_thread(lambda: SandboxClient(APIClient()))
    async with AsyncSandboxClient() as client:
        sandbox = await client.create(request(registry.reference("glibc")))
        try:
            await client.wait_for_creation(sandbox.id)
            assert (await client._auth_cache.get_or_refresh(sandbox.id))["gateway_url"].startswith("https://")
            # The client packs 90 streams on one connection: so many must run at the same time.
            crowd.assert_met(await crowd.meet(client, sandbox.id, 90, secs=120))
            # A connection takes as many calls as come: each ends with frames that a server might count against it.
            for _ in range(10):
                answers = await asyncio.gather(*(client.execute_command(sandbox.id, "echo again") for _ in range(30)))
                assert {a.stdout for a in answers} == {"again\n"}
            assert (await asyncio.to_thread(sync_client.execute_command, sandbox.id, "echo sync")).stdout == "sync\n"
            process = await client.open_process(sandbox.id, "read x; echo got $x")
            await process.write_stdin(b"it\n")
            assert await process.wait() == 0 and b"".join([c async for c in process.stdout]) == b"got it\n"
            await process.aclose()
            await client.upload_bytes(sandbox.id, "/tmp/up", b"\x00over tls", "up")
            assert (await client.read_file(sandbox.id, "/tmp/up")).content == "\x00over tls"
        finally:
            await client.delete(sandbox.id)
    assert h2_max_streams(tls_server) >= 100


def h2_max_streams(server: Server) -> int:
    """The value of SETTINGS_MAX_CONCURRENT_STREAMS in the server's first frame; absent means no limit."""
    context = ssl.create_default_context(cafile=str(server.tls.authority))
    context.set_alpn_protocols(["h2"])
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as plain, context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
        head = read_exactly(secure, 9)
        length, kind = int.from_bytes(head[:3], "big"), head[3]
        assert kind == 4, "the first frame is SETTINGS"
        body = read_exactly(secure, length)
    settings = {int.from_bytes(body[i : i + 2], "big"): int.from_bytes(body[i + 2 : i + 6], "big") for i in range(0, length, 6)}
    return settings.get(3, 1 << 31)


def read_exactly(connection: ssl.SSLSocket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        chunk = connection.recv(length - len(data))
        assert chunk, "the server closed the connection"
        data += chunk
    return data


def test_line_43_content_type_is_exact_and_the_end_frame_is_an_object(gateway: Gateway):
    with gateway.client() as http, gateway.stream(http, "Start", wire.start_request("true")) as answer:
        assert answer.headers["content-type"] == "application/connect+proto"
        frames = list(wire.frames(answer.iter_raw()))
    assert frames[-1].flags == 2 and frames[-1].body == b"{}"
    assert [f.is_end for f in frames] == [False] * (len(frames) - 1) + [True]


def test_line_44_the_body_ends_cleanly_after_the_end_frame(gateway: Gateway):
    """Read from the bare socket: the last chunk comes at once, and the connection takes the next request."""
    url = httpx.URL(gateway.rpc("Start"))
    body = wire.envelope(wire.start_request("echo one"))
    headers = {**gateway.headers(wire.STREAM), "host": f"{url.host}:{url.port}", "content-length": str(len(body))}
    text = f"POST {url.path} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in headers.items()) + "\r\n"
    with socket.create_connection((url.host, url.port), timeout=20) as connection:
        for _ in range(2):
            connection.sendall(text.encode() + body)
            answer = b""
            while not answer.endswith(b"0\r\n\r\n"):
                chunk = connection.recv(65536)
                assert chunk, f"closed before the last chunk: {answer[-200:]!r}"
                answer += chunk
            assert b"transfer-encoding: chunked" in answer.lower() and b"\x02\x00\x00\x00\x02{}" in answer


def test_line_45_start_first_end_always_streams_apart_and_codes_exact(gateway: Gateway, client: SandboxClient, shared: str):
    frames = gateway.run("echo out; echo err >&2; exit 3")
    kinds = [f.event.WhichOneof("event") for f in frames if not f.is_end]
    assert kinds[0] == "start" and kinds[-1] == "end" and kinds.count("end") == 1
    assert frames[0].event.start.pid > 0
    assert (wire.output(frames), wire.output(frames, "stderr"), wire.exit_code(frames)) == (b"out\n", b"err\n", 3)
    silent = gateway.run("exit 0")
    assert [f.event.WhichOneof("event") for f in silent if not f.is_end] == ["start", "end"]
    for code in (0, 1, 2, 42, 126, 127, 128, 200, 254, 255):
        assert client.execute_command(shared, f"exit {code}").exit_code == code
    assert client.execute_command(shared, "kill -9 $$").exit_code == 137
    assert client.execute_command(shared, "kill -TERM $$").exit_code == 143
    assert client.execute_command(shared, "no-such-command").exit_code == 127


async def test_line_46_events_are_flushed_as_they_come(async_client: AsyncSandboxClient, shared: str):
    process = await async_client.open_process(shared, "echo first; read x; echo last")
    try:
        first = await asyncio.wait_for(anext(process.stdout), 10)
        assert first == b"first\n" and process.returncode is None
        await process.write_stdin(b"\n")
        assert await asyncio.wait_for(process.wait(), 10) == 0
        assert b"".join([chunk async for chunk in process.stdout]) == b"last\n"
    finally:
        await process.aclose()


def test_line_47_no_compression_layer_touches_the_answers(gateway: Gateway):
    with gateway.client() as http:
        with gateway.stream(http, "Start", wire.start_request("head -c 100000 /dev/zero")) as answer:
            assert "content-encoding" not in answer.headers
            list(wire.frames(answer.iter_raw()))
    gateway.file("POST", "upload", params={"path": "/tmp/zeros"}, files={"file": ("zeros", bytes(100_000))}).raise_for_status()
    for operation in ("download", "read-file"):
        answer = gateway.file("GET", operation, params={"path": "/tmp/zeros"})
        assert answer.status_code == 200 and "content-encoding" not in answer.headers


def test_line_48_unary_calls_with_identity_work(gateway: Gateway):
    session = wire.new_uuid()
    with gateway.client() as http, gateway.stream(http, "Start", wire.start_request("cat", session_uuid=session, stdin=True)) as answer:
        frames = wire.frames(answer.iter_raw())
        assert next(frames).event.WhichOneof("event") == "start"
        sent = gateway.unary("SendInput", pb.SendInputRequest(session=wire.session(session), input=pb.CommandInput(stdin=b"x\n"), input_uuid=wire.new_uuid()))
        assert sent.status_code == 200 and sent.headers["content-type"].split(";")[0] == "application/proto", sent.text
        assert pb.SendInputResponse.FromString(sent.content) == pb.SendInputResponse()
        listed = gateway.unary("List", pb.ListRequest())
        assert session in [s.session_uuid for s in pb.ListResponse.FromString(listed.content).sessions]
        killed = gateway.unary("SendSignal", pb.SendSignalRequest(session=wire.session(session), signal=9, signal_uuid=wire.new_uuid()))
        assert killed.status_code == 200
        assert wire.exit_code(list(frames)) == 137
    unknown = gateway.unary("SendInput", pb.SendInputRequest(session=wire.session(wire.new_uuid()), input=pb.CommandInput(stdin=b"x"), input_uuid=wire.new_uuid()))
    assert unknown.status_code == 404 and unknown.headers["content-type"].startswith("application/json") and unknown.json()["code"] == "not_found"


async def test_line_49_a_bad_token_is_401_and_the_client_authenticates_once(gateway: Gateway, client: SandboxClient, async_client: AsyncSandboxClient, shared: str, server: Server):
    good = gateway.auth["token"]
    for bad in ("nonsense", good[:-3] + "AAA", "x" * 10_000):
        wrong = Gateway({**gateway.auth, "token": bad})
        assert wrong.file("GET", "read-file", params={"path": "/etc/hostname"}).status_code == 401
        with wrong.client() as http, wrong.stream(http, "Start", wire.start_request("true")) as answer:
            assert answer.status_code == 401 and answer.read() is not None
            assert answer.json()["code"] == "unauthenticated"
    spoiled = {**gateway.auth, "token": "nonsense"}
    client._auth_cache.set(shared, spoiled)
    assert client.execute_command(shared, "echo again").stdout == "again\n"
    assert client._auth_cache.get_or_refresh(shared)["token"] != "nonsense"
    for use in (lambda c: c.read_file(shared, "/etc/hostname"), lambda c: c.upload_bytes(shared, "/tmp/line49", b"x", "f"), lambda c: c.execute_command(shared, "true")):
        await async_client._auth_cache.set(shared, dict(spoiled))
        await use(async_client)
    # The token of one sandbox opens no other.
    with server.http() as http:
        made = http.post("/api/v1/sandbox", json={"name": "other", "docker_image": "127.0.0.1:1/none:v1", **SMALL}).json()
        foreign = http.post(f"/api/v1/sandbox/{made['id']}/auth").json()
    assert Gateway({**gateway.auth, "token": foreign["token"]}).file("GET", "read-file", params={"path": "/etc/hostname"}).status_code == 401


def test_line_50_after_a_restart_with_new_keys_old_tokens_get_401(own_server: Server, registry: Registry):
    client = SandboxClient(APIClient())
    sandbox = client.create(request(registry.reference("glibc")))
    client.wait_for_creation(sandbox.id)
    old = Gateway(client._auth_cache.get_or_refresh(sandbox.id))
    own_server.kill()
    (own_server.data_dir / "node.key").unlink()
    own_server.start()
    assert old.file("GET", "read-file", params={"path": "/etc/hostname"}).status_code == 401
    with old.client() as http, old.stream(http, "Start", wire.start_request("true")) as answer:
        assert answer.status_code == 401
    # The client's cache still holds the old token; it recovers by itself.
    waiting.until(lambda: client.get(sandbox.id).status == "RUNNING", 20, "the sandbox is adopted")
    assert client.execute_command(sandbox.id, "echo recovered").stdout == "recovered\n"
    assert client._auth_cache.get_or_refresh(sandbox.id)["token"] != old.auth["token"]


async def test_line_51_a_deleted_sandbox_is_not_found_for_exec_and_410_for_files(client: SandboxClient, async_client: AsyncSandboxClient, create: Any):
    sandbox = create()
    gateway = Gateway(client._auth_cache.get_or_refresh(sandbox.id))
    client.delete(sandbox.id)
    with gateway.client() as http, gateway.stream(http, "Start", wire.start_request("true")) as answer:
        answer.read()
        code = answer.json()["code"] if answer.status_code != 200 else next(wire.frames(iter([answer.content]))).end["error"]["code"]
    assert code == "not_found"
    for verb, operation, options in (("GET", "download", {}), ("GET", "read-file", {}), ("POST", "upload", {"files": {"file": ("f", b"x")}})):
        gone = gateway.file(verb, operation, params={"path": "/tmp/x"}, **options)
        assert gone.status_code == 410 and gone.json()["error"] == "sandbox_terminated", (operation, gone.status_code, gone.text)
    with pytest.raises(SandboxNotRunningError):
        client.execute_command(sandbox.id, "true")
    with pytest.raises(SandboxNotRunningError):
        client.read_file(sandbox.id, "/etc/hostname")
    with pytest.raises(SandboxNotRunningError):
        await async_client.execute_command(sandbox.id, "true")
    with pytest.raises(SandboxNotRunningError):
        await async_client.upload_bytes(sandbox.id, "/tmp/x", b"x", "x")


def test_line_52_a_guest_that_is_not_ready_is_unavailable_or_not_found(client: SandboxClient, server: Server, glibc: str):
    """Calls from the moment that the id is known: an answer other than the two is fatal to wait_for_creation."""
    seen: set[tuple[int, str]] = set()
    for _ in range(5):
        sandbox = client.create(request(glibc))
        gateway = Gateway(client._auth_cache.get_or_refresh(sandbox.id))
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                with gateway.client() as http, gateway.stream(http, "Start", wire.start_request("true")) as answer:
                    answer.read()
                    if answer.status_code == 200:
                        break
                    seen.add((answer.status_code, answer.json()["code"]))
            else:
                pytest.fail(f"the guest was never ready: {seen}")
            client.wait_for_creation(sandbox.id)
        finally:
            client.delete(sandbox.id)
    assert {code for _, code in seen} <= {"unavailable", "not_found"}, seen
    assert {status for status, _ in seen} <= {404, 503}, seen


def test_line_68_gateway_url_has_no_slash_and_expires_at_is_text_well_ahead(server: Server, client: SandboxClient, create: Any):
    sandbox = create()
    auths = [client._auth_cache.get_or_refresh(sandbox.id)]
    with server.http() as http:
        auths.append(http.post(f"/api/v1/sandbox/{sandbox.id}/auth").json())
    for auth in auths:
        assert not auth["gateway_url"].endswith("/") and auth["gateway_url"].startswith(server.url)
        assert all(isinstance(auth[key], str) and auth[key] for key in ("gateway_url", "user_ns", "job_id", "token", "expires_at"))
        expiry = datetime.datetime.fromisoformat(auth["expires_at"])
        ahead = expiry - datetime.datetime.now(datetime.timezone.utc)
        assert ahead > datetime.timedelta(minutes=5), ahead
