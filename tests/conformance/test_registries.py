"""References and registries: saved logins, who may use what is here, waits, one request a digest, tags that move."""

from __future__ import annotations

import concurrent.futures
import json
import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import oci
import pytest
import waiting
from commands import Done, warren
from conftest import BINARY, SMALL, seed
from fake_registry import FakeRegistry
from registry import Registry
from server import Server

LOGIN = "alice:correct horse"
SOON_SECS = 20


@pytest.fixture(scope="module")
def own(workspace: Path, server: Server) -> Iterator[Server]:
    """A server of this module, so that tags are asked about again where a test says so and caches are its own."""
    own = Server(BINARY, workspace / "registries", arguments=["--tag-fresh-secs", "600"])
    seed(own.data_dir, server.data_dir)
    (own.data_dir / "registries.toml").write_text("offline-ok = false\nrate-limit-wait-secs = 20\n")
    own.start()
    yield own
    try:
        own.delete_all()
        own.assert_clean()
    finally:
        own.close()


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake


class User:
    """One account of the server, with `warren` and the API as it has them."""

    def __init__(self, server: Server, key: str) -> None:
        self.key, self.environment = key, {"WARREN_URL": server.url, "WARREN_API_KEY": key}
        self.http = server.http(key=key)

    def warren(self, *words: str, stdin: bytes | None = None) -> Done:
        return warren(*words, env=self.environment, stdin=stdin)

    def login(self, host: str, login: str, *more: str) -> Done:
        user, password = login.split(":")
        return self.warren("registry", "add", host, "--user", user, "--password-stdin", *more, stdin=password.encode() + b"\n")

    def check(self, reference: str) -> dict[str, object]:
        return json.loads(self.warren("registry", "check-image", reference, "-o", "json").stdout)

    def create(self, reference: str) -> dict[str, object]:
        body = {"name": f"r-{uuid.uuid4().hex[:6]}", "docker_image": reference, **SMALL}
        return self.http.post("/api/v1/sandbox", json=body).raise_for_status().json()

    def ended(self, sandbox_id: object, secs: float = SOON_SECS) -> dict[str, object]:
        """The sandbox, once it runs or is over."""
        def look() -> dict[str, object] | None:
            seen = self.http.get(f"/api/v1/sandbox/{sandbox_id}").raise_for_status().json()
            return seen if seen["status"] in ("RUNNING", "ERROR") else None

        return waiting.until(look, secs, f"{sandbox_id} runs or is over")

    def delete(self, sandbox_id: object) -> None:
        self.http.delete(f"/api/v1/sandbox/{sandbox_id}").raise_for_status()


@pytest.fixture(scope="module")
def owner(own: Server) -> User:
    return User(own, own.api_key)


@pytest.fixture
def user(own: Server, owner: User) -> Callable[[], User]:
    def user() -> User:
        made = owner.http.post("/api/v1/admin/users", json={"slug": f"u{uuid.uuid4().hex[:8]}"}).raise_for_status().json()
        return User(own, made["apiKey"])

    return user


def tiny(content: str, *below: oci.Layer) -> oci.Image:
    return oci.Image([*below, oci.LayerTar().add("content", data=content.encode()).layer()])


def test_saved_logins_are_listed_without_passwords_and_removed(own: Server, owner: User, user: Callable[[], User]):
    owner.login("https://index.docker.io/v1/", "ann:canary-7341").ok()
    listed = owner.warren("registry", "list", "-o", "json").ok().stdout
    assert [(c["server"], c["username"]) for c in json.loads(listed)["credentials"]] == [("docker.io", "ann")]
    old = owner.http.get("/api/v1/template/registry-credentials").raise_for_status().json()["credentials"]
    assert {"id", "name", "server", "createdAt", "updatedAt"} <= set(old[0]) and old[0]["server"] == "docker.io"
    assert user().warren("registry", "list", "--quiet").ok().stdout == ""
    assert "canary-7341" not in listed + json.dumps(old) + own.log.read_text()
    for path in own.data_dir.rglob("*"):
        assert not path.is_file() or b"canary-7341" not in path.read_bytes(), path
    owner.warren("registry", "remove", "docker.io").ok()
    gone = owner.warren("registry", "remove", "docker.io")
    assert gone.code == 1 and "docker.io" in gone.stderr
    refused = owner.warren("registry", "add", "docker.io", "--user", "ann")
    assert refused.code == 1 and "--password-stdin" in refused.stderr


