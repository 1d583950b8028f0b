"""Docker inside a sandbox, as on any machine: drivers, limits, ports, networks, builds, compose, Docker in Docker."""

from __future__ import annotations

import pytest
import waiting
from machines import BASE, PORT_READY_SECS, Shell, machine  # noqa: F401

DOCKER_READY_SECS = 120
COMPOSE_SECS = 300


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


def test_docker_misses_nothing(docker: Shell):
    warnings = [line for line in docker("docker info 2>&1").splitlines() if "WARNING" in line]
    # A daemon that a command starts looks for this in its own cgroup, which no controller rules. The machine has no swap.
    assert set(warnings) <= {"WARNING: No swap limit support"}, warnings
    assert docker("grep 'Running modprobe' /var/log/dockerd.log || cat /proc/sys/net/bridge/bridge-nf-call-iptables") == "1\n"


def test_docker_run(docker: Shell):
    assert docker("docker run --rm base:v1 /bin/sh -c 'echo runs in $(cat /etc/hostname | wc -c)'") == "runs in 13\n"
    # The limits of a container hold.
    limits = "docker run --rm --memory 64m --pids-limit 50 base:v1 /bin/cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/pids.max"
    assert docker(limits).split() == [str(64 << 20), "50"]
    assert docker("docker run --rm --memory 32m --memory-swap 32m base:v1 /bin/sh -c 'exec /bin/cat /dev/zero | /bin/busybox tail' 2> /dev/null; echo $?") == "137\n"
    assert "can't fork" in docker("docker run --rm --pids-limit 3 base:v1 /bin/sh -c 'for n in 1 2 3 4 5; do /bin/sleep 5 & done' 2>&1 || :")
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


COMPOSE = """
services:
  store:
    image: base:v1
    command: /bin/sh -c "mkdir /www; sleep 2; echo from the store > /www/index.html; exec httpd -f -h /www"
    healthcheck: {test: ["CMD", "/bin/wget", "-qO-", "http://127.0.0.1/"], interval: 1s, timeout: 20s, retries: 60}
  front:
    image: base:v1
    command: /bin/sh -c "mkdir /www; wget -qO /www/index.html http://store/ || exit 1; exec httpd -f -h /www"
    depends_on: {store: {condition: service_healthy}}
    ports: ["8090:80"]
"""


def test_compose_with_a_health_check(docker: Shell):
    """`front` starts once `store` is healthy, and finds it by its name."""
    docker(f"mkdir -p /app && cat > /app/docker-compose.yml <<'EOF'{COMPOSE}EOF")
    docker("cd /app && docker-compose up -d 2>&1", secs=COMPOSE_SECS)
    waiting.until(lambda: docker("busybox wget -qO- http://127.0.0.1:8090/ || :") == "from the store\n", PORT_READY_SECS, "front answers with what store said")
    assert docker("docker inspect -f '{{.State.Health.Status}}' app_store_1 || docker inspect -f '{{.State.Health.Status}}' app-store-1").split()[-1] == "healthy"
    assert docker("cd /app && docker-compose down 2>&1 > /dev/null; docker ps -aq | wc -l", secs=COMPOSE_SECS).strip().endswith("0")


NESTED = r"""
ln -s usr/lib /lib; ln -s usr/lib64 /lib64; ln -s usr/sbin /sbin; export PATH=/bin:/usr/bin:/usr/sbin
dockerd --iptables=false > /log 2>&1 &
until docker version > /dev/null 2>&1; do kill -0 $! || { cat /log; exit 1; }; sleep 0.5; done
docker info -f "{{.Driver}}"
tar -C / -c bin | docker import - inner:v1 > /dev/null
docker run --rm --network none inner:v1 /bin/sh -c "echo from the second level"
"""


def test_docker_in_docker(docker: Shell):
    """A privileged container with a daemon of its own, which runs containers in turn."""
    docker(f"cat > /nested.sh <<'EOF'{NESTED}EOF")
    mounts = "-v /usr:/usr:ro -v /etc:/etc:ro -v /nested.sh:/nested.sh:ro -v /var/lib/docker --tmpfs /run"
    assert docker(f"docker run --rm --privileged {mounts} base:v1 /bin/sh /nested.sh", secs=COMPOSE_SECS) == "overlay2\nfrom the second level\n"
