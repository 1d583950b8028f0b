"""The rows on snapshots: the pause of a source, forks one by one and many at once, resets in place, app templates, memory of a child, Docker within."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import processes
import waiting
from figures import Row, timed
from machines import BASE, shell_in
from registry import Registry
from test_machine_docker import COMPOSE, COMPOSE_SECS, DOCKER_READY_SECS

if TYPE_CHECKING:
    from bench import Bench

MB = 1_000_000

PAUSES = 50
DIRTY_MB = 10
FORKS = 15
FORKS_AT_ONCE = 20
TOGETHER = 3
RESETS = 200
TEMPLATE_STARTS = 15
CHILDREN = 10
SETTLE_SECS = 10
DOCKER_STARTS = 3
COMPOSE_FORKS = 5


class Api:
    """Calls of our own API."""

    def __init__(self, bench: Bench) -> None:
        self.http = bench.server.http()
        self.http.timeout = 120

    def post(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        answer = self.http.post(f"/api/v1{path}", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def forks(self, sandbox: str, count: int = 1) -> list[str]:
        return [fork["id"] for fork in self.post(f"/sandbox/{sandbox}/fork", {"count": count})["sandboxes"]]


def docker_run(bench: Bench) -> float:
    return timed(lambda: bench.docker("run", "--rm", "bench:v1", "true"))


def first_exec(bench: Bench, sandbox: str) -> None:
    assert bench.client.execute_command(sandbox, "true").exit_code == 0


def pause(bench: Bench) -> Row:
    row = Row(f"pause: a source of 512 MiB stands still while it is snapshotted, {DIRTY_MB} MB dirty", "median <= 15 ms, p99 of 50 <= 40 ms")
    paused, call = row.side("stop to go on, as the shim measures it", "ms"), row.side("the whole call", "ms")
    api, sandbox = Api(bench), bench.sandbox()
    bench.client.execute_command(sandbox, f"head -c {DIRTY_MB * MB} /dev/urandom > /dev/shm/dirty")
    for number in range(PAUSES):
        taken: list[dict[str, Any]] = []
        call.add(timed(lambda: taken.append(api.post(f"/sandbox/{sandbox}/snapshots"))))
        paused.add(taken[0]["pausedMs"])
        row.results["changed memory of the last one, MB"] = taken[0]["storedBytes"] / MB
        api.http.delete(f"/api/v1/snapshots/{taken[0]['id']}")
        bench.client.execute_command(sandbox, f"head -c {DIRTY_MB * MB} /dev/urandom > /dev/shm/dirty")
    bench.client.delete(sandbox)
    row.notes.append("each snapshot has the memory that changed since the machine's start; the call also waits until all of it is in files")
    return row


def fork(bench: Bench) -> Row:
    row = Row("fork: of a running sandbox, call to the child's first exec, against docker run --rm IMAGE true", "<= 1.2 x docker run")
    ours, theirs = row.side("warren, fork + first exec", "ms"), row.side("docker run --rm IMAGE true", "ms")
    api, sandbox = Api(bench), bench.sandbox()
    for number in range(FORKS + 1):
        made: list[str] = []

        def one() -> None:
            made.extend(api.forks(sandbox))
            first_exec(bench, made[0])

        took, other = timed(one), docker_run(bench)
        if number:
            ours.add(took)
            theirs.add(other)
        bench.client.delete(made[0])
    row.results["ratio to docker"] = ours.median / theirs.median
    together = row.side(f"{FORKS_AT_ONCE} forks in one call, wall time per child until its first exec", "ms")
    for _ in range(TOGETHER):
        made = []

        def many() -> None:
            made.extend(api.forks(sandbox, FORKS_AT_ONCE))
            for child in made:
                first_exec(bench, child)

        together.add(timed(many) / FORKS_AT_ONCE)
        bench.client.bulk_delete(sandbox_ids=made)
    row.results[f"{FORKS_AT_ONCE} at once per child / a single fork (bar 0.8)"] = together.median / ours.median
    bench.client.delete(sandbox)
    return row


def reset(bench: Bench) -> Row:
    row = Row(f"reset: in place to first exec, {RESETS} times, against docker run --rm IMAGE true", "<= 1.2 x docker run, and flat in time and memory")
    ours, theirs = row.side("warren, reset + first exec", "ms"), row.side("docker run --rm IMAGE true", "ms")
    api, sandbox = Api(bench), bench.sandbox()
    bench.client.execute_command(sandbox, "echo start > /root/state")
    api.post(f"/sandbox/{sandbox}/snapshots")

    def one() -> None:
        api.post(f"/sandbox/{sandbox}/reset")
        first_exec(bench, sandbox)

    memory: list[float] = []
    for number in range(RESETS):
        bench.client.execute_command(sandbox, f"echo {number} > /root/state") if number % 10 == 0 else None
        ours.add(timed(one))
        if number % 10 == 0:
            theirs.add(docker_run(bench))
            memory.append((processes.pss_kib(bench.server.pid) + sum(processes.pss_kib(p.pid) for p in bench.server.processes_of(sandbox))) * 1024 / MB)
    assert bench.client.execute_command(sandbox, "cat /root/state").stdout == "start\n"
    quarter = RESETS // 4
    row.results["ratio to docker"] = ours.median / theirs.median
    row.results["last quarter / first quarter, time"] = sorted(ours.values[-quarter:])[quarter // 2] / sorted(ours.values[:quarter])[quarter // 2]
    row.results["memory of serve and sandbox: first, MB"] = memory[1]
    row.results["memory of serve and sandbox: last, MB"] = memory[-1]
    bench.client.delete(sandbox)
    return row


def template(bench: Bench) -> Row:
    row = Row("template: create of an image with an app template to first exec, against docker run --rm IMAGE true", "<= 1.2 x docker run")
    ours, theirs = row.side("warren, create + wait + first exec", "ms"), row.side("docker run --rm IMAGE true", "ms")
    api = Api(bench)
    command = {"executable": "/bin/sh", "args": ["-c", "echo warm > /tmp/warm; exec sleep 1000000"]}
    body = {"docker_image": "bench:v1", "memory_gb": 0.5, "start_command": command, "ready": {"executable": "/bin/sh", "args": ["-c", "test -e /tmp/warm"]}}
    made = api.post("/templates", body)["id"]
    waiting.until(lambda: api.http.get(f"/api/v1/templates/{made}").json()["state"] == "READY", 60, "the template is ready")
    for number in range(TEMPLATE_STARTS + 1):
        ids: list[str] = []
        took, other = timed(lambda: ids.append(bench.sandbox(start_command=command))), docker_run(bench)
        if number:
            ours.add(took)
            theirs.add(other)
        assert api.http.get(f"/api/v1/sandbox/{ids[0]}").json()["templateId"]
        bench.client.delete(ids[0])
    api.http.delete(f"/api/v1/templates/{made}")
    row.results["ratio to docker"] = ours.median / theirs.median
    return row


def child_memory(bench: Bench) -> Row:
    row = Row(f"child: private memory of an idle fork, {CHILDREN} of one sandbox of 512 MiB", "<= 60 MB under emulation, of which guest pages <= 15 MB")
    whole, guest, shim = row.side("private memory of VMM and shim", "MB"), row.side("of that pages of the guest", "MB"), row.side("of that the shim", "MB")
    api, sandbox = Api(bench), bench.sandbox()
    children = api.forks(sandbox, CHILDREN)
    for child in children:
        first_exec(bench, child)
    time.sleep(SETTLE_SECS)
    for child in children:
        private = {p.is_vmm: processes.private_kib(p.pid) * 1024 / MB for p in bench.server.processes_of(child)}
        vmm = bench.server.vmm_of(child)
        whole.add(sum(private.values()))
        guest.add(processes.private_of_mapping_kib(vmm.pid, "memfd:warren-template") * 1024 / MB)
        shim.add(private.get(False, 0.0))
    bench.client.bulk_delete(sandbox_ids=[*children, sandbox])
    return row


def dockerd(bench: Bench, shell: Callable[..., str]) -> None:
    shell("nohup dockerd > /var/log/dockerd.log 2>&1 < /dev/null & echo $! > /run/dockerd-started.pid")
    waiting.until(lambda: "ready" in shell("docker info > /dev/null 2>&1 && echo ready || :"), DOCKER_READY_SECS, "dockerd answers")


def compose(bench: Bench) -> Row:
    row = Row("compose: a fork of a sandbox whose dockerd and a compose project run, until `docker-compose ps` answers", "<= 10 % of starting them")
    forked, started = row.side("fork until docker-compose ps shows them", "ms"), row.side("dockerd and docker-compose up from nothing", "ms")
    registry = Registry(bench.folder / "registry-machine", bench.images).start()
    try:
        reference = registry.reference("machine")
        api = Api(bench)
        size = {"cpu_cores": 2, "memory_gb": 1.5, "disk_size_gb": 6}
        source = bench.sandbox(reference, **size)
        shell = shell_in(bench.client, source)
        shell(f"mkdir -p /app && cat > /app/docker-compose.yml <<'EOF'{COMPOSE}EOF")
        shell(f"cat > /up.sh <<'EOF'\ncd /app && docker-compose up -d 2>&1\nEOF\ncat > /base.sh <<'EOF'{BASE}EOF")

        def up() -> None:
            dockerd(bench, shell)
            shell("sh /base.sh; sh /up.sh", secs=COMPOSE_SECS)

        started.add(timed(up))
        for _ in range(COMPOSE_FORKS):
            made: list[str] = []

            def one() -> None:
                made.extend(api.forks(source))
                assert "Up" in shell_in(bench.client, made[0])("cd /app && docker-compose ps")

            forked.add(timed(one))
            bench.client.delete(made[0])
        row.results["forked / started (bar 0.10)"] = forked.median / started.median
        docker_in_template(bench, api, reference, size, row)
        bench.client.delete(source)
    finally:
        registry.close()
    return row


def docker_in_template(bench: Bench, api: Api, reference: str, size: dict[str, Any], row: Row) -> None:
    """`docker run` in a machine that went on from an app template in which dockerd runs, and in one that has booted and started it."""
    command = {"executable": "/bin/sh", "args": ["-c", f"dockerd > /var/log/dockerd.log 2>&1 & until docker info > /dev/null 2>&1; do sleep 0.3; done; sh -c '{BASE.strip()}'; touch /tmp/ready; wait"]}
    body = {"docker_image": reference, **size, "disk_size_gb": 6, "start_command": command, "ready": {"executable": "/bin/sh", "args": ["-c", "test -e /tmp/ready"]}}
    made = api.post("/templates", body)["id"]
    state = waiting.until(lambda: (s := api.http.get(f"/api/v1/templates/{made}").json())["state"] != "MAKING" and s, 300, "the template is made")
    assert state["state"] == "READY", state
    restored, booted = row.side("docker run in a restored app template", "ms"), row.side("docker run in a booted machine", "ms")
    run = "docker run --rm base:v1 /bin/echo hi"
    for _ in range(DOCKER_STARTS):
        for side, more in ((restored, {}), (booted, {"advanced_configs": {"template": False}})):
            sandbox = bench.sandbox(reference, start_command=command, **size, **more)
            shell = shell_in(bench.client, sandbox)
            waiting.until(lambda: "yes" in shell("test -e /tmp/ready && echo yes || :"), DOCKER_READY_SECS, "dockerd is ready")
            side.add(timed(lambda: shell(run)))
            bench.client.delete(sandbox)
    api.http.delete(f"/api/v1/templates/{made}")
    row.results["docker run restored / booted (bar 1.2)"] = restored.median / booted.median


ROWS: dict[str, Callable[[Bench], Row]] = {"pause": pause, "fork": fork, "reset": reset, "template": template, "child": child_memory, "compose": compose}
