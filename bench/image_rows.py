"""The rows on images: from a registry to a first command, what shared bytes cost, a start while most of the image is still to come."""

from __future__ import annotations

import random
import tarfile
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import oci
import processes
import waiting
from figures import Row, timed
from objects import Objects
from registry import Registry
from server import Server

if TYPE_CHECKING:
    from bench import Bench

MB = 1_000_000

COLD_STARTS = 5
COLD_MB = 250
SHARING_IMAGES = 10
SHARED_MB = 250
OWN_MB = 5
ARRIVING_MB = 2000
ARRIVING_LAYERS = 8
THROTTLE_MB_PER_SEC = 50
ARRIVALS = 3
UPLOAD_SECS = 600


def layer_of(name: str, megabytes: float, seed: int) -> oci.Layer:
    """One file that no compression makes smaller; as a plain tar, so that no side spends its time on that."""
    tar = oci.LayerTar().add(name, data=random.Random(seed).randbytes(int(megabytes * MB))).bytes()
    return oci.Layer(tar, oci.digest(tar))


def gzip_layers(bench: Bench, number: int) -> list[oci.Layer]:
    """A root of COLD_MB in three gzip layers that nobody has seen before: the root, and copies of its files in two more."""
    with tarfile.open(bench.tar) as source:
        files = [(entry, source.extractfile(entry).read()) for entry in source if entry.isreg()]
    layers = [oci.Layer.of_tar(bench.tar.read_bytes())]
    left = COLD_MB * MB - bench.tar.stat().st_size
    for part in range(2):
        tar, size = oci.LayerTar(), 0
        for entry, data in files:
            if size >= left / 2:
                break
            # Other bytes in each, so that neither side finds what it knows.
            tar.add(f"copies/{part}/{entry.name.lstrip('./')}", data=data + f"{number}.{part}".encode(), mode=entry.mode)
            size += len(data)
        layers.append(tar.layer())
    return layers


@contextmanager
def registries(bench: Bench) -> Iterator[tuple[Registry, str]]:
    """A registry for us, and its content once more in the network name space of the Docker daemon."""
    ours = Registry(bench.folder / "registry", bench.images).start()
    inside = Registry(bench.folder / "registry-inside", bench.images, content_of=ours)
    inside.folder.mkdir()
    try:
        bench.docker.inside("ip", "link", "set", "lo", "up")
        process = bench.docker.start_inside("docker-registry", "serve", str(inside.write_config()))
        try:
            waiting.until(lambda: bench.docker.inside_ok("bash", "-c", f"exec 3<>/dev/tcp/127.0.0.1/{inside.port}"), 20, "the registry inside answers")
            yield ours, inside.address
        finally:
            process.kill()
            process.wait()
    finally:
        ours.close()


