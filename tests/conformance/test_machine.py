"""A real machine inside: Docker, systemd, cgroups, loop mounts, network namespaces, firewalls, modules loaded by use; root of it cannot cut us off.

All on images that bring no kernel modules and no module loader. Under software emulation dockerd takes some 10 s: everything is waited for, with a bound.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import waiting
from conftest import request
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server

Shell = Callable[..., str]

DOCKER_READY_SECS = 120
CALL_SECS = 120
PORT_READY_SECS = 30

BASE = r"""
mkdir -p /base/bin /base/etc /base/tmp && cp /bin/busybox /base/bin/ && for tool in sh cat wget httpd nslookup sleep echo ping; do ln -sf busybox /base/bin/$tool; done
tar -C /base -c . | docker import - base:v1
"""


def shell_in(client: SandboxClient, sandbox_id: str) -> Shell:
    """A function that runs a script in the sandbox and answers its output; the script must end with 0."""

    def shell(script: str, code: int = 0) -> str:
        answer = client.execute_command(sandbox_id, script, timeout=CALL_SECS)
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


@pytest.fixture(scope="module")
def docker(machine: Shell) -> Shell:
    """The same, with a dockerd that answers and an image `base:v1` of BusyBox."""
    machine("nohup dockerd > /var/log/dockerd.log 2>&1 < /dev/null & echo $! > /run/dockerd-started.pid")
    ready = "docker info > /dev/null 2>&1 && echo ready || { kill -0 $(cat /run/dockerd-started.pid) && echo starting; } || { tail -n 40 /var/log/dockerd.log; exit 1; }"
    waiting.until(lambda: machine(ready).strip() == "ready", DOCKER_READY_SECS, "dockerd answers")
    machine(BASE)
    return machine


def test_docker_has_its_best_drivers(docker: Shell):
    assert docker("docker info -f '{{.Driver}} {{.CgroupVersion}}'").split() == ["overlay2", "2"]
    assert docker("docker network inspect bridge -f '{{(index .IPAM.Config 0).Subnet}}'").startswith("172.17.")


def test_docker_run(docker: Shell):
    assert docker("docker run --rm base:v1 /bin/sh -c 'echo runs in $(cat /etc/hostname | wc -c)'") == "runs in 13\n"
    # The limits of a container hold.
    limits = "docker run --rm --memory 64m --pids-limit 50 base:v1 /bin/cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max"
    assert docker(limits).split() == [str(64 << 20), "50"]
    assert docker("docker run --rm --privileged base:v1 /bin/sh -c 'echo 1 > /proc/sys/net/ipv4/ip_forward && cat /proc/sys/net/ipv4/ip_forward'") == "1\n"


def test_a_published_port_is_reached(docker: Shell):
    docker("docker run -d --name web -p 8080:80 base:v1 /bin/sh -c 'mkdir /www; echo from the container > /www/index.html; exec httpd -f -h /www'")
    for host in ("127.0.0.1", "$(hostname -I | cut -d' ' -f1)"):
        waiting.until(lambda: docker(f"busybox wget -qO- http://{host}:8080/ || :") == "from the container\n", PORT_READY_SECS, f"{host} answers on the published port")
    docker("docker rm -f web")


def test_containers_find_each_other_by_name(docker: Shell):
    docker("docker network create mesh")
    for name in ("one", "two"):
        docker(f"docker run -d --name {name} --network mesh base:v1 /bin/sh -c 'mkdir /www; echo {name} > /www/index.html; exec httpd -f -h /www'")
    for name, other in (("one", "two"), ("two", "one")):
        fetch = f"docker exec {name} /bin/wget -qO- http://{other}/ || :"
        waiting.until(lambda: docker(fetch) == f"{other}\n", PORT_READY_SECS, f"{name} reaches {other} by name")
    assert "bad address" in docker("docker run --rm base:v1 /bin/wget -qO- http://one/ 2>&1 || :"), "the default network knows no names"
    docker("docker rm -f one two && docker network rm mesh")


@pytest.mark.parametrize("kit", ["0", "1"], ids=["classic", "buildkit"])
def test_docker_build(docker: Shell, kit: str):
    docker(rf"""
