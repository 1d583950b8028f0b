"""What Dockerfiles build on: images of one's own, of registries with saved logins, by tag and by digest; never what one may not see."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import building
import httpx
import oci
import pytest
from commands import prime, warren
from conftest import request
from docker_side import Docker
from fake_registry import FakeRegistry
from images import Images, converted_disk
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server
from test_fidelity import WALK, Root, attribute_layer, hard_layers, of_guest
from test_image_builds import assert_same, clients_talk_to_it, docker, exported, reference, run_of  # fixtures among them

LOGIN = "alice:correct horse"
TOOLS = "private/tools"


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "file").write_text("of the context")
    return folder


@dataclass
class User:
    server: Server
    http: httpx.Client
    slug: str

    def build(self, name: str, context: Path) -> str:
        """Asks for a build; answers its id."""
        asked = self.http.post("/api/v1/images/build", json={"image_name": name, "image_tag": "v1"}).raise_for_status().json()
        building.upload(asked["upload_url"], building.context_of(context))
        self.http.post(f"/api/v1/images/build/{asked['build_id']}/start").raise_for_status()
        return asked["build_id"]


@pytest.fixture
def user(builds: Server) -> Iterator[Callable[[], User]]:
    made: list[User] = []

    def user() -> User:
        slug = f"u{uuid.uuid4().hex[:8]}"
        with builds.http() as http:
            key = http.post("/api/v1/admin/users", json={"slug": slug}).raise_for_status().json()["apiKey"]
        made.append(User(builds, builds.http(key=key, timeout=60), slug))
        return made[-1]

    yield user
    for one in made:
        one.http.delete("/api/v1/images/build-cache").raise_for_status()


def owned(builds: Server, source: str, name: str) -> dict[str, object]:
    """Makes an image of a registry the owner's own, private one."""
    with builds.http() as http:
        body = {"source_image": source, "image_name": name, "image_tag": "v1"}
        asked = http.post("/api/v1/images/build", json=body).raise_for_status().json()
    return building.completed(builds, asked["build_id"])


def save_login(server: Server, host: str) -> None:
    name, password = LOGIN.split(":")
    words = ("registry", "add", host, "--user", name, "--password-stdin")
    warren(*words, env=server.cli_environment(), stdin=password.encode() + b"\n").ok()


STAGES = """
ARG BASE=prime/owner/{name}
ARG TOOLS
FROM ${{BASE}}:v1 AS base
RUN echo "$FROM_BASE" > /made && pwd > /where
FROM {tools_by_digest} AS tools
FROM not.there.example/never:v1 AS unused
FROM --platform=linux/amd64 base
COPY --from=tools /tools /tools
COPY --from={tools} /tools/a /copied
RUN --mount=type=bind,from={tools},source=/tools,target=/mnt cp /mnt/a /bound
COPY file /file
"""


def test_stages_on_owned_images_and_on_those_of_registries(builds: Server, docker: Docker, fake: FakeRegistry, registry: Registry, images: Images, context: Path, tmp_path: Path):
    """Entry by entry, the root is that of `docker build` where Docker has all the bases."""
    musl = images.get("musl")
    base = musl.with_config(env={**musl.env, "FROM_BASE": 'a "quoted" $value'}, workdir="/srv/dir")
    owned(builds, registry.push("bases", "v1", base), "bases")
    tools = oci.Image([oci.LayerTar().directory("tools", mode=0o2750, gid=7).add("tools/a", data=b"tool", mode=0o4755, uid=3, gid=4).symlink("tools/b", "a").layer()])
    fake.logins[TOOLS] = LOGIN
    tag = fake.push(TOOLS, "v1", tools)
    by_digest = f"{fake.address}/{TOOLS}@{oci.digest(tools.manifest())}"
    save_login(builds, fake.address)
    (context / "Dockerfile").write_text(STAGES.format(name="bases", tools=tag, tools_by_digest=by_digest))
    build_id = building.push(builds, "stages", building.context_of(context))
    building.completed(builds, build_id)
    assert set(fake.gets().values()) == {1}, "pulled once, for tag and digest"
    assert run_of("prime/owner/stages:v1", "cat /made /where") == 'a "quoted" $value\n/srv/dir\n'
    for text in (building.logs(builds, build_id), builds.log.read_text()):
        assert LOGIN.split(":")[1] not in text
    # Docker itself knows no image by a digest that it did not pull.
    (context / "Dockerfile").write_text(STAGES.format(name="bases", tools=tag, tools_by_digest=tag))
    for name, image in (("prime/owner/bases:v1", base), (tag, tools)):
        docker("load", "--input", str(oci.write_docker_archive(tmp_path / "image.tar", image, name)))
    wanted = reference(docker, context, tmp_path / "export.tar")
    got = exported(SandboxClient(APIClient()), "prime/owner/stages:v1", tmp_path / "root.tar")
    assert_same(wanted, got, made=(b"made", b"where", b"bound"))
    # The machine has the bases by now, and calls nothing by the names that it had then.
    again = building.push(builds, "stages", building.context_of(context))
    building.completed(builds, again)
    assert "==> loading" in building.logs(builds, build_id) and "==> loading" not in building.logs(builds, again)