def test_a_private_image_wants_the_callers_own_login(own: Server, fake: FakeRegistry, user: Callable[[], User], registry: Registry):
    """Alice's sandbox runs from it; Bob gets neither tag nor digest, through her registry or one of his own."""
    image = registry.images.get("static")
    reference = fake.push("secret/app", "v1", image)
    fake.logins["secret/app"] = LOGIN
    alice, bob = user(), user()
    assert alice.check(reference)["code"] == "image_access_denied"
    alice.login(fake.address, LOGIN).ok()
    assert alice.check(reference)["accessible"] is True
    made = alice.create(reference)
    seen = alice.ended(made["id"], 120)
    assert seen["status"] == "RUNNING", seen
    manifest = oci.digest(image.manifest())
    assert seen["imageDigest"] == manifest
    # Bob's registry says that it has the same manifest, and has none of the bytes.
    with FakeRegistry() as of_bob:
        of_bob.put_manifest("mine/app", "v1", oci.MANIFEST, image.manifest())
        for tried in (reference, f"{fake.address}/secret/app@{manifest}", f"{fake.address}/open/app@{manifest}", f"{of_bob.address}/mine/app:v1"):
            over = bob.ended(bob.create(tried)["id"])
            assert (over["status"], over["errorType"]) == ("ERROR", "IMAGE_PULL_FAILED"), (tried, over)
            assert bob.check(tried)["accessible"] is False, tried
    assert "secret/app" not in bob.warren("images", "list").ok().stdout
    bob.login(fake.address, "bob:wrong").ok()
    denied = bob.check(reference)
    assert denied["code"] == "image_access_denied" and "saved one was not accepted" in str(denied["details"])
    bob.login(fake.address, LOGIN).ok()
    blobs = sum(fake.gets()[layer.digest] for layer in image.layers)
    again = bob.create(reference)
    assert bob.ended(again["id"], 120)["status"] == "RUNNING"
    assert sum(fake.gets()[layer.digest] for layer in image.layers) == blobs, "what he may have now is here already"
    for who, sandbox in ((alice, made), (bob, again)):
        who.delete(sandbox["id"])
    password = LOGIN.split(":")[1].encode()
    for path in (own.log, *own.data_dir.rglob("*")):
        assert not path.is_file() or path.stat().st_size > 64 << 20 or password not in path.read_bytes(), path


def faults(fake: FakeRegistry) -> dict[str, tuple[str, str]]:
    """References that cannot be had, with their code and a word of the message."""
    fake.push("good", "v1", tiny("good"))
    fake.push("private", "v1", tiny("private"))
    fake.logins["private"] = LOGIN
    fake.push("arm", "v1", oci.Image(tiny("arm").layers, architecture="arm64"))
    foreign = [{"mediaType": oci.MANIFEST, "digest": oci.digest(a.encode()), "size": 1, "platform": {"os": "linux", "architecture": a}} for a in ("arm64", "riscv64")]
    inner = fake.put_index("foreign", "inner", foreign)
    fake.put_index("foreign", "v1", [{"mediaType": oci.INDEX, "digest": inner, "size": 1}])
    deepest = fake.put_manifest("deep", "leaf", oci.MANIFEST, tiny("deep").manifest())
    kind = oci.MANIFEST
    for level in range(6):
        deepest, kind = fake.put_index("deep", "v1", [{"mediaType": kind, "digest": deepest, "size": 1, **({"platform": {"os": "linux", "architecture": "amd64"}} if level == 0 else {})}]), oci.INDEX
    spoiled = tiny("spoiled")
    fake.push("spoiled", "v1", spoiled)
    fake.spoil("spoiled", spoiled.layers[0].digest)
    fake.push("limited", "v1", tiny("limited"))
    fake.fault = lambda verb, path: (429, {"retry-after": "3600"}) if "/limited/" in path else None
    return {
        "good:v2": ("image_not_found", "v2"),
        "private:v1": ("image_access_denied", "login"),
        "arm:v1": ("image_wrong_architecture", "arm64"),
        "foreign:v1": ("image_wrong_architecture", "riscv64"),
        "deep:v1": ("image_index_too_deep", "deeper"),
        "spoiled:v1": ("image_digest_mismatch", spoiled.layers[0].digest),
        "limited:v1": ("image_rate_limited", "3600 s"),
    }


