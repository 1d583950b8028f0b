"""Many commands in one sandbox at the same time: none goes on before all have begun."""

from __future__ import annotations

import asyncio

from prime_sandboxes import AsyncSandboxClient, CommandResponse

# A command blocks on the pipe without using the guest's CPU, and takes one line from it.
JOIN = "echo {n} >> /tmp/crowd; read line < /tmp/gate; echo {n}; exit $(({n} % 256))"
# The lines come when all have begun. The pipe stays open until the crowd is over, since its content goes with its last holder.
OPEN = "exec 3<> /tmp/gate; until [ $(wc -l < /tmp/crowd) -eq {size} ]; do sleep 1; done; for i in $(seq {size}); do echo go >&3; done; read never"


async def meet(client: AsyncSandboxClient, sandbox_id: str, size: int, secs: int) -> list[CommandResponse]:
    await client.execute_command(sandbox_id, "rm -f /tmp/gate; mkfifo /tmp/gate; : > /tmp/crowd")
    gate = await client.open_process(sandbox_id, OPEN.format(size=size))
    answers = await asyncio.gather(*(client.execute_command(sandbox_id, JOIN.format(n=n), timeout=secs) for n in range(size)))
    await gate.kill()
    await gate.aclose()
    return answers


def assert_met(answers: list[CommandResponse]) -> None:
    assert [(a.stdout, a.exit_code) for a in answers] == [(f"{n}\n", n % 256) for n in range(len(answers))]
