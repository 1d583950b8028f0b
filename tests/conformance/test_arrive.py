"""Images that come from an object store: sandboxes start while their image still arrives, and what they read is right."""

from __future__ import annotations

import hashlib
import json
import re
import random
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from prime_sandboxes import APIClient, SandboxClient

import oci
import waiting
from conftest import BINARY, SMALL, request, seed
from fake_registry import FakeRegistry
from images import Images
from objects import Objects
from registry import Registry
from server import Server

BIG_MB = 96
# So slow that the sandbox runs long before the rest is here, even on a busy machine.
BYTES_PER_SEC = 3_000_000
ARRIVE_SECS = 300
UPLOAD_SECS = 120
# Less than a part is waited for that may still come.
ANSWER_SECS = 100

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
    """What the sandbox's disk lies on, as its VMM was told."""
    command = node.vmm_of(sandbox_id).command
    disks = re.findall(r'-blockdev (\{.*?\}) -device', command)
    root = next(disk for disk in map(json.loads, disks) if disk["node-name"] == "root")
    return root["backing"]["file"]["driver"]


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


@pytest.fixture
def damaged(workspace: Path, server: Server, images: Images) -> Iterator[tuple[Server, Objects, FakeRegistry, str]]:
    """A node, its object store in which half of an image's packs are gone and the others damaged, and the registry of that image."""
    folder = workspace / f"damaged-{uuid.uuid4().hex[:6]}"
    folder.mkdir()
    objects = Objects(folder / "objects").start()
    origin = Server(BINARY, folder / "origin", arguments=["--objects", objects.url])
    node = Server(BINARY, folder / "node", arguments=["--objects", objects.url])
    musl = images.get("musl")
    layer = oci.LayerTar().add("noise", data=random.Random(8).randbytes(20 << 20)).layer()
    with FakeRegistry() as fake:
        reference = fake.push("app", "v1", musl.with_config(layers=[*musl.layers, layer]))
        try:
            seed(origin.data_dir, server.data_dir)
            origin.start()
            with origin.http(timeout=300) as http:
                http.post("/api/v1/images/pull", json={"reference": reference}).raise_for_status()
            waiting.until(lambda: objects.images() == 1, UPLOAD_SECS, "the image is in the object store")
            origin.close()
            for number, pack in enumerate(sorted(objects.folder.glob("packs/*"))):
                if number % 2:
                    pack.unlink()
                else:
                    pack.write_bytes(bytes(byte ^ 1 for byte in pack.read_bytes()))
            seed(node.data_dir, server.data_dir)
            node.start()
            yield node, objects, fake, reference
            node.delete_all()
            node.assert_clean()
        finally:
            origin.close()
            node.close()
            objects.close()


def test_what_the_object_store_has_damaged_comes_from_the_registry(damaged: tuple[Server, Objects, FakeRegistry, str], monkeypatch: pytest.MonkeyPatch) -> None:
    node, objects, fake, reference = damaged
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)
    client = SandboxClient(APIClient())
    sandbox = client.create(request(reference))
    client.wait_for_creation(sandbox.id)
    wanted = hashlib.sha256(random.Random(8).randbytes(20 << 20)).hexdigest()
    assert client.execute_command(sandbox.id, "sha256sum /noise", timeout=ARRIVE_SECS).stdout.split()[0] == wanted
    assert "the registry is asked for the image instead" in node.log.read_text()
    waiting.until(lambda: pushed(node), ARRIVE_SECS, "the object store has it again")
    assert objects.size() > 20 << 20


def test_what_nobody_can_give_is_told(damaged: tuple[Server, Objects, FakeRegistry, str]) -> None:
    node, _, fake, reference = damaged
    fake.fault = lambda verb, path: (404, {}) if "/blobs/" in path else None
    with node.http(timeout=120) as http:
        made = http.post("/api/v1/sandbox", json={"name": "lost", "docker_image": reference, **SMALL}).raise_for_status().json()

        def ended() -> dict[str, object] | None:
            seen = http.get(f"/api/v1/sandbox/{made['id']}").raise_for_status().json()
            return seen if seen["status"] == "ERROR" else None

        over = waiting.until(ended, ANSWER_SECS, "it is over")
    assert "object store" in over["errorMessage"] and fake.address in over["errorMessage"], over
