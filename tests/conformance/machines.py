"""Sandboxes of the image `machine`, for the tests of a real machine inside.

That image brings no kernel modules. Under software emulation dockerd takes some 10 s: everything is waited for, with a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from conftest import request
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server

Shell = Callable[..., str]

CALL_SECS = 120
PORT_READY_SECS = 30

# An image of BusyBox, made inside.
BASE = r"""
mkdir -p /base/bin /base/etc /base/tmp && cp /bin/busybox /base/bin/ && for tool in sh cat wget httpd nslookup sleep echo ping; do ln -sf busybox /base/bin/$tool; done
tar -C /base -c . | docker import - base:v1
"""


def shell_in(client: SandboxClient, sandbox_id: str) -> Shell:
    """A function that runs a script in the sandbox and answers its output; the script must end with 0."""

    def shell(script: str, code: int = 0, secs: int = CALL_SECS) -> str:
        answer = client.execute_command(sandbox_id, script, timeout=secs)
        assert answer.exit_code == code, f"{script}\nexit code {answer.exit_code}\n{answer.stdout}\n{answer.stderr}"
        return answer.stdout

    return shell


@pytest.fixture(scope="module")
def machine(server: Server, registry: Registry) -> Iterator[Shell]:
    """A sandbox with Docker's and a machine's tools, for all tests of this file that leave it usable."""
    client = SandboxClient(APIClient())
    sandbox = client.create(request(registry.reference("machine"), cpu_cores=2, memory_gb=1.5, disk_size_gb=6, timeout_minutes=-1))
    client.wait_for_creation(sandbox.id)
    yield shell_in(client, sandbox.id)
    client.delete(sandbox.id)
