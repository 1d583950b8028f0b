"""Lines 53 to 59, 63 to 67 and 69 of the checklist: commands, background jobs, live processes."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import pytest
import waiting
import wire
from clocks import KEEPALIVES, Clocks
from conftest import request
from cut_proxy import CutProxy
from prime_sandboxes import (
    APIClient, APIError, AsyncSandboxClient, CommandTimeoutError, SandboxClient,
)
from prime_sandboxes._proto.command_session import command_session_pb2 as pb
from registry import Registry
from server import Server
from wire import Gateway

JOB_SECS = 60


def finish(client: SandboxClient, sandbox_id: str, job: Any) -> Any:
    """Polls a background job as verifiers does, one exec a poll, until it is complete."""
    return waiting.until(lambda: (status := client.get_background_job(sandbox_id, job)).completed and status, JOB_SECS, "the job ends")


def named(client: SandboxClient, sandbox_id: str, name: str) -> int:
    """Processes in the guest of which one argument is exactly `name`."""
    look = f"cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -cx '[{name[0]}]{name[1:]}'"
    return int(client.execute_command(sandbox_id, look).stdout)


async def test_line_53_a_timeout_kills_the_command_and_the_next_exec_works(client: SandboxClient, async_client: AsyncSandboxClient, shared: str):
    for tag, call in (("sync", lambda c: asyncio.to_thread(client.execute_command, shared, c, timeout=1)), ("async", lambda c: async_client.execute_command(shared, c, timeout=1))):
        begun = time.monotonic()
        with pytest.raises(CommandTimeoutError):
            await call(f"exec -a line53-{tag} sleep 5")
        assert 0.9 <= time.monotonic() - begun < 3
        waiting.until(lambda: not named(client, shared, f"line53-{tag}"), 3, "the process is killed")
        assert client.execute_command(shared, "echo next").stdout == "next\n"


def test_line_54_a_background_child_does_not_hold_the_exec_open(client: SandboxClient, shared: str):
    begun = time.monotonic()
    answer = client.execute_command(shared, "sleep 1000 & echo $!")
    assert time.monotonic() - begun < 5
    # Deliberately left behind: it lives on, though the exec that started it is over.
    assert client.execute_command(shared, f"kill -0 {answer.stdout.strip()} && kill {answer.stdout.strip()}").exit_code == 0


def test_line_55_user_switches_ids_groups_and_home(client: SandboxClient, create: Any, registry: Registry):
    sandbox = create(image=registry.reference("user"))
    show = "echo $(id -u):$(id -g):$(id -G):$HOME:$USER:$LOGNAME:$PWD"
    assert client.execute_command(sandbox.id, show).stdout.strip() == "1000:1000:1000 1001:/home/app:app:app:/srv/app"
    assert client.execute_command(sandbox.id, show, user="root").stdout.strip() == "0:0:0:/root:root:root:/srv/app"
    assert client.execute_command(sandbox.id, "echo $HOME", user="app", env={"HOME": "/elsewhere"}).stdout.strip() == "/elsewhere"
    assert client.execute_command(sandbox.id, "id -un", user="nobody").stdout.strip() == "nobody"
    with pytest.raises(APIError, match="nosuchuser"):
        client.execute_command(sandbox.id, "true", user="nosuchuser")
    assert client.execute_command(sandbox.id, "grep -c nosuchuser /etc/passwd", user="root").stdout.strip() == "0"


def test_line_56_environment_secrets_and_working_directory(client: SandboxClient, create: Any, registry: Registry):
    value = 'two words "quoted" $HOME \'single\'\nand a line'
    sandbox = create(image=registry.reference("user"), environment_vars={"OF_SANDBOX": value, "APP_MODE": "overridden"}, secrets={"TOKEN": "hush"})
    show = 'printf "%s|" "$OF_SANDBOX" "$TOKEN" "$APP_MODE" "$FROM_IMAGE" "$OF_CALL" "$PWD"'
    answer = client.execute_command(sandbox.id, show, env={"OF_CALL": value})
    assert answer.stdout == f"{value}|hush|overridden|image|{value}|/srv/app|"
    per_call = client.execute_command(sandbox.id, 'echo $TOKEN; pwd', env={"TOKEN": "per call"}, working_dir="/usr")
    assert per_call.stdout == "per call\n/usr\n"
    # The environment of one call is not that of the next.
    assert client.execute_command(sandbox.id, "echo -n $OF_CALL$TOKEN").stdout == "hush"
    with pytest.raises(APIError, match="/no/such/dir"):
        client.execute_command(sandbox.id, "true", working_dir="/no/such/dir")


async def test_line_57_a_background_job_survives_its_launch(client: SandboxClient, async_client: AsyncSandboxClient, shared: str):
    job = client.start_background_job(shared, "echo out; echo err >&2; until [ -e /tmp/line57 ]; do sleep 0.1; done; exit 3", env={"A": "1"}, working_dir="/usr")
    assert not client.get_background_job(shared, job).completed
    assert not (await async_client.get_background_jobs([job]))[0].completed
    assert client.execute_command(shared, "touch /tmp/line57").exit_code == 0
    done = finish(client, shared, job)
    assert (done.exit_code, done.stdout, done.stderr) == (3, "out\n", "err\n")
    batch = (await async_client.get_background_jobs([job]))[0]
    assert (batch.completed, batch.exit_code, batch.stdout, batch.stderr) == (True, 3, "out\n", "err\n")
    whole = await async_client.run_background_job(shared, "pwd; exit 0", working_dir="/usr", timeout=30, poll_interval=1)
    assert (whole.exit_code, whole.stdout) == (0, "/usr\n")


def test_line_58_a_job_killed_with_9_is_lost_and_not_running_for_ever(client: SandboxClient, server: Server, shared: str):
    job = client.start_background_job(shared, "sleep 1000")
    assert client.execute_command(shared, f"kill -9 $(cat /tmp/job_{job.job_id}.launch/pid); pkill -9 -f 'sleep 1000' || true").exit_code == 0
    with pytest.raises(APIError, match="without recording an exit code"):
        waiting.until(lambda: client.get_background_job(shared, job).completed, 10, "the job is reported")
    with server.http() as http:
        asked = {"jobs": [{"sandbox_id": shared, "job_id": job.job_id}, {"sandbox_id": shared, "job_id": "0123abcd"}, {"sandbox_id": "snosuchsandbox1", "job_id": "0123abcd"}]}
        body = http.post("/api/v1/sandbox/background-jobs/status:batchGet", json=asked).raise_for_status().json()
    assert body["statuses"] == []
    assert [(e["job_id"], e["code"]) for e in body["errors"]] == [(job.job_id, "RUNTIME_ERROR"), ("0123abcd", "NOT_FOUND"), ("0123abcd", "NOT_FOUND")]


def test_line_59_a_repeated_launch_runs_the_command_once(client: SandboxClient, shared: str, monkeypatch: pytest.MonkeyPatch):
    """The client's own launch, repeated after its first answer is thrown away as a timeout."""
    launch, calls = client.execute_command, 0

    def lose_first_answer(sandbox_id: str, command: str, *rest: Any, **more: Any) -> Any:
        nonlocal calls
        answer = launch(sandbox_id, command, *rest, **more)
        calls += 1
        if calls == 1:
            raise CommandTimeoutError(sandbox_id, command, 30)
        return answer

    monkeypatch.setattr(client, "execute_command", lose_first_answer)
    job = client.start_background_job(shared, "echo ran >> /tmp/line59")
    assert calls == 2
    assert finish(client, shared, job).exit_code == 0
    assert launch(shared, "cat /tmp/line59").stdout == "ran\n"