mkdir -p /build && cd /build && echo copied > file && cp /bin/busybox .
printf 'FROM base:v1 AS first\nCOPY file /file\nRUN echo "$(cat /file) and run {kit}" > /made\nFROM scratch\nCOPY busybox /bin/sh\nCOPY --from=first /made /made\nCMD ["/bin/sh", "-c", "read line < /made; echo $line"]\n' > Dockerfile
DOCKER_BUILDKIT={kit} docker build -t built:{kit} . > /build/log 2>&1 || {{ cat /build/log; exit 1; }}
""")
    assert docker(f"docker run --rm built:{kit}") == f"copied and run {kit}\n"


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
    assert fresh("ls /sbin/modprobe /usr/sbin/modprobe 2>/dev/null || echo none").strip() == "none", "the image brings no loader"
    assert not fresh(f"grep ^{module} /proc/modules || :"), f"{module} is not there from the start"
    fresh(use)
    assert fresh(f"grep ^{module} /proc/modules")


@pytest.fixture(scope="module")
def fresh(server: Server, registry: Registry) -> Iterator[Shell]:
    """A sandbox in which nothing has been used yet."""
    client = SandboxClient(APIClient())
    sandbox = client.create(request(registry.reference("machine"), memory_gb=0.5, disk_size_gb=2, timeout_minutes=-1))
    client.wait_for_creation(sandbox.id)
    yield shell_in(client, sandbox.id)
    client.delete(sandbox.id)


def test_root_cannot_cut_the_platform_off(create: Any, client: SandboxClient, registry: Registry):
    sandbox = create(image=registry.reference("machine"), memory_gb=0.5)
    shell = shell_in(client, sandbox.id)
    shell("iptables -P INPUT DROP; iptables -P OUTPUT DROP; ip link set eth0 down; ip link set lo down")
    assert shell("echo still there") == "still there\n"
    # Whoever asks for it is not spared: the call itself may end by the signal.
    client.execute_command(sandbox.id, "kill -9 -1; echo spared", timeout=CALL_SECS)
    assert shell("echo still there") == "still there\n"
    shell("umount -a 2>/dev/null; umount -l /proc /sys /dev 2>/dev/null; :")
    assert shell("echo still there") == "still there\n"
    assert client.get(sandbox.id).status == "RUNNING"


# systemd as process 1

SYSTEMD_READY_SECS = 150


@pytest.fixture(scope="module")
def systemd_id(server: Server, registry: Registry) -> Iterator[str]:
    """A machine whose start command is systemd."""
    client = SandboxClient(APIClient())
    wanted = request(registry.reference("machine"), cpu_cores=2, memory_gb=1.5, disk_size_gb=6, timeout_minutes=-1, start_command={"executable": "/sbin/init", "args": []})
    sandbox = client.create(wanted)
    client.wait_for_creation(sandbox.id)
    yield sandbox.id
    client.delete(sandbox.id)


@pytest.fixture(scope="module")
def systemd(systemd_id: str) -> Shell:
    """The same, booted to its end."""
    shell = shell_in(SandboxClient(APIClient()), systemd_id)
    over = ("running", "degraded")
    waiting.until(lambda: shell("systemctl is-system-running 2>/dev/null || :").strip() in over, SYSTEMD_READY_SECS, "systemd has booted")
    return shell


def test_systemd_is_process_1_and_no_unit_failed(systemd: Shell):
    assert systemd("ps -p 1 -o comm=; systemctl is-system-running --wait; systemctl list-units --failed --no-legend") == "systemd\nrunning\n"
    assert systemd("systemctl is-active docker dbus systemd-journald systemd-logind").split() == ["active"] * 4
    # No machine without its loader either.
    assert systemd("ip link add wg0 type wireguard && ip link del wg0 && echo made") == "made\n"


def test_units_timers_and_the_journal(systemd: Shell):
    systemd(r"""
