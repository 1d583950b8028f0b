"""The speed table: our side and the other side of each row, from one run. Prints, and writes bench/out/<time>.json."""

from __future__ import annotations

import contextlib
import copy
import datetime
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import image_rows
import snapshot_rows
import processes
import waiting
from docker_side import Docker
from figures import Row, timed
from images import Images
from server import Server

ROOT = Path(__file__).resolve().parents[1]
BINARY = Path(os.environ["WARREN"])
MB = 1_000_000

STARTS = 20
COLD_SHAPES = 3
EXECS = 200
CONVERSIONS = 5
CONVERTED_MB = 250
IDLE_SANDBOXES = 10
IDLE_SETTLE_SECS = 10
TRANSFERS = 5
TRANSFER_MB = 256

# The import is asked for by the CLI and done by serve; this is where serve runs while it is measured.
ONE_CORE = "0"


class Bench:
    """What all rows share: a server, a Docker daemon, the image on both sides, a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.images = Images(ROOT / "target/test-images")
        self.tar = self.images.root_tar()
        home = folder / "home"
        home.mkdir()
        os.environ.update(HOME=str(home), PRIME_DISABLE_VERSION_CHECK="1", NO_PROXY="127.0.0.1", no_proxy="127.0.0.1")
        self.docker = Docker(folder / "docker")
        self.server = Server(BINARY, folder / "warren")

    def start(self) -> None:
        self.docker.start()
        self.docker("import", str(self.tar), "bench:v1")
        self.server.start()
        self._use(self.server)
        self.warren("images", "import", str(self.tar), "--name", "bench:v1")

    def _use(self, server: Server) -> None:
        from prime_sandboxes import APIClient, SandboxClient

        os.environ.update(PRIME_API_BASE_URL=server.url, PRIME_API_KEY=server.api_key)
        self.client = SandboxClient(APIClient())

    @contextlib.contextmanager
    def at(self, server: Server) -> Iterator[None]:
        """Commands and client go to another server meanwhile."""
        self._use(server)
        try:
            yield
        finally:
            self._use(self.server)

    def warren(self, *words: str, env: dict[str, str] | None = None) -> None:
        subprocess.run([BINARY, *words], check=True, env={**os.environ, **(env or {})}, stdout=subprocess.DEVNULL)

    def sandbox(self, image: str = "bench:v1", **more: Any) -> str:
        """Create, wait, first command: what the table calls a start."""
        from prime_sandboxes import CreateSandboxRequest

        values = {"cpu_cores": 1, "memory_gb": 0.5, "disk_size_gb": 5, "timeout_minutes": -1, **more}
        sandbox = self.client.create(CreateSandboxRequest(name="bench", docker_image=image, **values))
        self.client.wait_for_creation(sandbox.id)
        assert self.client.execute_command(sandbox.id, "true").exit_code == 0
        return sandbox.id

    def close(self) -> None:
        self.server.close()
        self.docker.close()


def start(bench: Bench) -> Row:
    row = Row("start: SDK create + wait_for_creation + first exec, against docker run --rm IMAGE true",
              "ratio to docker <= 1.8; cold boot / start >= 6")
    ours, theirs = row.side("warren, base template exists", "ms"), row.side("docker run --rm IMAGE true", "ms")
    bench.client.delete(bench.sandbox())
    bench.docker("run", "--rm", "bench:v1", "true")
    for number in range(STARTS):
        # Both sides get an image of their own each time: made ready, and never started before.
        image = fresh_image(bench, number)
        made: list[str] = []
        ours.add(timed(lambda: made.append(bench.sandbox(image))))
        bench.client.delete(made[0])
        theirs.add(timed(lambda: bench.docker("run", "--rm", image, "true")))
        bench.warren("images", "remove", image)
        bench.docker("rmi", image)
    cold, made_ms = row.side("warren, shape never seen: cold boot and all", "ms"), row.side("of that the base template (cold boot, save)", "ms")
    for number in range(COLD_SHAPES):
        before = len(bench.server.log.read_text())
        cold.add(timed(lambda: bench.client.delete(bench.sandbox(memory_gb=(514 + 2 * number) / 1024))))
        for found in re.finditer(r"base template made.*?ms=(\d+)", strip_colours(bench.server.log.read_text()[before:])):
            made_ms.add(float(found[1]))
    row.results["ratio to docker"] = ours.median / theirs.median
    row.results["cold start / start"] = cold.median / ours.median
    if made_ms.values:
        row.results["cold boot alone / start"] = made_ms.median / ours.median
    row.notes.append("a cold start here boots the kernel, keeps the state as a base template and restores it; there is no other way to boot cold")
    return row


def fresh_image(bench: Bench, number: int) -> str:
    """The image with one file more, under a name of its own, ready on both sides."""
    name, path = f"start:{number}", bench.folder / "start.tar"
    shutil.copyfile(bench.tar, path)
    with tarfile.open(path, "a") as tar:
        mark = tarfile.TarInfo("./mark")
        mark.size = 8
        tar.addfile(mark, io.BytesIO(number.to_bytes(8, "big")))
    bench.warren("images", "import", str(path), "--name", name)
    bench.docker("import", str(path), name)
    path.unlink()
    return name


def strip_colours(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def cpu_ms(pid: int) -> float:
    """Time on a CPU of all threads of a process, milliseconds."""
    return sum(int(Path(task, "schedstat").read_text().split()[0]) for task in Path(f"/proc/{pid}/task").iterdir()) / 1e6


def exec_true(bench: Bench) -> Row:
    import httpx

    row = Row("exec: round trip of `true` by the SDK, sandbox warm, against docker exec", "<= 60 ms under emulation, of which <= 3 ms outside the guest")
    sandbox = bench.sandbox()
    bench.docker("run", "--detach", "--name", "warm", "bench:v1", "sleep", "inf")
    ours, theirs = row.side("warren, SDK execute_command", "ms"), row.side("docker exec warm true", "ms")
    for _ in range(20):
        bench.client.execute_command(sandbox, "true")
    shim = bench.server.shim_of(sandbox).pid
    before = {pid: cpu_ms(pid) for pid in (bench.server.pid, shim)}
    for number in range(EXECS):
        ours.add(timed(lambda: bench.client.execute_command(sandbox, "true")))
    spent = {pid: (cpu_ms(pid) - ms) / EXECS for pid, ms in before.items()}
    for _ in range(EXECS // 4):
        theirs.add(timed(lambda: bench.docker("exec", "warm", "true")))
    auth = bench.client._auth_cache.get_or_refresh(sandbox)
    base = f"{auth['gateway_url']}/{auth['user_ns']}/{auth['job_id']}"
    refused, missing = row.side("gateway's own answer (401), HTTP and client", "ms"), row.side("smallest answer of the agent (404), whole path", "ms")
    with httpx.Client(trust_env=False, headers={"authorization": f"Bearer {auth['token']}"}) as http:
        for _ in range(EXECS):
            refused.add(timed(lambda: http.get(f"{base}/read-file?path=/none", headers={"authorization": "Bearer no"})))
            missing.add(timed(lambda: http.get(f"{base}/read-file?path=/none")))
    row.results["outside: CPU of serve a command, ms"] = spent[bench.server.pid]
    row.results["outside: CPU of shim a command, ms"] = spent[shim]
    row.results["outside: both and the 401 path together, ms"] = sum(spent.values()) + refused.median
    bench.docker("rm", "--force", "warm")
    bench.client.delete(sandbox)
    return row


def convert(bench: Bench) -> Row:
    row = Row(f"convert: a local root tar of {CONVERTED_MB} MB to a bootable disk, serve on one core, against docker import", ">= 150 MB/s on one core; peak memory <= 200 MB")
    tars = [large_tar(bench, number) for number in range(CONVERSIONS)]
    size = tars[0].stat().st_size / MB
    own = Server(BINARY, bench.folder / "convert")
    wrapper = bench.folder / "pinned"
    wrapper.write_text(f'#!/bin/sh\nexec taskset --cpu-list {ONE_CORE} {BINARY} "$@"\n')
    wrapper.chmod(0o755)
    own.binary = wrapper
    ours, theirs = row.side("warren images import", "MB/s"), row.side("docker import", "MB/s")
    try:
        own.start()
        env = {"PRIME_API_BASE_URL": own.url, "PRIME_API_KEY": own.api_key}
        for number, tar in enumerate(tars):
            tar.read_bytes()
            ours.add(size / timed(lambda: bench.warren("images", "import", str(tar), "--name", f"large:{number}", env=env)) * 1000)
            theirs.add(size / timed(lambda: bench.docker("import", str(tar), f"large:{number}")) * 1000)
        row.results["peak memory of serve, MB"] = processes.peak_kib(own.pid) * 1024 / MB
    finally:
        own.close()
        for tar in tars:
            tar.unlink()
    row.notes.append(f"the tar has {size:.0f} MB; both sides read it from the page cache; each run has content never seen before")
    return row


def large_tar(bench: Bench, number: int) -> Path:
    """The image's root, again below /copies until the size is reached, and one file that makes it new."""
    path = bench.folder / f"large-{number}.tar"
    with tarfile.open(bench.tar) as source:
        entries = [(entry, source.extractfile(entry).read() if entry.isreg() else b"") for entry in source]
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as out:
        mark = tarfile.TarInfo("./mark")
        mark.size = 8
        out.addfile(mark, io.BytesIO(number.to_bytes(8, "big")))
        for number_of_copy in range(100):
            for entry, data in entries:
                if out.offset >= CONVERTED_MB * MB:
                    return path
                prefix = f"./copies/{number_of_copy}/" if number_of_copy else "./"
                clone = copy.copy(entry)
                clone.name, clone.pax_headers = prefix + entry.name, {}
                if entry.islnk():
                    clone.linkname = prefix + entry.linkname
                out.addfile(clone, io.BytesIO(data))
    return path


