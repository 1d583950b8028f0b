"""Line 83 of the checklist: verifiers drives its prime runtime, twenty rollouts at once."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from registry import Registry
from server import Server

ROLLOUTS = 20
ROLLOUT_SECS = 300


async def test_line_83_twenty_rollouts_of_verifiers_at_once(server: Server, registry: Registry):
    from verifiers.v1.runtimes import PrimeConfig, make_runtime

    config = PrimeConfig(image=registry.reference("glibc"), cpu=1, memory=0.25, disk=1, labels=["rollout"])

    async def rollout(number: int) -> None:
        runtime: Any = make_runtime(config, f"vf-{number:012x}")
        runtime.env = {"ROLLOUT": str(number)}
        try:
            await runtime.start()
            data = os.urandom(100_000) + str(number).encode()
            await runtime.write("sub/data.bin", data)
            assert await runtime.read("sub/data.bin") == await runtime.read("/app/sub/data.bin", max_bytes=len(data)) == data
            result = await runtime.run(["sh", "-c", "echo out $ROLLOUT; pwd; echo err $EXTRA >&2; exit 3"], {"EXTRA": "more"})
            assert (result.exit_code, result.stdout, result.stderr) == (3, f"out {number}\n/app\n", "err more\n")
            await runtime.prepare_execution(None)
            process = await runtime.open_process(["sh", "-c", "read line; echo got $line"], {})
            await process.write(f"{number}\n".encode())
            assert await process.wait() == 0
            assert b"".join([chunk async for chunk in process.stdout]) == f"got {number}\n".encode()
            other = runtime.with_user("nobody", "/tmp")
            await other.write("/tmp/of-nobody", b"theirs")
            assert (await other.run(["sh", "-c", "id -un; cat /tmp/of-nobody"], {})).stdout == "nobody\ntheirs"
            await runtime.run_background(["sh", "-c", "echo in the background"], {}, "/tmp/background.log")
            assert await runtime.alive()
        finally:
            await runtime.stop()

    async with asyncio.timeout(ROLLOUT_SECS):
        await asyncio.gather(*(rollout(n) for n in range(ROLLOUTS)))
    with server.http() as http:
        assert http.get("/api/v1/sandbox", params={"labels": "rollout", "is_active": "true"}).json()["total"] == 0
        assert http.get("/api/v1/sandbox", params={"labels": "rollout", "is_active": "false"}).json()["total"] == ROLLOUTS


async def test_line_83_restricted_egress_is_applied_before_the_agent_starts(server: Server, registry: Registry):
    from verifiers.v1.runtimes import PrimeConfig, provision_runtime

    config = PrimeConfig(image=registry.reference("glibc"), cpu=1, memory=0.25, disk=1, allow=[])
    async with asyncio.timeout(ROLLOUT_SECS), provision_runtime(config) as runtime:
        await runtime.prepare_execution([])
        with server.http() as http:
            status = http.get(f"/api/v1/sandbox/{runtime.info.id}/egress-policy").raise_for_status().json()
        assert status["applied"] and status["policy"] == {"allowlist": [], "denylist": None}
        assert (await runtime.run(["true"], {})).exit_code == 0
