"""A converted root is what `docker export` of the same image gives: every entry, attribute by attribute."""

from __future__ import annotations

import ast
import hashlib
import struct
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci
import pytest
from docker_side import Docker
from images import Images
from prime_sandboxes import SandboxClient
from registry import Registry

# What either side makes at a start, and what belongs to the running machine.
OWN = {".dockerenv", "lost+found", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab", "etc/machine-id"}
MOUNTS = ("dev", "proc", "sys", "lib/modules", "usr/lib/modules")

# Walks the root by what the kernel says, names as hex.
WALK = r"""
import hashlib, os, stat
device = os.lstat(b"/").st_dev
def walk(path):
    for name in sorted(os.listdir(path)):
        full = os.path.join(path, name)
        found = os.lstat(full)
        if found.st_dev != device:
            continue
        kind, link, digest = stat.S_IFMT(found.st_mode), b"", ""
        if kind == stat.S_IFLNK:
            link = os.readlink(full)
        if kind == stat.S_IFREG:
            digest = hashlib.sha256(open(full, "rb").read()).hexdigest()
        try:
            capability = os.getxattr(full, "security.capability", follow_symlinks=False).hex()
        except OSError:
            capability = ""
        print([full[1:].hex(), kind, found.st_mode & 0o7777, found.st_uid, found.st_gid, found.st_size if digest else 0, digest, link.hex(),
                          [os.major(found.st_rdev), os.minor(found.st_rdev)] if kind in (stat.S_IFCHR, stat.S_IFBLK) else [0, 0], int(found.st_mtime), capability, found.st_ino])
        if kind == stat.S_IFDIR:
            walk(full)
walk(b"/")
"""

KINDS = {tarfile.REGTYPE: 0o100000, tarfile.DIRTYPE: 0o040000, tarfile.SYMTYPE: 0o120000, tarfile.CHRTYPE: 0o020000, tarfile.BLKTYPE: 0o060000, tarfile.FIFOTYPE: 0o010000}
CONTENT = ("kind", "mode", "uid", "gid", "size", "sha256", "link", "device", "mtime", "capability", "same as")

Root = dict[bytes, dict[str, Any]]


def is_own(path: bytes) -> bool:
    text = path.decode("utf-8", "surrogateescape").strip("/")
    return text in OWN or any(text == mount or text.startswith(mount + "/") for mount in MOUNTS)


def of_guest(listing: bytes) -> Root:
    rows = [ast.literal_eval(line.decode()) for line in listing.splitlines()]
    groups: dict[int, list[bytes]] = defaultdict(list)
    for row in rows:
        groups[row[11]].append(bytes.fromhex(row[0]))
    root = {}
    for path, kind, mode, uid, gid, size, digest, link, device, mtime, capability, inode in rows:
        name = bytes.fromhex(path)
        shared = sorted(groups[inode]) if kind != KINDS[tarfile.DIRTYPE] else []
        values = (kind, mode, uid, gid, size, digest, bytes.fromhex(link), tuple(device), mtime, capability, shared if len(shared) > 1 else [])
        root[name] = dict(zip(CONTENT, values))
    return {path: entry for path, entry in root.items() if not is_own(path)}


def of_export(path: Path) -> Root:
    root: Root = {}
    groups: dict[bytes, list[bytes]] = defaultdict(list)
    with tarfile.open(path, errors="surrogateescape") as tar:
        for entry in tar:
            name = entry.name.strip("/").encode("utf-8", "surrogateescape")
            if name in (b"", b"."):
                continue
            if entry.islnk():
                target = entry.linkname.strip("/").encode("utf-8", "surrogateescape")
                root[name] = dict(root[target])
                groups[target].append(name)
                continue
            data = tar.extractfile(entry).read() if entry.isreg() else b""  # type: ignore[union-attr]
            digest = hashlib.sha256(data).hexdigest() if entry.isreg() else ""
            link = entry.linkname.encode("utf-8", "surrogateescape") if entry.issym() else b""
            device = (entry.devmajor, entry.devminor) if entry.ischr() or entry.isblk() else (0, 0)
            capability = entry.pax_headers.get("SCHILY.xattr.security.capability", "").encode("utf-8", "surrogateescape").hex()
            mode = 0o777 if entry.issym() else entry.mode & 0o7777
            values = (KINDS[entry.type], mode, entry.uid, entry.gid, len(data), digest, link, device, int(entry.mtime), capability, [])
            root[name] = dict(zip(CONTENT, values))
    for first, others in groups.items():
        for name in (shared := sorted([first, *others])):
            root[name]["same as"] = shared
    return {path: entry for path, entry in root.items() if not is_own(path)}


def hard_layers() -> list[oci.Layer]:
    """What converters get wrong, on top of the torture image."""
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, bits, who) for tag, bits, who in ((1, 6, 0xFFFFFFFF), (2, 4, 1000), (4, 4, 0xFFFFFFFF), (16, 4, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF)))
    one = oci.LayerTar().directory("h").directory("h/becomes-link").add("h/becomes-link/x", data=b"x").directory("h/emptied")
    one.add("h/emptied/a", data=b"a").add("h/emptied/b", data=b"b").add("h/first", data=b"shared", mode=0o600, uid=7, gid=8)
    one.add("h/" + "n" * 255, data=b"longest name").add("h/new\nline\ttab", data=b"newline").add("h/bytes-\udcff\udcfe", data=b"bytes")
    one.add("h/acl", data=b"acl", xattrs={"system.posix_acl_access": acl})
    one.add("h/block", tarfile.BLKTYPE, device=(7, 300)).add("h/char", tarfile.CHRTYPE, device=(511, 70000 & 0xFFFFF)).add("h/fifo", tarfile.FIFOTYPE, mode=0o622)
    one.symlink("h/dangling", "/no/where").symlink("h/loop", "loop").symlink("h/sixty", "s" * 60).symlink("h/long", "l" * 300)
    one.add("h/big", data=bytes(range(256)) * 40_000).add("h/owner", data=b"", uid=4_000_000_000 // 2, gid=65_537)
    deep = "h"
    for depth in range(60):
        deep += f"/d{depth}"
        one.directory(deep, mode=0o700 + depth % 8)
    two = oci.LayerTar().add("h/.wh.becomes-link").hardlink("h/second", "h/first").add("h/emptied/.wh..wh..opq").add("h/dangling", data=b"no link now")
    three = oci.LayerTar().symlink("h/becomes-link", "emptied").add("h/emptied/c", data=b"c").hardlink("h/third", "h/second").directory("h/sixty").add("h/sixty/in", data=b"dir now")
    return [part.layer() for part in (one, two, three)]


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    # This driver applies a layer to what lies below, as the image specification says; overlay2 knows no links across layers.
    docker = Docker(tmp_path_factory.mktemp("docker") / "d", "--storage-driver", "vfs")
    docker.start()
    yield docker
    docker.close()


def exported(docker: Docker, image: oci.Image, folder: Path) -> Root:
    archive, out = oci.write_docker_archive(folder / "image.tar", image, "fidelity:v1"), folder / "export.tar"
    docker("load", "--input", str(archive))
    container = docker("create", "fidelity:v1", "true")
    docker("export", "--output", str(out), container)
    docker("rm", container)
    return of_export(out)


def test_every_entry_is_as_docker_export_has_it(docker: Docker, registry: Registry, images: Images, client: SandboxClient, create: Any, tmp_path: Path):
    begun = int(time.time())
    base = images.get("torture")
    image = base.with_config(layers=[*base.layers, *hard_layers()])
    wanted = exported(docker, image, tmp_path)
    sandbox = create(image=registry.push("fidelity", "v1", image), memory_gb=0.5)
    client.upload_bytes(sandbox.id, "/dev/shm/walk.py", WALK.encode(), "walk.py")
    assert client.execute_command(sandbox.id, "python3 /dev/shm/walk.py > /dev/shm/root", timeout=300).exit_code == 0
    client.download_file(sandbox.id, "/dev/shm/root", str(tmp_path / "root"))
    got = of_guest((tmp_path / "root").read_bytes())
    assert len(wanted) > 3000
    assert sorted(wanted.keys() - got.keys()) == [] and sorted(got.keys() - wanted.keys()) == []
    for path, entry in wanted.items():
        # Docker's own work shows in the times of folders that a layer changed without an entry of their own.
        if entry["kind"] == KINDS[tarfile.DIRTYPE] and entry["mtime"] >= begun:
            entry["mtime"] = got[path]["mtime"]
    differing = {path: {key: (got[path][key], entry[key]) for key in CONTENT if got[path][key] != entry[key]} for path, entry in wanted.items() if got[path] != entry}
    assert differing == {}, f"{len(differing)} of {len(wanted)} differ (ours, docker's): {dict(list(differing.items())[:20])}"