def test_each_failure_has_its_code_within_seconds(own: Server, owner: User, fake: FakeRegistry):
    cases = {f"{fake.address}/{name}": expected for name, expected in faults(fake).items()}
    cases["127.0.0.1:1/app:v1"] = ("image_registry_unreachable", "127.0.0.1:1")
    for reference, (code, word) in cases.items():
        began = time.monotonic()
        answer = owner.http.post("/api/v1/images/pull", json={"reference": reference}, timeout=SOON_SECS)
        assert (answer.json()["code"], word in answer.json()["detail"]) == (code, True), answer.text
        pulled = owner.warren("images", "pull", reference)
        assert pulled.code == 1 and word in pulled.stderr and "hint:" in pulled.stderr, pulled
        if code != "image_digest_mismatch":
            assert owner.check(reference)["code"] == code
        over = owner.ended(owner.create(reference)["id"])
        assert over["status"] == "ERROR" and word in str(over["errorMessage"]) and code.removeprefix("image_") in str(over["errorMessage"]), over
        assert time.monotonic() - began < SOON_SECS, reference
    assert owner.warren("images", "pull", f"{fake.address}/good:v1").ok()


def test_a_full_disk_is_its_own_error_and_frees_the_cache(workspace: Path, server: Server, fake: FakeRegistry):
    own = Server(BINARY, workspace / "full")
    seed(own.data_dir, server.data_dir)
    images = own.data_dir / "images"
    images.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(images)], check=True)
    try:
        own.start()
        who = User(own, own.api_key)
        layer = oci.LayerTar().add("noise", data=os.urandom(30 << 20)).layer()
        pulled = who.warren("images", "pull", fake.push("large", "v1", tiny("x", layer)))
        assert pulled.code == 1 and "No space left on device" in pulled.stderr and "more disk" in pulled.stderr, pulled
        who.warren("images", "pull", fake.push("small", "v1", tiny("small"))).ok()
    finally:
        own.close()
        subprocess.run(["umount", str(images)], check=True)


def test_indexes_within_indexes_boot(owner: User, fake: FakeRegistry):
    image = tiny("nested")
    fake.push("nested", "leaf", image)
    leaf = {"mediaType": oci.MANIFEST, "digest": oci.digest(image.manifest()), "size": len(image.manifest()), "platform": {"os": "linux", "architecture": "amd64"}}
    inner = fake.put_index("nested", "inner", [leaf])
    fake.put_index("nested", "v1", [{"mediaType": oci.INDEX, "digest": inner, "size": 1}])
    pulled = owner.http.post("/api/v1/images/pull", json={"reference": f"{fake.address}/nested:v1"}).raise_for_status().json()
    assert pulled["digest"] == leaf["digest"]


def test_a_rate_limit_is_waited_for_and_told(own: Server, owner: User, fake: FakeRegistry):
    reference = fake.push("busy", "v1", tiny("busy"))
    refusals = iter([(429, {"retry-after": "2"})] * 3)
    fake.fault = lambda verb, path: next(refusals, None) if "/blobs/" in path else None
    made = owner.create(reference)
    told: list[str] = []

    def look() -> bool:
        seen = owner.http.get(f"/api/v1/sandbox/{made['id']}").json()
        builds = owner.http.get("/api/v1/images/builds").json()["builds"]
        told.extend(b["waiting"] for b in builds if b["waiting"] and b["id"] == seen["pendingImageBuildId"])
        return seen["status"] in ("RUNNING", "PROVISIONING", "ERROR")

    waiting.until(look, 40, "the image is ready")
    assert any(text.startswith(f"rate limited by {fake.address}, next try in ") and text.endswith("attempt 2") for text in told), told
    assert any(text.endswith("attempt 4") for text in told), told
    refusals = iter([(429, {"retry-after": "2"})] * 2)
    pulled = owner.warren("images", "pull", fake.push("busy", "v2", tiny("busy, too"))).ok()
    assert f"rate limited by {fake.address}" in pulled.stderr
    log = own.log.read_text()
    assert f"rate limited by {fake.address}; asking again" in log and "image is ready" in log and "fetched_mb" in log
    owner.delete(made["id"])


def test_many_tags_that_share_layers_cause_one_request_a_digest(owner: User, fake: FakeRegistry):
    """30 tags, 300 pulls and checks at once: no digest is asked for twice, in this life of the server and the next."""
    base = oci.LayerTar().add("base", data=os.urandom(3 << 20)).layer()
    names = [fake.push(f"sweep-{n % 10}", f"v{n}", tiny(f"tag {n // 2}", base)) for n in range(30)]
    with concurrent.futures.ThreadPoolExecutor(60) as pool:
        answers = list(pool.map(lambda n: owner.http.post("/api/v1/images/pull", json={"reference": names[n % 30]}, timeout=120), range(300)))
    assert {a.status_code for a in answers} == {200}, [a.text for a in answers if a.status_code != 200][:3]
    assert len({a.json()["digest"] for a in answers}) == 15
    gets = fake.gets()
    assert gets[base.digest] == 1 and set(gets.values()) == {1}, gets.most_common(3)
    assert not [seen.path for seen in fake.seen if seen.verb == "GET" and "sha256:" not in seen.path]


