"""Lines 71 to 75 of the checklist: owned images without a Dockerfile, by the unmodified `prime` CLI and SDK."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import building
import pytest
import waiting
from commands import prime
from conftest import BINARY, request, seed
from prime_sandboxes import APIClient, APIError, SandboxClient
from prime_sandboxes.images import ImageClient
from prime_sandboxes.models import (
    BuildImageResponse,
    BulkBuildImageResponse,
    ImageUpdateItem,
    ImageUpdatePatch,
    ImageUpdateSource,
    PersonalImageOwner,
    TeamImageOwner,
    UpdateImagesRequest,
)
from registry import Registry
from server import Server

Create = Callable[..., Any]
BULK_SECS = 300


@pytest.fixture
def images_client(server: Server) -> ImageClient:
    return ImageClient(APIClient())


@pytest.fixture(autouse=True)
def nothing_left(server: Server) -> Iterator[None]:
    """Every test leaves the owner without images."""
    yield
    with server.http() as http:
        for item in http.get("/api/v1/images", params={"limit": 250}).raise_for_status().json()["data"]:
            http.delete(f"/api/v1/images/{item['imageName']}/{item['imageTag']}")


def built(server: Server, client: ImageClient, source: str, name: str, tag: str = "v1", **more: Any) -> dict[str, Any]:
    response = client.transfer_image(source, image_name=name, image_tag=tag, **more)
    return building.completed(server, response.build_id)


def test_line_71_one_source_and_two(server: Server, images_client: ImageClient, registry: Registry):
    one = images_client.transfer_image(registry.reference("musl"))
    assert isinstance(one, BuildImageResponse) and one.build_ids == [one.build_id]
    assert one.full_image_path == "prime/owner/musl:v1"
    two = images_client.transfer_image(f"{registry.reference('glibc')},{registry.address}/nothing:v9")
    assert isinstance(two, BulkBuildImageResponse)
    assert [result.source_image for result in two.results] == [registry.reference("glibc"), f"{registry.address}/nothing:v9"]
    assert building.completed(server, one.build_id)["fullImagePath"] == one.full_image_path
    building.completed(server, two.results[0].build.build_id)
    failed = building.over(server, two.results[1].build.build_id)
    assert (failed["status"], failed["errorCode"]) == ("FAILED", "image_not_found") and failed["errorMessage"]
    assert images_client.get_build_status(one.build_id)["status"] == "COMPLETED"


def test_line_71_push_of_a_source_by_the_cli(server: Server, registry: Registry):
    done = prime("images", "push", "mine:v3", "--source-image", registry.reference("musl")).ok()
    found = re.search(r"Build ID: (\S+)", done.stdout)
    assert found and "Image: prime/owner/mine:v3" in done.stdout, done.text
    building.completed(server, found[1])
    listed = json.loads(prime("images", "list", "--search", "MINE", "--output", "json").ok().stdout)
    assert [(item["imageName"], item["status"], item["artifactType"]) for item in listed["data"]] == [("mine", "COMPLETED", "VM_SANDBOX")]
    assert listed["totalCount"] == 1 and listed["data"][0]["sizeBytes"] > 0
    table = prime("images", "list").ok().stdout
    assert "prime/owner/mine:v3" in table and "Ready" in table and "Private" in table


def test_line_72_what_a_list_shows_can_be_run(server: Server, images_client: ImageClient, registry: Registry, create: Create, client: SandboxClient):
    built(server, images_client, registry.reference("glibc"), "app")
    item = images_client.list().data[0]
    sandbox = create(image=item.display_ref)
    assert client.execute_command(sandbox.id, "echo runs").stdout == "runs\n"
    assert sandbox.docker_image == "prime/owner/app:v1"


def test_a_moved_tag_changes_nothing_that_runs(server: Server, images_client: ImageClient, registry: Registry, create: Create, client: SandboxClient):
    built(server, images_client, registry.reference("glibc"), "app")
    old = create(image="prime/owner/app:v1")
    built(server, images_client, registry.reference("musl"), "app")
    new = create(image="prime/owner/app:v1")
    assert client.execute_command(new.id, "test -e /usr/bin/musl-hello && ! test -e /usr/bin/apt", timeout=60).exit_code == 0
    assert client.execute_command(old.id, "test -e /usr/bin/apt", timeout=60).exit_code == 0
    prime("images", "delete", "app:v1", "--yes").ok()
    assert client.execute_command(old.id, "md5sum /usr/bin/apt", timeout=60).exit_code == 0
    with pytest.raises(APIError, match="404"):
        client.create(request("prime/owner/app:v1"))


def test_line_73_delete_by_every_form(server: Server, images_client: ImageClient, registry: Registry):
    with server.http() as http:
        user_id = http.get("/api/v1/user/whoami").json()["data"]["id"]
    for form in ("app:v1", "prime/owner/app:v1", f"prime/{user_id}/app:v1", f"{user_id}/app:v1"):
        built(server, images_client, registry.reference("musl"), "app")
        assert "Deleted" in prime("images", "delete", form, "--yes").ok().stdout
        assert f"Image {form} not found" in prime("images", "delete", form, "--yes").stdout
    # Names that are words of the server's own paths.
    for name in ("build", "builds", "pull", "local", "import"):
        images_client.transfer_image(registry.reference("musl"), image_name=name, image_tag="start")
        assert "Deleted" in prime("images", "delete", f"{name}:start", "--yes").ok().stdout


def test_line_74_publish_update_and_dry_run_by_the_cli(server: Server, images_client: ImageClient, registry: Registry):
    for name in ("one", "two"):
        built(server, images_client, registry.reference("musl"), name)
    assert "to PUBLIC" in prime("images", "publish", "one:v1").ok().stdout
    assert "to PRIVATE" in prime("images", "unpublish", "prime/owner/one:v1").ok().stdout
    both = prime("images", "publish", "one:v1", "two:v1", "three:v1")
    assert both.code == 1 and "Made 2 image(s) public" in both.stdout and "three:v1" in both.stdout
    assert "Dry run" in (dry := prime("images", "update", "one:v1", "--name", "four", "--dry-run").ok().stdout) and "four:v1" in dry
    assert "two:v1 exists already" in prime("images", "update", "one:v1", "--name", "two").stdout
    assert "four:v2" in prime("images", "update", "one:v1", "--name", "four", "--tag", "v2", "--private").ok().stdout
    assert sorted(f"{item.image_name}:{item.image_tag}" for item in images_client.list().data) == ["four:v2", "two:v1"]


def test_line_74_changes_in_order_by_the_sdk(server: Server, images_client: ImageClient, registry: Registry):
    built(server, images_client, registry.reference("musl"), "app")
    with server.http() as http:
        team = http.post("/api/v1/admin/teams", json={"slug": f"team-of-{registry.port}"}).raise_for_status().json()["teamId"]
    own = lambda name: ImageUpdateSource(owner=PersonalImageOwner(), name=name, tag="v1")
    updates = [
        ImageUpdateItem(source=own("nothing"), set=ImageUpdatePatch(name="x")),
        ImageUpdateItem(source=ImageUpdateSource(reference="prime/owner/app:v1"), set=ImageUpdatePatch(name="moved")),
        ImageUpdateItem(source=own("moved"), set=ImageUpdatePatch(owner=TeamImageOwner(team_id=team))),
    ]
    for dry_run in (True, False):
        answer = images_client.update_images(UpdateImagesRequest(updates=updates, dry_run=dry_run))
        assert (answer.success, answer.dry_run) == (False, dry_run)
        assert [result.source for result in answer.results] == [update.source for update in updates]
        assert [result.error and result.error.code for result in answer.results] == ["not_found", None, None]
    listed = images_client.list(team_id=team)
    assert [item.display_ref for item in listed.data] == [f"prime/team-{team}/moved:v1"]
    assert "Deleted" in prime("images", "delete", f"prime/team-{team}/moved:v1", "--yes").ok().stdout


def test_private_images_are_their_owners(server: Server, images_client: ImageClient, registry: Registry, monkeypatch: pytest.MonkeyPatch):
    built(server, images_client, registry.reference("musl"), "app")
    with server.http() as http:
        other = http.post("/api/v1/admin/users", json={"slug": f"other-{registry.port}"}).raise_for_status().json()["apiKey"]
    theirs = {"PRIME_API_KEY": other}
    assert "404" in prime("sandbox", "create", "prime/owner/app:v1", "--yes", env=theirs).text
    assert "not found" in prime("images", "delete", "prime/owner/app:v1", "--yes", env=theirs).stdout
    prime("images", "publish", "app:v1").ok()
    assert "don't have permission" in prime("images", "delete", "prime/owner/app:v1", "--yes", env=theirs).stdout
    created = prime("sandbox", "create", "prime/owner/app:v1", "--yes", "--cpu-cores", "1", "--memory-gb", "0.25", env=theirs).ok()
    found = re.search(r"Successfully created sandbox (\S+)", created.text)
    assert found
    prime("sandbox", "delete", found[1], "--yes", env=theirs).ok()


def test_docker_hub_sources_become_the_platforms(workspace: Path, server: Server, registry: Registry, own_server: Server):
    registry.push("library/tiny", "1", registry.images.get("musl"))
    own_server.terminate()
    (own_server.data_dir / "registries.toml").write_text(f'[mirrors]\n"docker.io" = ["http://{registry.address}"]\n')
    own_server.start()
    done = prime("images", "push", "--source-image", "tiny:1").ok()
    assert "Owner: Platform" in done.stdout and "Image: tiny:1" in done.stdout
    building.completed(own_server, re.search(r"Build ID: (\S+)", done.stdout)[1])  # type: ignore[index]
    listed = ImageClient(APIClient()).list(platform=True)
    assert [(item.display_ref, item.owner_type.value, item.visibility.value) for item in listed.data] == [("tiny:1", "platform", "PUBLIC")]
    client = SandboxClient(APIClient())
    sandbox = client.create(request("tiny:1"))
    client.wait_for_creation(sandbox.id)
    assert client.execute_command(sandbox.id, "musl-hello").exit_code == 7


def test_line_75_the_quota_stops_a_bulk_push(workspace: Path, server: Server, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = Server(BINARY, workspace / "quota", arguments=["--images-per-owner", "2"])
    seed(own.data_dir, server.data_dir)
    sources = [registry.reference(name) for name in ("musl", "static", "glibc")]
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_text("".join(json.dumps({"source": source}) + "\n" for source in sources))
    try:
        own.start()
        done = prime("images", "push-bulk", "--manifest", str(manifest), "--failures-out", str(tmp_path / "failures.jsonl"), env=own.environment(), secs=BULK_SECS)
        assert done.code != 0 and "2/3 builds completed" in done.stdout and "image limit exceeded" in done.stdout, done.text
    finally:
        own.close()


def test_a_restart_finishes_what_was_asked_for(own_server: Server, registry: Registry):
    client = ImageClient(APIClient())
    response = client.transfer_image(",".join(registry.reference(name) for name in ("glibc", "musl", "static", "torture")))
    ids = [result.build.build_id for result in response.results]
    waiting.until(lambda: any(building.state(own_server, i)["status"] == "BUILDING" for i in ids), 30, "a build is under way")
    own_server.kill()
    own_server.start()
    for build_id in ids:
        building.completed(own_server, build_id)