printf '[Service]\nExecStart=/bin/sh -c "echo said by ours; exec sleep infinity"\n' > /etc/systemd/system/ours.service
printf '[Service]\nType=oneshot\nExecStart=/bin/sh -c "echo tick >> /ticks"\n' > /etc/systemd/system/tick.service
printf '[Timer]\nOnActiveSec=1s\nOnUnitActiveSec=1s\nAccuracySec=100ms\n' > /etc/systemd/system/tick.timer
systemctl daemon-reload && systemctl start ours.service tick.timer
""")
    assert systemd("systemctl is-active ours") == "active\n"
    waiting.until(lambda: "said by ours" in systemd("journalctl -u ours --no-pager"), 20, "the journal has what the unit said")
    waiting.until(lambda: systemd("cat /ticks 2>/dev/null || :").count("tick") >= 2, 30, "the timer fires twice")
    assert systemd("systemctl stop tick.timer ours && systemd-run --quiet --wait --pipe echo from a unit") == "from a unit\n"
    assert systemd("systemd-run --quiet --scope echo from a scope") == "from a scope\n"


def test_user_services(systemd: Shell):
    script = "systemctl start user@0 && XDG_RUNTIME_DIR=/run/user/0 systemctl --user is-system-running --wait"
    assert systemd(script) == "running\n"


def test_docker_below_systemd(systemd: Shell):
    assert systemd("docker info -f '{{.CgroupDriver}}'") == "systemd\n"
    systemd(BASE)
    assert systemd("docker run --rm --memory 64m base:v1 /bin/cat /sys/fs/cgroup/memory.max") == f"{64 << 20}\n"


def test_jobs_and_files_below_systemd(systemd: Shell, systemd_id: str, client: SandboxClient, tmp_path: Any):
    job = client.start_background_job(systemd_id, "touch /tmp/job-runs; while test ! -e /tmp/job-may-end; do sleep 0.1; done; echo over; exit 3")
    waiting.until(lambda: systemd("ls /tmp/job-runs 2>/dev/null || :"), 20, "the job runs")
    assert not client.get_background_job(systemd_id, job).completed
    systemd("touch /tmp/job-may-end")
    done = waiting.until(lambda: (status := client.get_background_job(systemd_id, job)).completed and status, 20, "the job ends")
    assert (done.exit_code, done.stdout) == (3, "over\n")
    # What is mounted inside is where files go.
    (tmp_path / "f").write_text("deep")
    systemd("mkdir -p /mnt/mounted && mount -t tmpfs none /mnt/mounted")
    client.upload_file(systemd_id, "/mnt/mounted/f", str(tmp_path / "f"))
    assert systemd("cat /mnt/mounted/f") == "deep"


def test_killing_everything_spares_systemd_and_power_off_ends_in_order(create: Any, client: SandboxClient, registry: Registry):
    sandbox = create(image=registry.reference("machine"), memory_gb=0.75, cpu_cores=2, start_command={"executable": "/lib/systemd/systemd", "args": ["--system"]})
    shell = shell_in(client, sandbox.id)
    waiting.until(lambda: shell("systemctl is-active dbus 2>/dev/null || :") == "active\n", SYSTEMD_READY_SECS, "systemd boots")
    client.execute_command(sandbox.id, "kill -9 -1", timeout=CALL_SECS)
    assert shell("ps -p 1 -o comm=") == "systemd\n"
    # A restart is that of the init and of all that runs below it.
    shell("echo before > /run/gone && echo before > /kept; touch /dev/shm/marker; mkdir -p /mnt/x")
    client.execute_command(sandbox.id, "systemctl reboot", timeout=CALL_SECS)
    again = lambda: client.execute_command(sandbox.id, "test ! -e /run/gone && systemctl is-active dbus", timeout=CALL_SECS).stdout
    waiting.until(lambda: again() == "active\n", SYSTEMD_READY_SECS, "systemd has booted again")
    assert shell("ps -p 1 -o comm=; cat /kept") == "systemd\nbefore\n"
    # What a delete sends: units end in order, and then the machine is off.
    shell(r"printf '[Service]\nExecStart=/bin/sleep infinity\nExecStop=/bin/sh -c "echo stopped in order > /dev/console"\n' > /etc/systemd/system/bye.service; systemctl daemon-reload; systemctl start bye")
    with contextlib.suppress(Exception):
        # It may end with the machine.
        client.execute_command(sandbox.id, "systemctl poweroff", timeout=CALL_SECS)
    ended = waiting.until(lambda: (s := client.get(sandbox.id)).status != "RUNNING" and s, SYSTEMD_READY_SECS, "the sandbox is over")
    assert (ended.status, ended.error_type) == ("TERMINATED", "POWERED_OFF"), ended
    assert "switched the machine off" in client.get_logs(sandbox.id)