def cold(bench: Bench) -> Row:
    row = Row(f"cold: image in a local registry to first exec, {COLD_MB} MB root in 3 gzip layers, against docker pull + docker run", "<= 1.5 x")
    ours, theirs = row.side("warren: SDK create + wait + first exec", "ms"), row.side("docker pull + docker run --rm IMAGE true", "ms")
    bench.client.delete(bench.sandbox())
    with registries(bench) as (registry, inside):
        for number in range(COLD_STARTS):
            name, image = f"cold{number}", oci.Image(gzip_layers(bench, number), env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
            reference = registry.push(name, "v1", image)
            made: list[str] = []
            ours.add(timed(lambda: made.append(bench.sandbox(reference))))
            bench.client.delete(made[0])
            bench.warren("images", "remove", reference)

            def docker() -> None:
                bench.docker("pull", "--quiet", f"{inside}/{name}:v1")
                bench.docker("run", "--rm", f"{inside}/{name}:v1", "true")

            theirs.add(timed(docker))
            bench.docker("rmi", f"{inside}/{name}:v1")
    row.results["ratio to docker"] = ours.median / theirs.median
    row.notes.append("both sides have seen the base layer before the second run, as on a machine that is in use; two thirds of the bytes are new each time")
    return row


def stored(folder: Path) -> int:
    """Bytes as the file system counts them."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def share(bench: Bench) -> Row:
    row = Row(f"share: {SHARING_IMAGES} images on one base of {SHARED_MB} MB, each with {OWN_MB} MB of its own: bytes stored", "<= 1.3 x one of them + the additions")
    one, all_of_them = row.side("store with one image", "MB"), row.side(f"store with all {SHARING_IMAGES}", "MB")
    blobs = row.side("layers kept as they came, beside it", "MB")
    registry = Registry(bench.folder / "share-registry", bench.images).start()
    own = Server(bench.server.binary, bench.folder / "share")
    try:
        own.start()
        env = {"PRIME_API_BASE_URL": own.url, "PRIME_API_KEY": own.api_key}
        base = [oci.Layer.of_tar(bench.tar.read_bytes()), layer_of("base", SHARED_MB - bench.tar.stat().st_size / MB, 1)]
        images = own.data_dir / "images"
        for number in range(SHARING_IMAGES):
            reference = registry.push(f"share{number}", "v1", oci.Image([*base, layer_of("own", OWN_MB, 100 + number)]))
            bench.warren("images", "pull", reference, env=env)
            if number == 0:
                one.add((stored(images) - stored(images / "blobs")) / MB)
        all_of_them.add((stored(images) - stored(images / "blobs")) / MB)
        blobs.add(stored(images / "blobs") / MB)
    finally:
        own.close()
        registry.close()
    additions = (SHARING_IMAGES - 1) * OWN_MB
    row.results["(all - the additions) / one"] = (all_of_them.median - additions) / one.median
    return row


def arriving(bench: Bench) -> Row:
    row = Row(f"arriving: first exec of a {ARRIVING_MB} MB image whose chunks come from a store throttled to {THROTTLE_MB_PER_SEC} MB/s", "before 10 % of its bytes have arrived")
    share_of_bytes, took = row.side("bytes that had come at the first exec", "%"), row.side("create to first exec", "ms")
    whole = row.side("all bytes at that speed", "ms")
    registry = Registry(bench.folder / "large-registry", bench.images).start()
    folder = bench.folder / "objects"
    try:
        root = oci.Layer.of_tar(bench.tar.read_bytes())
        layers = [layer_of(f"large{n}", ARRIVING_MB / ARRIVING_LAYERS, 1000 + n) for n in range(ARRIVING_LAYERS)]
        reference = registry.push("large", "v1", oci.Image([root, *layers]))
        del layers
        row.results["conversion of it: peak memory of serve, MB"] = fill(bench, folder, reference)
        for number in range(ARRIVALS):
            start_arriving(bench, folder, reference, number, {"share": share_of_bytes, "took": took, "whole": whole})
    finally:
        registry.close()
    return row


def fill(bench: Bench, folder: Path, reference: str) -> float:
    """Another node puts the image into the object store. Its peak memory, MB."""
    origin = Server(bench.server.binary, bench.folder / "origin", arguments=["--objects", f"file://{folder}"])
    try:
        origin.start()
        bench.warren("images", "pull", reference, env={"PRIME_API_BASE_URL": origin.url, "PRIME_API_KEY": origin.api_key})
        waiting.until(lambda: list(folder.glob("images/*")), UPLOAD_SECS, "the image is in the object store")
        return processes.peak_kib(origin.pid) * 1024 / MB
    finally:
        origin.close()


def start_arriving(bench: Bench, folder: Path, reference: str, number: int, sides: dict[str, Any]) -> None:
    objects = Objects(folder).start()
    own = Server(bench.server.binary, bench.folder / f"arriving{number}", arguments=["--objects", objects.url])
    try:
        own.start()
        with bench.at(own):
            # A shape whose base template exists: that is not what is measured.
            bench.warren("images", "import", str(bench.tar), "--name", "bench:v1")
            bench.client.delete(bench.sandbox())
            waiting.until(lambda: not list((own.data_dir / "sandboxes").iterdir()), 30, "the sandbox is gone")
            before, objects.bytes_per_sec = objects.sent, THROTTLE_MB_PER_SEC * MB
            made: list[str] = []
            sides["took"].add(timed(lambda: made.append(bench.sandbox(reference))))
            total = objects.size()
            sides["share"].add((objects.sent - before) / total * 100)
            sides["whole"].add(total / (THROTTLE_MB_PER_SEC * MB) * 1000)
            bench.client.delete(made[0])
    finally:
        own.close()
        objects.close()
        subprocess.run(["rm", "-rf", str(own.data_dir)], check=True)


ROWS = {"cold": cold, "share": share, "arriving": arriving}
