"""Writes OCI images: layers, config, manifest; to a registry, an OCI layout or a docker-archive.

Only what the tests need, and nothing is repaired on the way: a test may build an image that no honest tool would.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER_GZIP = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYER_ZSTD = "application/vnd.oci.image.layer.v1.tar+zstd"

PUSH_TIMEOUT_SECS = 120.0


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def _zstd(mode: str, data: bytes) -> bytes:
    return subprocess.run(["zstd", "--quiet", mode, "--stdout"], input=data, capture_output=True, check=True).stdout


@dataclass
class Layer:
    """One compressed layer."""

    blob: bytes
    diff_id: str
    media_type: str = LAYER_GZIP

    @classmethod
    def of_tar(cls, tar: bytes) -> Layer:
        return cls(gzip.compress(tar, compresslevel=1, mtime=0), digest(tar))

    @classmethod
    def zstd_of_tar(cls, tar: bytes) -> Layer:
        return cls(_zstd("-1", tar), digest(tar), LAYER_ZSTD)

    def tar(self) -> bytes:
        return gzip.decompress(self.blob) if self.media_type == LAYER_GZIP else _zstd("--decompress", self.blob)

    @property
    def digest(self) -> str:
        return digest(self.blob)


@dataclass
class Image:
    """Layers and run configuration of one image for linux/amd64."""

    layers: list[Layer]
    env: dict[str, str] = field(default_factory=dict)
    user: str = ""
    workdir: str = ""
    entrypoint: list[str] = field(default_factory=list)
    cmd: list[str] = field(default_factory=list)
    architecture: str = "amd64"

    def with_config(self, **changes: object) -> Image:
        return Image(**{**self.__dict__, **changes})

    def config(self) -> bytes:
        run: dict[str, object] = {"Env": [f"{k}={v}" for k, v in self.env.items()]}
        for key, value in (("User", self.user), ("WorkingDir", self.workdir), ("Entrypoint", self.entrypoint), ("Cmd", self.cmd)):
            if value:
                run[key] = value
        body = {
            "architecture": self.architecture,
            "os": "linux",
            "config": run,
            "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in self.layers]},
        }
        return json.dumps(body, sort_keys=True).encode()

    def manifest(self) -> bytes:
        config = self.config()
        body = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": {"mediaType": CONFIG, "digest": digest(config), "size": len(config)},
            "layers": [{"mediaType": x.media_type, "digest": x.digest, "size": len(x.blob)} for x in self.layers],
        }
        return json.dumps(body, sort_keys=True).encode()


class LayerTar:
    """A layer's tar, entry by entry."""

    def __init__(self, format: int = tarfile.PAX_FORMAT) -> None:
        self._buffer = io.BytesIO()
        self._tar = tarfile.open(fileobj=self._buffer, mode="w", format=format, errors="surrogateescape")

    def add(self, name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", *, mode: int = 0o644, uid: int = 0, gid: int = 0,
            link: str = "", device: tuple[int, int] = (0, 0), xattrs: dict[str, bytes] | None = None) -> LayerTar:
        entry = tarfile.TarInfo(name)
        entry.type, entry.mode, entry.uid, entry.gid, entry.linkname = kind, mode, uid, gid, link
        entry.devmajor, entry.devminor = device
        entry.size = len(data)
        for key, value in (xattrs or {}).items():
            entry.pax_headers["SCHILY.xattr." + key] = value.decode("utf-8", "surrogateescape")
        self._tar.addfile(entry, io.BytesIO(data))
        return self

    def directory(self, name: str, mode: int = 0o755, **more: object) -> LayerTar:
        return self.add(name, tarfile.DIRTYPE, mode=mode, **more)

    def symlink(self, name: str, target: str) -> LayerTar:
        return self.add(name, tarfile.SYMTYPE, mode=0o777, link=target)

    def hardlink(self, name: str, target: str, **more: object) -> LayerTar:
        """The attributes are set on the file, as by container runtimes: those of the target, if it is to keep them."""
        return self.add(name, tarfile.LNKTYPE, link=target, **more)

    def bytes(self) -> bytes:
        self._tar.close()
        return self._buffer.getvalue()

    def layer(self) -> Layer:
        return Layer.of_tar(self.bytes())


def push(registry: str, name: str, tag: str, image: Image, auth: tuple[str, str] | None = None) -> str:
    """Pushes to `http://registry`; answers the reference."""
    with httpx.Client(base_url=f"http://{registry}/v2/{name}/", timeout=PUSH_TIMEOUT_SECS, auth=auth, trust_env=False) as http:
        for blob in [*(layer.blob for layer in image.layers), image.config()]:
            _push_blob(http, blob)
        answer = http.put(f"manifests/{tag}", content=image.manifest(), headers={"content-type": MANIFEST})
        answer.raise_for_status()
    return f"{registry}/{name}:{tag}"


def _push_blob(http: httpx.Client, blob: bytes) -> None:
    if http.head(f"blobs/{digest(blob)}").status_code == 200:
        return
    start = http.post("blobs/uploads/")
    start.raise_for_status()
    place = httpx.URL(start.headers["location"])
    done = http.put(place.copy_add_param("digest", digest(blob)), content=blob, headers={"content-type": "application/octet-stream"})
    done.raise_for_status()


def write_layout(folder: Path, image: Image, tag: str = "latest", spoil: Callable[[str, bytes], bytes] = lambda name, data: data) -> Path:
    """Writes an OCI layout. `spoil` may change a blob after its name was fixed."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True, exist_ok=True)
    manifest = image.manifest()
    for blob in [*(layer.blob for layer in image.layers), image.config(), manifest]:
        name = digest(blob)
        (blobs / name.removeprefix("sha256:")).write_bytes(spoil(name, blob))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    index = {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [{
            "mediaType": MANIFEST, "digest": digest(manifest), "size": len(manifest),
            "platform": {"os": "linux", "architecture": image.architecture},
            "annotations": {"org.opencontainers.image.ref.name": tag},
        }],
    }
    (folder / "index.json").write_text(json.dumps(index))
    return folder


def write_nested_layout(folder: Path, images: list[Image], depth: int) -> Path:
    """An OCI layout whose index leads through `depth` further ones to the images, an attestation beside them."""
    for image in images:
        write_layout(folder, image)
    manifests = [image.manifest() for image in images]
    entries = [
        {"mediaType": MANIFEST, "digest": digest(data), "size": len(data), "platform": {"os": "linux", "architecture": image.architecture}}
        for image, data in zip(images, manifests)
    ]
    entries.append({"mediaType": MANIFEST, "digest": digest(b"none"), "size": 4, "platform": {"os": "unknown", "architecture": "unknown"}})
    for _ in range(depth):
        index = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()
        (folder / "blobs" / "sha256" / digest(index).removeprefix("sha256:")).write_bytes(index)
        entries = [{"mediaType": INDEX, "digest": digest(index), "size": len(index)}]
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}))
    return folder


def write_docker_archive(path: Path, image: Image, reference: str) -> Path:
    """Writes what `docker save` writes: layers are plain tars here."""
    config = image.config()
    names = [f"{layer.diff_id.removeprefix('sha256:')}/layer.tar" for layer in image.layers]
    members: Iterable[tuple[str, bytes]] = [
        (digest(config).removeprefix("sha256:") + ".json", config),
        *((name, layer.tar()) for name, layer in zip(names, image.layers)),
        ("manifest.json", json.dumps([{"Config": digest(config).removeprefix("sha256:") + ".json", "RepoTags": [reference], "Layers": names}]).encode()),
    ]
    with tarfile.open(path, "w") as tar:
        for name, data in members:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path
