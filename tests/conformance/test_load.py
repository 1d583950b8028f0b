"""What takes minutes and much memory: `make load`. Prints what it saw."""

from __future__ import annotations

import concurrent.futures
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci
import pytest
import waiting
from conftest import BINARY, SMALL, seed
from fake_registry import FakeRegistry
from images import Images
from prime_sandboxes import APIClient, SandboxClient
from server import Server

CREATES = int(os.environ.get("WARREN_LOAD_CREATES", "200"))
RUN_SECS = 1500
COMMAND_SECS = 300
AT_ONCE = 16


@pytest.fixture
def own(workspace: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    own = Server(BINARY, workspace / "load")
    seed(own.data_dir, server.data_dir)
    own.start()
    for name, value in own.environment().items():
        monkeypatch.setenv(name, value)
    yield own
    try:
        own.delete_all()
        own.assert_clean(300)
    finally:
        own.close()


def free_mib() -> int:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) >> 10


def test_line_7_many_creates_of_one_unseen_image(own: Server, images: Images):
    """One pull, one conversion, and each of the machines answers."""
    glibc = images.get("glibc")
    layer = oci.LayerTar().add("unseen", data=os.urandom(1 << 20)).layer()
    with FakeRegistry() as fake, own.http(timeout=120) as http:
        image = fake.push("unseen", "v1", glibc.with_config(layers=[*glibc.layers, layer]))
        began, free = time.monotonic(), free_mib()
        body = {"docker_image": image, **SMALL, "timeout_minutes": 60}

        def create(n: int) -> str:
            answer = http.post("/api/v1/sandbox", json={"name": f"load-{n}-{uuid.uuid4().hex[:6]}", **body})
            return answer.raise_for_status().json()["id"]

        with concurrent.futures.ThreadPoolExecutor(CREATES) as pool:
            ids = list(pool.map(create, range(CREATES)))
        created = time.monotonic() - began

        def seen() -> list[dict[str, Any]]:
            page = http.get("/api/v1/sandbox", params={"per_page": 100, "page": 1}).raise_for_status().json()
            sandboxes = page["sandboxes"]
            while page["hasNext"]:
                page = http.get("/api/v1/sandbox", params={"per_page": 100, "page": page["page"] + 1}).raise_for_status().json()
                sandboxes += page["sandboxes"]
            return sandboxes

        def all_run() -> bool:
            now = seen()
            bad = [(one["id"], one["status"], one.get("errorMessage")) for one in now if one["status"] not in ("PENDING", "PROVISIONING", "RUNNING")]
            assert not bad, bad[:3]
            return sum(one["status"] == "RUNNING" for one in now) == CREATES

        waiting.until(all_run, RUN_SECS, f"{CREATES} sandboxes run")
        running, used = time.monotonic() - began, free - free_mib()
        client = SandboxClient(APIClient())
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            answers = list(pool.map(lambda id: client.execute_command(id, "stat -c %s /unseen; hostname", timeout=COMMAND_SECS), ids))
        answered = time.monotonic() - began
        assert {answer.exit_code for answer in answers} == {0} and all(answer.stdout.startswith("1048576\n") for answer in answers)
        assert len({answer.stdout for answer in answers}) == CREATES, "each is a machine of its own"
        assert set(fake.gets().values()) == {1} and fake.asked("manifests/v1") == 1, fake.gets().most_common(3)
        assert own.log.read_text().count("converted an image") == 1 and len(list((own.data_dir / "images/manifests").iterdir())) == 1
    print(f"\n{CREATES} creates of one unseen image: answered after {created:.0f} s, all run after {running:.0f} s, "
          f"each has run a command after {answered:.0f} s; {used} MiB of memory, {used / CREATES:.0f} a sandbox")
