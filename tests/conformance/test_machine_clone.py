"""Forks of machines with networks and an init of their own."""

from __future__ import annotations

import time

import pytest
from clones import PYTHON, WAITER, Machine
from conftest import Create
from prime_sandboxes import SandboxClient
from registry import Registry
from server import Server
from target_net import ECHO_PORT, Target

# A network namespace behind the machine's address translation, as Docker makes it for a container.
BOX = r"""
set -e
ip netns add box
ip link add out type veth peer name in netns box
ip addr add 172.30.0.1/24 dev out && ip link set out up
ip -n box addr add 172.30.0.2/24 dev in && ip -n box link set in up && ip -n box route add default via 172.30.0.1
echo 1 >/proc/sys/net/ipv4/ip_forward
iptables -t nat -A POSTROUTING -s 172.30.0.0/24 -j MASQUERADE
"""


@pytest.fixture
def image(registry: Registry) -> str:
    return registry.reference("machine")


def test_a_connection_from_behind_address_translation_is_reset(server: Server, client: SandboxClient, create: Create, image: str, target: Target):
    with server.http(timeout=60) as http:
        source = Machine(http, client, create(image, memory_gb=0.5, disk_size_gb=4).id)
        source.put("/root/waiter.py", WAITER)
        source.shell(BOX)
        source.start(f"ip netns exec box {PYTHON} /root/waiter.py {target.address} {ECHO_PORT} /root/waiter")
        source.file_has("/root/waiter", "connected")
        (child,) = source.fork()
        answered = time.time()
        try:
            noted = child.file_has("/root/waiter", "Connection", secs=5).splitlines()[-1].split()
            assert noted[0] == "ConnectionResetError" and float(noted[1]) < answered + 1, noted
            source.shell("kill -USR1 $(grep connected /root/waiter | cut -d' ' -f2)")
            assert "Connection" not in source.file_has("/root/waiter", "ping")
        finally:
            child.delete()


def test_a_machine_below_systemd_is_told(server: Server, client: SandboxClient, create: Create, image: str):
    with server.http(timeout=60) as http:
        source = Machine(http, client, create(image, memory_gb=0.5, disk_size_gb=4, start_command={"executable": "/sbin/init", "args": []}).id)
        source.file_has("/run/warren/sandbox-id", source.id, secs=60)
        (child,) = source.fork()
        try:
            assert child.shell("cat /run/warren/generation /run/warren/sandbox-id; cat /proc/sys/kernel/hostname").split() == ["1", child.id, child.id]
        finally:
            child.delete()