def memory(bench: Bench) -> Row:
    row = Row(f"memory: PSS of an idle sandbox of 512 MiB, all its processes, {IDLE_SANDBOXES} running, against idle containers", "<= 90 MB under emulation")
    ids = [bench.sandbox() for _ in range(IDLE_SANDBOXES)]
    names = [f"idle{n}" for n in range(IDLE_SANDBOXES)]
    for name in names:
        bench.docker("run", "--detach", "--name", name, "bench:v1", "sleep", "inf")
    ours, vmms, theirs = row.side("warren sandbox", "MB"), row.side("of that its VMM", "MB"), row.side("docker container and its shim", "MB")
    # Idle is when a second's worth of CPU no longer changes much; a fixed rest is enough to get there.
    time.sleep(IDLE_SETTLE_SECS)
    for sandbox in ids:
        mine = bench.server.processes_of(sandbox)
        ours.add(sum(processes.pss_kib(p.pid) for p in mine) * 1024 / MB)
        vmms.add(sum(processes.pss_kib(p.pid) for p in mine if p.is_vmm) * 1024 / MB)
    for name in names:
        theirs.add(sum(processes.pss_kib(pid) for pid in bench.docker.pids(name)) * 1024 / MB)
    row.results["serve itself, PSS, MB"] = processes.pss_kib(bench.server.pid) * 1024 / MB
    bench.client.bulk_delete(sandbox_ids=ids)
    for name in names:
        bench.docker("rm", "--force", name)
    return row


