"""systemd as process 1 of a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import waiting
from conftest import request
from machines import BASE, CALL_SECS, Shell, shell_in
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server

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


def test_the_tools_show_the_whole_machine(systemd: Shell):
    told = systemd("systemctl status --no-pager 2>&1")
    assert "Input/output error" not in told and "State: running" in told and "docker.service" in told and "init.scope" in told, told
    assert "systemd-journald.service" in systemd("systemd-cgls --no-pager 2>&1")
    assert systemd("cat /proc/1/cgroup; cut -d/ -f2 /proc/self/cgroup") == "0::/init.scope\nwarren\n"
    assert {"cpu", "memory", "pids", "io"} <= set(systemd("cat /sys/fs/cgroup/cgroup.controllers").split())
    assert "0" not in systemd("cat /sys/fs/cgroup/*/cgroup.procs /sys/fs/cgroup/cgroup.procs").split(), "no process is out of sight"


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
    assert systemd("systemctl start user@0 && XDG_RUNTIME_DIR=/run/user/0 systemctl --user is-system-running --wait") == "running\n"
    script = "useradd -m -u 1500 worker 2>/dev/null; loginctl enable-linger worker && systemctl start user@1500 && echo up"
    assert systemd(script) == "up\n"
    as_worker = "setpriv --reuid 1500 --regid 1500 --init-groups env HOME=/home/worker XDG_RUNTIME_DIR=/run/user/1500"
    unit = '[Service]\nWorkingDirectory=%h\nExecStart=/bin/sh -c "id -u > own; exec sleep infinity"\n'
    systemd(f"mkdir -p ~worker/.config/systemd/user && cat > ~worker/.config/systemd/user/own.service <<'EOF'\n{unit}EOF\nchown -R worker: ~worker")
    systemd(f"{as_worker} systemctl --user daemon-reload && {as_worker} systemctl --user start own")
    assert systemd(f"{as_worker} systemctl --user is-active own; {as_worker} systemctl --user show -P ControlGroup own").splitlines() == ["active", "/user.slice/user-1500.slice/user@1500.service/app.slice/own.service"]
    assert waiting.until(lambda: systemd("cat ~worker/own 2>/dev/null || :"), 20, "the unit has run") == "1500\n"


def test_docker_below_systemd(systemd: Shell):
    assert systemd("docker info -f '{{.CgroupDriver}}'") == "systemd\n"
    assert "failed" not in systemd("journalctl -u docker --no-pager | grep -i modprobe || :")
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
    shell(r"printf '[Service]\nExecStart=/bin/sleep infinity\nExecStop=/bin/touch /stopped-in-order\n' > /etc/systemd/system/bye.service; systemctl daemon-reload; systemctl start bye")
    shell("echo before > /run/gone && echo before > /kept")
    client.execute_command(sandbox.id, "systemctl reboot", timeout=CALL_SECS)
    again = lambda: client.execute_command(sandbox.id, "test ! -e /run/gone && systemctl is-active dbus", timeout=CALL_SECS).stdout
    waiting.until(lambda: again() == "active\n", SYSTEMD_READY_SECS, "systemd has booted again")
    assert shell("ps -p 1 -o comm=; cat /kept; ls /stopped-in-order") == "systemd\nbefore\n/stopped-in-order\n"
    with contextlib.suppress(Exception):
        # It may end with the machine.
        client.execute_command(sandbox.id, "systemctl poweroff", timeout=CALL_SECS)
    ended = waiting.until(lambda: (s := client.get(sandbox.id)).status != "RUNNING" and s, SYSTEMD_READY_SECS, "the sandbox is over")
    assert (ended.status, ended.error_type) == ("TERMINATED", "POWERED_OFF"), ended
    assert "switched the machine off" in client.get_logs(sandbox.id)
