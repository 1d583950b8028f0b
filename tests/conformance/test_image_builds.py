"""Line 70 of the checklist, and what a build of a Dockerfile must be: that of `docker build`, bounded, private, and over after any crash.

Dockerfiles are built in real machines with Docker. A server of its own has the image for that, made once by scripts/builder-image.sh.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import building
import pytest
import waiting
from commands import prime, warren
from conftest import request
from docker_side import Docker
from images import Images
from prime_sandboxes import APIClient, SandboxClient
from registry import Registry
from server import Server
from test_fidelity import CONTENT, KINDS, Root, of_export

GONE_SECS = 30


@pytest.fixture(autouse=True)
def clients_talk_to_it(builds: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in builds.environment().items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def base(images: Images, tmp_path: Path) -> Path:
    """A context with a small root to start from."""
    folder = tmp_path / "context"
    folder.mkdir()
    return building.root_of(images, "musl", folder)


def run_of(image: str, script: str) -> str:
    client = SandboxClient(APIClient())
    sandbox = client.create(request(image))
    try:
        client.wait_for_creation(sandbox.id)
        done = client.execute_command(sandbox.id, script, timeout=120)
        assert done.exit_code == 0, done
        return done.stdout
    finally:
        client.delete(sandbox.id)


def test_line_70_push_by_the_cli(builds: Server, base: Path):
    (base / "Dockerfile").write_text("FROM scratch\nADD root0.tar /\nCOPY . /app\nRUN echo made at build > /made\nWORKDIR /app\nENV MODE=built\n")
    (base / ".dockerignore").write_text("*.log\nroot0.tar.bak\n")
    (base / "kept.txt").write_text("kept")
    (base / "left.log").write_text("left out")
    done = prime("images", "push", "app:v1", "--context", str(base)).ok()
    assert "Build context uploaded" in done.stdout and "Image: prime/owner/app:v1" in done.stdout, done.text
    build_id = re.search(r"Build ID: (\S+)", done.stdout)[1]  # type: ignore[index]
    building.completed(builds, build_id)
    out = run_of("prime/owner/app:v1", "cat /made /app/kept.txt; pwd; echo $MODE; ls -a /app")
    assert out.splitlines()[:3] == ["made at build", "kept/app", "built"], out
    # The Dockerfile comes packed under another name, which is no part of the context.
    assert "left.log" not in out and ".__prime_dockerfile__" not in out and "Dockerfile" in out
    assert "RUN echo made at build" in building.logs(builds, build_id)
    assert "RUN echo made at build" in warren("images", "build-logs", build_id, env=builds.cli_environment()).ok().stdout
    listed = json.loads(warren("images", "builds", "--output", "json", env=builds.cli_environment()).ok().stdout)
    assert listed["builds"][0]["id"] == build_id and listed["builds"][0]["status"] == "COMPLETED"


def test_layers_are_cached_for_their_owner_alone(builds: Server, base: Path):
    (base / "Dockerfile").write_text("FROM scratch\nADD root0.tar /\nRUN head -c 32 /dev/urandom | md5sum > /drawn\nCOPY late /late\n")
    drawn = []
    for late in ("one", "two"):
        (base / "late").write_text(late)
        building.completed(builds, building.push(builds, "cached", building.context_of(base)))
        drawn.append(run_of("prime/owner/cached:v1", "cat /drawn /late"))
    assert drawn[0].split()[0] == drawn[1].split()[0], "the second build took the layer of the first"
    assert drawn[1].split()[-1] == "two"
    with builds.http() as http:
        team = http.post("/api/v1/admin/teams", json={"slug": "cache-team"}).raise_for_status().json()["teamId"]
    building.completed(builds, building.push(builds, "cached", building.context_of(base), team_id=team))
    assert run_of(f"prime/team-{team}/cached:v1", "cat /drawn").split()[0] != drawn[0].split()[0], "another owner sees nothing of it"
    building.drop_cache(builds, teamId=team)


def test_arguments_stages_and_failures(builds: Server, base: Path):
    (base / "Dockerfile").write_text(
        "FROM scratch AS base\nADD root0.tar /\nFROM base AS made\nARG WORD=default\nARG OTHER=default\nRUN echo $WORD $OTHER > /word\nFROM base\nCOPY --from=made --chown=12:34 /word /word\n"
    )
    with builds.http() as http:
        asked = http.post("/api/v1/images/build", json={"image_name": "args", "build_args": {"WORD": "given; $(x)"}}).raise_for_status().json()
        building.upload(asked["upload_url"], building.context_of(base))
        http.post(f"/api/v1/images/build/{asked['build_id']}/start").raise_for_status()
    building.completed(builds, asked["build_id"])
    assert run_of("prime/owner/args:latest", "cat /word; stat -c %u:%g /word") == "given; $(x) default\n12:34\n"
    (base / "Dockerfile").write_text("FROM scratch\nADD root0.tar /\nRUN echo the reason is this; exit 7\n")
    failed = building.over(builds, building.push(builds, "broken", building.context_of(base)))
    assert (failed["status"], failed["errorCode"]) == ("FAILED", "build_failed") and "the reason is this" in failed["errorMessage"]
    garbage = building.over(builds, building.push(builds, "garbage", b"no tar"))
    assert (garbage["status"], garbage["errorCode"]) == ("FAILED", "build_failed"), garbage


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    docker = Docker(tmp_path_factory.mktemp("docker") / "d").start()
    yield docker
    docker.close()


COPIES = r"""
FROM scratch AS base
ADD root0.tar /
FROM base AS other
COPY --chown=5:6 tree /from-other
RUN mkdir -p /deep/er && ln -s ../x /deep/link && chmod 4711 /from-other/file && mkfifo /deep/fifo
FROM base
COPY tree /tree
COPY tree/ /tree-slash/
COPY tree/file tree/sub/*.txt /picked/
COPY tree/file /renamed
COPY ["tree/with space", "/spaced/"]
ADD archive.tar.gz /unpacked/
ADD archive.tar.gz tree/file /added/
COPY --from=other /from-other /from-other
COPY --from=other /deep /deep
WORKDIR /made/by/workdir
COPY . all
RUN rm -rf /tree/sub/gone && echo x >> /tree/file && chmod 700 /picked
"""


def tree_of(context: Path) -> None:
    """A context with what COPY has rules for."""
    (context / "tree/sub/gone").mkdir(parents=True)
    for name, data in {"file": "file", "with space": "s", "sub/a.txt": "a", "sub/b.txt": "b", "sub/c.log": "c", "sub/gone/x": "x", "empty": ""}.items():
        (context / "tree" / name).write_text(data)
    (context / "tree/file").chmod(0o4750)
    (context / "tree/sub").chmod(0o2711)
    (context / "tree/link").symlink_to("file")
    (context / "tree/dangling").symlink_to("/no/where")
    os.chown(context / "tree/file", 1234, 5678)
    os.link(context / "tree/sub/a.txt", context / "tree/sub/hard")
    with tarfile.open(context / "archive.tar.gz", "w:gz") as tar:
        tar.add(context / "tree", arcname="in")
    (context / "secret").mkdir()
    for name in ("secret/key", "secret/public", "x.log", "tree/y.log"):
        (context / name).write_text(name)
    (context / ".dockerignore").write_text("# what stays out\n*.log\n**/*.bak\nsecret/*\n!secret/public\nDockerfile\n.dockerignore\nroot*.tar\n!root0.tar\n")
    (context / "Dockerfile").write_text(COPIES)


def reference(docker: Docker, context: Path, out: Path) -> Root:
    # The client of the daemon's own version: newer ones want a plugin.
    command = ["/usr/bin/docker", "build", "--tag", "reference:v1", str(context)]
    done = subprocess.run(command, env={**docker.env, "DOCKER_BUILDKIT": "1"}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    docker("export", "--output", str(out), docker("create", "reference:v1", "true"))
    return of_export(out)


def test_a_build_is_what_docker_build_makes(builds: Server, base: Path, docker: Docker, tmp_path: Path, images: Images):
    """Entry by entry, the root of the image is that of `docker build` and `docker export` of the same context."""
    tree_of(base)
    building.completed(builds, building.push(builds, "copies", building.context_of(base)))
    wanted = reference(docker, base, tmp_path / "export.tar")
    got = exported(SandboxClient(APIClient()), "prime/owner/copies:v1", tmp_path / "root.tar")
    assert len(wanted) > 300
    assert_same(wanted, got, made=(b"tree/file", b"deep/link", b"deep/fifo"))


def exported(client: SandboxClient, image: str, into: Path) -> Root:
    """The root of an image that has BusyBox, which makes a tar of it as it is."""
    sandbox = client.create(request(image, memory_gb=0.5))
    client.wait_for_creation(sandbox.id)
    assert client.execute_command(sandbox.id, "cd / && busybox tar -cf /dev/shm/root.tar $(ls -A | grep -vxE 'dev|proc|sys|lost.found')", timeout=120).exit_code == 0
    client.download_file(sandbox.id, "/dev/shm/root.tar", str(into))
    client.delete(sandbox.id)
    return of_export(into)


def assert_same(wanted: Root, got: Root, made: tuple[bytes, ...]) -> None:
    """Entry by entry. Times of what a build makes are when it was made; those of what it copied are the context's."""
    assert sorted(wanted.keys() - got.keys()) == [] and sorted(got.keys() - wanted.keys()) == []
    is_made = lambda path: wanted[path]["kind"] == KINDS[tarfile.DIRTYPE] or path in made
    keys = [key for key in CONTENT if key != "mtime"]
    differing = {path: {key: (got[path][key], entry[key]) for key in CONTENT if got[path][key] != entry[key]}
                 for path, entry in wanted.items() if any(got[path][key] != entry[key] for key in (keys if is_made(path) else CONTENT))}
    assert differing == {}, f"{len(differing)} differ (ours, docker's): {dict(list(differing.items())[:10])}"


def sleeping(base: Path) -> bytes:
    (base / "Dockerfile").write_text("FROM scratch\nADD root0.tar /\nRUN echo begun; sleep 600\n")
    return building.context_of(base)


def begun(server: Server, build_id: str) -> None:
    waiting.until(lambda: "begun" in building.logs(server, build_id), building.BUILD_SECS, "the build is in its RUN")


def test_a_cancel_ends_the_machine(builds: Server, base: Path):
    building.drop_cache(builds)
    waiting.until(lambda: not builds.left_overs(), GONE_SECS, "no sandbox is left")
    build_id = building.push(builds, "cancelled", sleeping(base))
    begun(builds, build_id)
    assert "CANCELLED" in warren("images", "build-cancel", build_id, env=builds.cli_environment()).ok().stdout
    waiting.until(lambda: not builds.left_overs(), GONE_SECS, "the builder is gone")
    assert building.state(builds, build_id)["status"] == "CANCELLED"
    assert not list((builds.data_dir / "builds" / build_id).glob("*.tar*"))


def test_kill_9_during_a_build(builds: Server, base: Path):
    """The machine of the dead server's build ends, and the build begins anew in another."""
    build_id = building.push(builds, "killed", sleeping(base))
    begun(builds, build_id)
    before = builds.folders()
    builds.kill()
    builds.start()
    waiting.until(lambda: not set(before) & set(builds.folders()), GONE_SECS, "the builder of the last run is gone")
    waiting.until(lambda: building.state(builds, build_id)["status"] == "BUILDING", building.BUILD_SECS, "it is built again")
    waiting.until(lambda: building.logs(builds, build_id).count("==> building") == 2, building.BUILD_SECS, "its context survived")
    with builds.http() as http:
        http.delete("/api/v1/images/killed/v1").raise_for_status()
    assert building.state(builds, build_id)["status"] == "CANCELLED"
    waiting.until(lambda: not builds.left_overs(), GONE_SECS, "the builder is gone")


def test_line_75_a_bulk_push_of_a_mixed_manifest(builds: Server, base: Path, registry: Registry, tmp_path: Path):
    (base / "Dockerfile").write_text("FROM scratch\nADD root0.tar /\n")
    rows: list[dict[str, Any]] = [
        {"image": "bulk-one:v1", "context": str(base)},
        {"source": registry.reference("glibc"), "image": "bulk-two:v1"},
        {"source": registry.reference("static")},
    ]
    (tmp_path / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = prime("images", "push-bulk", "--manifest", str(tmp_path / "manifest.jsonl"), "--failures-out", str(tmp_path / "failures.jsonl"), secs=building.BUILD_SECS).ok()
    assert "3/3 builds completed" in done.stdout, done.text