def transfer(bench: Bench) -> Row:
    import httpx

    row = Row(f"transfer: upload and download of {TRANSFER_MB} MB, by the CLI and by the SDK, against docker cp", ">= 100 MB/s each")
    sandbox = bench.sandbox(memory_gb=1)
    bench.docker("run", "--detach", "--name", "files", "bench:v1", "sleep", "inf")
    source, back = bench.folder / "source", bench.folder / "back"
    source.write_bytes(os.urandom(TRANSFER_MB * MB))
    env = {"PRIME_API_BASE_URL": bench.server.url, "PRIME_API_KEY": bench.server.api_key}
    with Sink() as sink:
        actions = {
            "warren sandbox upload": lambda: bench.warren("sandbox", "upload", sandbox, str(source), "/large", env=env),
            "warren sandbox download": lambda: bench.warren("sandbox", "download", sandbox, "/large", str(back), env=env),
            "SDK upload_file": lambda: bench.client.upload_file(sandbox, "/large", str(source)),
            "SDK's client, to a server that drops what it gets": lambda: httpx.post(sink.url, files={"file": ("f", source.read_bytes())}, timeout=60, trust_env=False),
            "SDK download_file": lambda: bench.client.download_file(sandbox, "/large", str(back)),
            "docker cp in": lambda: bench.docker("cp", str(source), "files:/large"),
            "docker cp out": lambda: bench.docker("cp", "files:/large", str(bench.folder / "of-docker")),
        }
        sides = {name: row.side(name, "MB/s") for name in actions}
        for _ in range(TRANSFERS):
            for name, action in actions.items():
                back.unlink(missing_ok=True)
                sides[name].add(TRANSFER_MB / timed(action) * 1000)
                assert "download" not in name or back.stat().st_size == TRANSFER_MB * MB
    row.notes.append("the SDK holds a file in memory and copies what it has not sent yet at each send: the line with the server that drops all is its own limit")
    bench.docker("rm", "--force", "files")
    bench.client.delete(sandbox)
    return row