def walked(server: Server, image_digest: str, folder: Path) -> Root:
    """The root of an image as its disk has it."""
    folder.mkdir()
    disk, mount = converted_disk(server, image_digest, folder), folder / "mount"
    mount.mkdir()
    subprocess.run(["mount", "-o", "loop,ro,noload", str(disk), str(mount)], check=True)
    try:
        enter = f"import hashlib, os, stat\nos.chroot({str(mount)!r})\nos.chdir('/')\n"
        return of_guest(subprocess.run([sys.executable, "-c", enter + WALK], capture_output=True, check=True).stdout)
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def digest_of(server: Server, name: str) -> str:
    client = SandboxClient(APIClient())
    sandbox = client.create(request(f"prime/owner/{name}:v1"))
    client.wait_for_creation(sandbox.id)
    digest = client.client.request("GET", f"/sandbox/{sandbox.id}")["imageDigest"]
    client.delete(sandbox.id)
    return digest


def test_a_base_keeps_everything_that_it_has(builds: Server, registry: Registry, images: Images, context: Path, tmp_path: Path):
    """Owners, modes, times, links, devices, attributes of every kind: what a build adds is all that differs."""
    musl, torture = images.get("musl"), images.get("torture")
    odd = musl.with_config(layers=[*musl.layers, *torture.layers[1:], *hard_layers(), attribute_layer()])
    owned(builds, registry.push("odd", "v1", odd), "odd")
    (context / "Dockerfile").write_text("FROM prime/owner/odd:v1\nCOPY file /added\n")
    building.completed(builds, building.push(builds, "kept", building.context_of(context)))
    before = walked(builds, digest_of(builds, "odd"), tmp_path / "before")
    after = walked(builds, digest_of(builds, "kept"), tmp_path / "after")
    assert after.pop(b"added")["sha256"] and len(before) > 400
    assert before.keys() == after.keys()
    differing = {path: (after[path], entry) for path, entry in before.items() if after[path] != entry}
    assert differing == {}, f"{len(differing)} differ (after, before): {dict(list(differing.items())[:10])}"


def test_what_one_may_not_see_is_no_base(builds: Server, fake: FakeRegistry, registry: Registry, context: Path, user: Callable[[], User]):
    owned(builds, registry.reference("musl"), "hidden")
    fake.logins[TOOLS] = LOGIN
    save_login(builds, fake.address)
    tools = fake.push(TOOLS, "v1", oci.Image([oci.LayerTar().add("a", data=b"a").layer()]))
    stranger = user()
    cases = [
        ("prime/owner/hidden:v1", "image_not_found", "prime/owner/hidden:v1"),
        (tools, "image_access_denied", fake.address),
        ("prime/_server/builder:1", "image_not_found", "prime/_server/builder:1"),
        (f"{fake.address}/private/nothing:v1", "image_not_found", "nothing"),
    ]
    for image, code, told in cases:
        (context / "Dockerfile").write_text(f"FROM scratch\nCOPY --from={image} / /\n")
        ended = building.over(builds, stranger.build("refused", context))
        assert (ended["status"], ended["errorCode"]) == ("FAILED", code) and told in ended["errorMessage"], ended
    prime("images", "publish", "hidden:v1").ok()
    (context / "Dockerfile").write_text("FROM prime/owner/hidden:v1\nRUN echo seen > /seen\n")
    building.completed(builds, stranger.build("allowed", context))
