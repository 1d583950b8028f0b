"""A real machine inside: cgroups, loop mounts, FUSE, network namespaces, firewalls, modules loaded by use; root of it cannot cut us off."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import waiting
from conftest import request
from machines import CALL_SECS, Shell, machine, shell_in  # noqa: F401
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server


def test_cgroup_v2(machine: Shell):
    assert machine("stat -fc %T /sys/fs/cgroup").strip() == "cgroup2fs"
    assert {"cpu", "memory", "pids", "io"} <= set(machine("cat /sys/fs/cgroup/cgroup.controllers").split())
    # A limit that root of the guest sets holds.
    machine("echo '+pids' > /sys/fs/cgroup/cgroup.subtree_control; mkdir -p /sys/fs/cgroup/mine && echo 1 > /sys/fs/cgroup/mine/pids.max")
    fork = "import os; open('/sys/fs/cgroup/mine/cgroup.procs', 'w').write('0'); os.fork()"
    assert "BlockingIOError" in machine(f'python3 -c "{fork}" 2>&1 || :')


def test_loop_mount(machine: Shell):
    script = "truncate -s 32M /disk && mkfs.ext4 -q /disk && mkdir -p /mnt/disk && mount -o loop /disk /mnt/disk && echo kept > /mnt/disk/f && umount /mnt/disk"
    machine(script)
    assert machine("mount -o loop,ro /disk /mnt/disk && cat /mnt/disk/f && findmnt -no FSTYPE /mnt/disk && umount /mnt/disk").split() == ["kept", "ext4"]


def test_fuse(machine: Shell):
    machine("truncate -s 16M /fused && mkfs.ext4 -q /fused && mkdir -p /mnt/fused && fuse2fs /fused /mnt/fused -o rw")
    assert machine("echo kept > /mnt/fused/f; cat /mnt/fused/f; findmnt -no FSTYPE /mnt/fused; umount /mnt/fused").split() == ["kept", "fuse.ext4"]


def test_a_network_namespace(machine: Shell):
    machine("ip netns add far && ip link add near type veth peer name other netns far && ip addr add 10.9.0.1/24 dev near && ip link set near up")
    machine("ip -n far addr add 10.9.0.2/24 dev other && ip -n far link set other up && ip -n far link set lo up")
    machine("ip netns exec far busybox httpd -p 10.9.0.2:80 -h /etc")
    assert machine("busybox wget -qO- http://10.9.0.2/hostname").strip() == machine("hostname").strip()
    machine("ip netns exec far busybox pkill httpd; ip netns del far")


@pytest.mark.parametrize("flavour", ["nft", "legacy"])
def test_iptables(machine: Shell, flavour: str):
    machine(f"iptables-{flavour} -N OURS && iptables-{flavour} -A OURS -p tcp --dport 81 -m conntrack --ctstate NEW -m comment --comment x -j REJECT")
    machine(f"iptables-{flavour} -A INPUT -i lo -j OURS && iptables-{flavour} -t nat -A POSTROUTING -s 10.10.0.0/16 -j MASQUERADE")
    assert "--dport 81" in machine(f"iptables-{flavour} -S OURS")
    assert "REJECT" in machine(f"ip6tables-{flavour} -A INPUT -i lo -p tcp --dport 81 -j REJECT && ip6tables-{flavour} -S INPUT")
    assert machine("python3 -c 'import socket; print(socket.socket().connect_ex((\"127.0.0.1\", 81)))'").strip() == str(errno.ECONNREFUSED)
    assert "OURS" in (counted := machine(f"iptables-{flavour} -L OURS -v -x -n")) and counted.splitlines()[2].split()[0] != "0", counted
    machine(f"iptables-{flavour} -D INPUT -i lo -j OURS && iptables-{flavour} -F OURS && iptables-{flavour} -X OURS && ip6tables-{flavour} -F INPUT")


@pytest.mark.parametrize("module, use", [
    ("wireguard", "ip link add wg0 type wireguard && wg set wg0 listen-port 51820 && wg show wg0 && ip link del wg0"),
    ("bridge", "ip link add br9 type bridge && ip link del br9"),
    ("vxlan", "ip link add vx0 type vxlan id 9 dev eth0 dstport 4789 && ip link del vx0"),
    ("overlay", "mkdir -p /o/a /o/b /o/w /o/m && mount -t overlay overlay -o lowerdir=/o/a,upperdir=/o/b,workdir=/o/w /o/m && umount /o/m"),
    ("fuse", "head -c 0 /dev/fuse"),
    ("tun", "ip tuntap add dev tap9 mode tap && ip tuntap del dev tap9 mode tap"),
    ("xfs", "grep -w xfs /proc/filesystems || mount -t xfs none /mnt 2>&1; grep -w xfs /proc/filesystems"),
    ("sctp", "python3 -c 'import socket; socket.socket(socket.AF_INET, socket.SOCK_STREAM, 132)'"),
    ("dm_mod", "python3 -c 'open(\"/dev/mapper/control\")'"),
], ids=lambda text: text.split()[0] if " " not in text else "")
def test_modules_are_loaded_by_use(fresh: Shell, module: str, use: str):
    assert fresh("readlink /sbin/modprobe; ls /bin/kmod 2>/dev/null || :") == "/dev/warren/modprobe\n", "the image brings no loader"
    assert not fresh(f"grep ^{module} /proc/modules || :"), f"{module} is not there from the start"
    fresh(use)
    assert fresh(f"grep ^{module} /proc/modules")


def test_modprobe_is_there_and_says_what_it_cannot(fresh: Shell):
    assert fresh("modprobe -va dummy br_netfilter; grep -c -e ^dummy -e ^br_netfilter /proc/modules; cat /proc/sys/net/bridge/bridge-nf-call-iptables") == "2\n1\n"
    assert fresh("modprobe nbd nbds_max=3 && cat /sys/module/nbd/parameters/nbds_max; modprobe ext4 && echo built in or loaded") == "3\nbuilt in or loaded\n"
    assert "there is no module no_such" in fresh("modprobe no_such 2>&1", code=1) and fresh("modprobe -q no_such 2>&1", code=1) == ""
    assert "-r is not offered" in fresh("modprobe -r dummy 2>&1", code=1)


@pytest.fixture(scope="module")
def fresh(server: Server, registry: Registry) -> Iterator[Shell]:
    """A sandbox in which nothing has been used yet."""
    client = SandboxClient(APIClient())
    sandbox = client.create(request(registry.reference("machine"), memory_gb=0.5, disk_size_gb=2, timeout_minutes=-1))
    client.wait_for_creation(sandbox.id)
    yield shell_in(client, sandbox.id)
    client.delete(sandbox.id)


def test_root_cannot_cut_the_platform_off(create: Any, client: SandboxClient, registry: Registry, tmp_path: Path):
    sandbox = create(image=registry.reference("machine"), memory_gb=0.5)
    shell = shell_in(client, sandbox.id)
    content = os.urandom(3 << 20)
    (tmp_path / "up").write_bytes(content)

    def all_work(after: str) -> None:
        assert shell("echo still there") == "still there\n", after
        client.upload_file(sandbox.id, "/var/tmp/up", str(tmp_path / "up"))
        client.download_file(sandbox.id, "/var/tmp/up", str(tmp_path / "down"))
        assert (tmp_path / "down").read_bytes() == content, after
        job = client.start_background_job(sandbox.id, "exit 4")
        assert waiting.until(lambda: (status := client.get_background_job(sandbox.id, job)).completed and status, 30, "a job ends").exit_code == 4, after

    shell("iptables -P INPUT DROP; iptables -P OUTPUT DROP; ip link set eth0 down; ip link set lo down; ip addr flush dev eth0")
    all_work("the network")
    # Whoever asks for it is not spared: the call itself may end by the signal.
    for signal in ("STOP", "TERM", "KILL"):
        client.execute_command(sandbox.id, f"kill -{signal} -1; kill -{signal} 1; echo spared", timeout=CALL_SECS)
        shell("kill -CONT -1; :")
        all_work(signal)
    # Commands' own cgroups may not run, or hold, anything more.
    shell("cd /sys/fs/cgroup && echo +pids > cgroup.subtree_control && echo 0 > warren/pids.max")
    all_work("no processes")
    shell("cd /sys/fs/cgroup && echo max > warren/pids.max && echo $$ > cgroup.procs && echo 1 > warren/cgroup.freeze")
    assert "frozen 1" in shell("cat /sys/fs/cgroup/warren/cgroup.events")
    all_work("frozen")
    shell("rmmod virtio_console 2>/dev/null; umount -a 2>/dev/null; umount -l /proc /sys /dev 2>/dev/null; :")
    assert shell("echo still there") == "still there\n"
    assert client.get(sandbox.id).status == "RUNNING"