class Sink:
    """A server in a process of its own that reads an upload as fast as it can and drops it."""

    def __enter__(self) -> Sink:
        self._process = subprocess.Popen([sys.executable, Path(__file__).with_name("sink.py")], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout
        self.url = f"http://127.0.0.1:{int(self._process.stdout.readline())}/"
        return self

    def __exit__(self, *args: object) -> None:
        self._process.kill()
        self._process.wait()


ROWS: dict[str, Callable[[Bench], Row]] = {"start": start, "exec": exec_true, "convert": convert, "memory": memory, "transfer": transfer, **image_rows.ROWS, **snapshot_rows.ROWS}


def machine(bench: Bench) -> dict[str, Any]:
    model = re.search(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    with bench.server.http() as http:
        health = http.get("/healthz").json()
    return {"cpu": model[1] if model else "?", "cpus": os.cpu_count(), "kernel": platform.release(), "accelerator": health.get("accel"), "load_before": os.getloadavg()[0]}


def main() -> int:
    wanted = sys.argv[1:] or list(ROWS)
    if unknown := [name for name in wanted if name not in ROWS]:
        print(f"bench: no such row: {', '.join(unknown)}; there are: {', '.join(ROWS)}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="wbench-"))
    bench = Bench(folder)
    rows: dict[str, Any] = {}
    try:
        bench.start()
        about = machine(bench)
        print("machine:", ", ".join(f"{k} {v}" for k, v in about.items()), "\n", flush=True)
        for name in wanted:
            row = ROWS[name](bench)
            rows[name] = row.json()
            print(row.text(), "\n", flush=True)
        bench.server.delete_all()
        waiting.until(lambda: not bench.server.folders(), 30, "nothing is left")
    finally:
        bench.close()
        shutil.rmtree(folder, ignore_errors=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    out = ROOT / "bench/out" / f"{now:%Y%m%dT%H%M%SZ}.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps({"at": now.isoformat(), "machine": about, "rows": rows}, indent=1))
    print(f"written to {out.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