def test_the_cache_survives_a_kill_and_holds_nothing_false(own: Server, owner: User, fake: FakeRegistry):
    base = oci.LayerTar().add("base", data=os.urandom(2 << 20)).layer()
    owner.warren("images", "pull", fake.push("kept", "v1", tiny("one", base))).ok()
    # Killed in the middle of a transfer.
    other = oci.LayerTar().add("other", data=os.urandom(2 << 20)).layer()
    reference = fake.push("kept", "v2", tiny("two", base, other))
    fake.fault = lambda verb, path: (429, {"retry-after": "15"}) if other.digest in path else None
    owner.http.post("/api/v1/sandbox", json={"name": "cut", "docker_image": reference, **SMALL}).raise_for_status()
    waiting.until(lambda: fake.asked(other.digest), SOON_SECS, "the second layer is asked for")
    own.kill()
    (own.data_dir / "images/blobs" / base.digest.removeprefix("sha256:")).write_bytes(b"damaged while nobody watched")
    fake.fault = lambda verb, path: None
    own.start()
    assert not list((own.data_dir / "images/tmp").iterdir()) or own.http().get("/api/v1/images/builds").json()["builds"]
    owner.warren("images", "pull", reference).ok()
    assert fake.gets()[base.digest] == 2, "fetched again, since what was here was damaged"
    owner.warren("images", "pull", fake.push("kept", "v3", tiny("three", base, other))).ok()
    assert (fake.gets()[base.digest], fake.gets()[other.digest]) == (2, 1)


def test_a_moved_tag_is_seen_after_a_pull_and_changes_nothing_that_runs(owner: User, registry: Registry, fake: FakeRegistry):
    static = registry.images.get("static")
    versions = [static.with_config(env={"VERSION": str(n)}) for n in (1, 2)]
    digests = [oci.digest(image.manifest()) for image in versions]
    reference = fake.push("moved", "v1", versions[0])
    first = owner.ended(owner.create(reference)["id"], 120)
    fake.push("moved", "v1", versions[1])
    asked = fake.asked("/moved/manifests/v1")
    second = owner.ended(owner.create(reference)["id"], 120)
    assert fake.asked("/moved/manifests/v1") == asked, "not asked again so soon"
    owner.warren("images", "pull", reference).ok()
    third = owner.ended(owner.create(reference)["id"], 120)
    assert [s["imageDigest"] for s in (first, second, third)] == [digests[0], digests[0], digests[1]]
    shown = owner.http.get(f"/api/v1/sandbox/{first['id']}").json()
    assert (shown["status"], shown["imageDigest"]) == ("RUNNING", digests[0])
    listed = json.loads(owner.warren("sandbox", "list", "-o", "json").ok().stdout)["sandboxes"]
    assert {s["id"]: s["image_digest"] for s in listed}[third["id"]] == digests[1]
    assert digests[0][7:19] in owner.warren("sandbox", "list").ok().stdout and digests[0] in owner.warren("sandbox", "get", str(first["id"])).ok().stdout
    for sandbox in (first, second, third):
        owner.delete(sandbox["id"])


def test_a_build_shows_layers_and_bytes(owner: User, fake: FakeRegistry):
    layers = [oci.LayerTar().add(f"f{n}", data=os.urandom(1 << 20)).layer() for n in range(3)]
    reference = fake.push("steps", "v1", oci.Image(layers))
    held = iter([(429, {"retry-after": "3"})])
    fake.fault = lambda verb, path: next(held, None) if layers[2].digest in path else None
    made = owner.create(reference)
    builds = lambda: [b for b in owner.http.get("/api/v1/images/builds").json()["builds"] if b["reference"] == reference and b["layersDone"] == 2]
    seen = waiting.until(builds, SOON_SECS, "two layers are here")[0]
    assert (seen["step"], seen["layersTotal"], seen["bytesTotal"]) == ("pulling", 3, sum(len(x.blob) for x in layers)), seen
    assert seen["bytesDone"] >= sum(len(x.blob) for x in layers[:2])
    assert reference in owner.warren("images", "pulls").ok().stdout
    owner.delete(made["id"])
