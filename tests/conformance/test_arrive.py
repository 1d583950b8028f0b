"""Images that come from an object store: sandboxes start while their image still arrives, and what they read is right."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from prime_sandboxes import APIClient, SandboxClient

import oci
import waiting
from conftest import BINARY, request, seed
from images import Images
from objects import Objects
from registry import Registry
from server import Server

BIG_MB = 96
# So slow that the sandbox runs long before the rest is here, even on a busy machine.
BYTES_PER_SEC = 3_000_000
ARRIVE_SECS = 300
UPLOAD_SECS = 120

pytestmark = pytest.mark.last


@pytest.fixture(scope="module")
def big(registry: Registry, images: Images) -> tuple[str, str]:
    """An image with one large file that no compression makes smaller: its reference, and the file's hash."""
    content = random.Random(7).randbytes(BIG_MB << 20)
    layer = oci.LayerTar().add("big", data=content).layer()
    image = images.get("glibc")
    return registry.push("big", "v1", image.with_config(layers=[*image.layers, layer])), hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def stored(workspace: Path, server: Server, big: tuple[str, str]) -> Path:
    """The folder of an object store that has the image, put there by another node over HTTP."""
    objects = Objects(workspace / "objects").start()
    origin = Server(BINARY, workspace / "origin", arguments=["--objects", objects.url])
    seed(origin.data_dir, server.data_dir)
    try:
        origin.start()
        with origin.http(timeout=300) as http:
            http.post("/api/v1/images/pull", json={"reference": big[0]}).raise_for_status()
        waiting.until(lambda: objects.images() == 1, UPLOAD_SECS, "the image is in the object store")
        assert objects.size() > BIG_MB << 20
    finally:
        origin.close()
        objects.close()
    return objects.folder


@pytest.fixture
def slow(stored: Path) -> Iterator[Objects]:
    objects = Objects(stored, BYTES_PER_SEC).start()
    yield objects
    objects.close()


@pytest.fixture
def node(workspace: Path, server: Server, slow: Objects, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    node = Server(BINARY, workspace / "arriving", arguments=["--objects", slow.url])
    seed(node.data_dir, server.data_dir)
    try:
        node.start()
        for name, value in node.environment().items():
            monkeypatch.setenv(name, value)
        yield node
        node.delete_all()
        node.assert_clean()
    finally:
        node.close()


def pushed(node: Server) -> list[Path]:
    return list((node.data_dir / "images/artifacts").iterdir())


def backing(node: Server, sandbox_id: str) -> str:
    """What the sandbox's disk lies on, as its qcow2 header says."""
    header = (node.data_dir / "sandboxes" / sandbox_id / "vm/disk.qcow2").read_bytes()[:4096]
    start, length = int.from_bytes(header[8:16], "big"), int.from_bytes(header[16:20], "big")
    return json.loads(header[start : start + length].removeprefix(b"json:"))["file"]["driver"]


def test_a_sandbox_runs_while_its_image_arrives_and_survives_a_killed_server(node: Server, slow: Objects, big: tuple[str, str]) -> None:
    reference, sha256 = big
    client = SandboxClient(APIClient())
    sandbox = client.create(request(reference))
    client.wait_for_creation(sandbox.id)
    assert client.execute_command(sandbox.id, "cat /etc/os-release; ls /usr/bin | wc -l").exit_code == 0
    total = slow.size()
    assert slow.sent < total * 0.5, f"{slow.sent} of {total} bytes had come"
    assert backing(node, sandbox.id) == "nbd" and not pushed(node)

    node.kill()
    node.start()
    assert client.execute_command(sandbox.id, "head -c 100000 /big | wc -c").stdout.split() == ["100000"]
    assert not pushed(node), "it went on where it was, and is not at its end"
    # All of it, most of it read before its turn.
    assert client.execute_command(sandbox.id, "sha256sum /big", timeout=ARRIVE_SECS).stdout.split()[0] == sha256
    waiting.until(lambda: pushed(node), ARRIVE_SECS, "all has arrived")
    assert slow.sent < total * 1.5, "little came twice"

    later = client.create(request(reference))
    client.wait_for_creation(later.id)
    assert backing(node, later.id) == "raw", "straight from the store"
    for one in (sandbox.id, later.id):
        assert client.execute_command(one, "sha256sum /big; touch /new && sync", timeout=ARRIVE_SECS).stdout.split()[0] == sha256