async def test_line_63_a_live_process_takes_stdin_and_signals(async_client: AsyncSandboxClient, shared: str):
    process = await async_client.open_process(shared, "trap 'echo terminated; exit 9' TERM; echo ready; while read x; do echo got $x; done")
    try:
        lines = Lines(process.stdout)
        assert await lines.next() == "ready" and process.pid > 0
        for word in ("one", "two"):
            await process.write_stdin(f"{word}\n".encode())
            assert await lines.next() == f"got {word}"
        await process.terminate()
        assert await asyncio.wait_for(process.wait(), 10) == 9
        assert await lines.next() == "terminated"
    finally:
        await process.aclose()
    stubborn = await async_client.open_process(shared, "trap '' TERM; echo ready; while :; do sleep 0.1; done")
    try:
        assert await Lines(stubborn.stdout).next() == "ready"
        await stubborn.terminate()
        await stubborn.kill()
        assert await asyncio.wait_for(stubborn.wait(), 10) == 137
    finally:
        await stubborn.aclose()


class Lines:
    """Lines of a byte stream that arrives in any pieces."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._rest = stream, b""

    async def next(self, secs: float = 10) -> str:
        while b"\n" not in self._rest:
            self._rest += await asyncio.wait_for(anext(self._stream), secs)
        line, self._rest = self._rest.split(b"\n", 1)
        return line.decode()


def test_line_64_the_same_start_attaches_and_another_spec_is_refused(gateway: Gateway, client: SandboxClient, shared: str):
    session = wire.new_uuid()
    script = "echo $$ >> /tmp/line64; read x; exit 4"
    with gateway.client() as http:
        start = wire.start_request(script, session_uuid=session, stdin=True)
        with gateway.stream(http, "Start", start) as first, gateway.stream(http, "Start", start) as second:
            frames = wire.frames(first.iter_raw())
            pid = next(frames).event.start.pid
            again = wire.frames(second.iter_raw())
            assert next(again).event.start.pid == pid
            assert refusal(gateway, "Start", wire.start_request("true", session_uuid=session, stdin=True)) == "failed_precondition"
            gateway.unary("SendInput", pb.SendInputRequest(session=wire.session(session), input=pb.CommandInput(stdin=b"\n"), input_uuid=wire.new_uuid())).raise_for_status()
            assert wire.exit_code(list(again)) == 4
            assert wire.exit_code(list(frames)) == 4
    # After its end: the retained EndEvent, and no second process.
    for method, message in (("Start", start), ("Connect", pb.ConnectRequest(session=wire.session(session)))):
        with gateway.client() as http, gateway.stream(http, method, message) as late:
            kept = list(wire.frames(late.iter_raw()))
        assert kept[0].event.start.pid == pid and wire.exit_code(kept) == 4
    assert len(client.execute_command(shared, "cat /tmp/line64").stdout.split()) == 1
    assert refusal(gateway, "Connect", pb.ConnectRequest(session=wire.session(wire.new_uuid()))) == "not_found"
    assert refusal(gateway, "Start", wire.start_request("true", session_uuid=session.upper(), stdin=True)) == "invalid_argument"


def refusal(gateway: Gateway, method: str, message: Any) -> str:
    """The Connect code with which a stream is refused, by status or in its end frame."""
    with gateway.client() as http, gateway.stream(http, method, message) as answer:
        if answer.status_code != 200:
            answer.read()
            return answer.json()["code"]
        last = list(wire.frames(answer.iter_raw()))[-1]
        return last.end["error"]["code"]


async def test_line_65_a_cut_stream_is_attached_again_and_an_exit_in_the_gap_is_delivered(server: Server, async_client: AsyncSandboxClient, client: SandboxClient, shared: str):
    async with CutProxy("127.0.0.1", server.port) as proxy:
        auth = dict(await async_client._auth_cache.get_or_refresh(shared))
        auth["gateway_url"] = auth["gateway_url"].replace(f"127.0.0.1:{server.port}", proxy.address)
        await async_client._auth_cache.set(shared, auth)
        process = await async_client.open_process(shared, "echo ready; read x; echo got $x; read y; exit 6")
        lines = Lines(process.stdout)
        assert await lines.next() == "ready"
        proxy.cut()
        await process.write_stdin(b"one\n")
        # Output written while detached is not promised; that the process goes on is.
        proxy.cut()
        await process.write_stdin(b"two\n")
        assert await asyncio.wait_for(process.wait(), 30) == 6
        await process.aclose()

        gap = await async_client.open_process(shared, "echo ready; until [ -e /tmp/line65 ]; do sleep 0.1; done; exit 7")
        assert await Lines(gap.stdout).next() == "ready"
        proxy.cut(open=False)
        direct = SandboxClient(APIClient())
        direct._auth_cache.set(shared, {**auth, "gateway_url": auth["gateway_url"].replace(proxy.address, f"127.0.0.1:{server.port}")})
        await asyncio.to_thread(direct.execute_command, shared, f"touch /tmp/line65; until ! kill -0 {gap.pid} 2>/dev/null; do sleep 0.05; done", timeout=20)
        proxy.cut()
        assert await asyncio.wait_for(gap.wait(), 30) == 7
        await gap.aclose()


async def test_line_65_a_restarted_server_takes_live_processes_up_again(own_server: Server, registry: Registry):
    async with AsyncSandboxClient() as client:
        sandbox = await client.create(request(registry.reference("glibc")))
        await client.wait_for_creation(sandbox.id)
        process = await client.open_process(sandbox.id, "echo ready; read x; exit 8")
        assert await Lines(process.stdout).next() == "ready"
        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(own_server.start)
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(APIError):
                await process.write_stdin(b"x\n")
                break
            assert time.monotonic() < deadline, "stdin is not taken after the restart"
        assert await asyncio.wait_for(process.wait(), 30) == 8
        await process.aclose()


def test_line_66_repeated_ids_are_acknowledged_and_applied_once(gateway: Gateway, client: SandboxClient, shared: str):
    session = wire.new_uuid()
    # The shell gives a background child /dev/null as stdin unless it is passed by another number.
    script = "trap 'echo term >> /tmp/line66.signals' TERM; exec 3<&0; (trap '' TERM; exec cat <&3 >/tmp/line66.input) & while :; do wait; done"
    with gateway.client() as http, gateway.stream(http, "Start", wire.start_request(script, session_uuid=session, stdin=True)) as answer:
        frames = wire.frames(answer.iter_raw())
        assert next(frames).event.WhichOneof("event") == "start"
        write = pb.SendInputRequest(session=wire.session(session), input=pb.CommandInput(stdin=b"once\n"), input_uuid=wire.new_uuid())
        for _ in range(3):
            gateway.unary("SendInput", write).raise_for_status()
        other = pb.SendInputRequest(session=wire.session(session), input=pb.CommandInput(stdin=b"twice\n"), input_uuid=wire.new_uuid())
        gateway.unary("SendInput", other).raise_for_status()
        gateway.unary("SendInput", write).raise_for_status()
        read = lambda name: client.execute_command(shared, f"cat /tmp/line66.{name} 2>/dev/null").stdout
        waiting.until(lambda: "twice" in read("input"), 10, "both writes arrived")
        assert read("input") == "once\ntwice\n"
        term = pb.SendSignalRequest(session=wire.session(session), signal=15, signal_uuid=wire.new_uuid())
        kill = pb.SendSignalRequest(session=wire.session(session), signal=9, signal_uuid=wire.new_uuid())
        gateway.unary("SendSignal", term).raise_for_status()
        waiting.until(lambda: read("signals"), 10, "the signal arrived")
        for _ in range(2):
            gateway.unary("SendSignal", term).raise_for_status()
        assert read("signals") == "term\n"
        gateway.unary("SendSignal", kill).raise_for_status()
        list(frames)
    # A signal to a process that is over is no fault.
    gateway.unary("SendSignal", kill).raise_for_status()


@pytest.mark.last
def test_line_66_ids_are_remembered_for_92_seconds(gateway: Gateway, clocks: Clocks):
    """A write that `clocks` sent when the session began, repeated now."""
    first = clocks.first_write
    assert first and time.monotonic() - first.at >= 92, "the clocks have not run for 92 s yet"
    clocks.quiet_gateway.unary("SendInput", first.request).raise_for_status()
    assert clocks.read_echo() == "written once\n"


@pytest.mark.last
def test_line_67_an_idle_live_process_stays_connected(clocks: Clocks):
    """An hour is not tried; what keeps a stream alive for an hour is: an event at least every 30 s, and a process that still answers."""
    seen = clocks.keepalives.result(90)
    assert len(seen) == KEEPALIVES and seen[0] <= 31 and seen[1] - seen[0] <= 31, seen
    gateway, session = clocks.quiet_gateway, wire.session(clocks.quiet_session)
    with gateway.client() as http, gateway.stream(http, "Connect", pb.ConnectRequest(session=session)) as answer:
        frames = wire.frames(answer.iter_raw())
        assert next(frames).event.WhichOneof("event") == "start"
        gateway.unary("SendInput", pb.SendInputRequest(session=session, input=pb.CommandInput(stdin=b"an answer\n"), input_uuid=wire.new_uuid())).raise_for_status()
        rest = list(frames)
    assert wire.output(rest) == b"got an answer\n" and wire.exit_code(rest) == 5


async def test_line_69_500_parallel_execs_on_one_gateway(async_client: AsyncSandboxClient, shared: str):
    async with asyncio.timeout(300):
        answers = await asyncio.gather(*(async_client.execute_command(shared, f"echo {n}", timeout=280) for n in range(500)))
    assert [a.stdout for a in answers] == [f"{n}\n" for n in range(500)]
    assert {a.exit_code for a in answers} == {0}
