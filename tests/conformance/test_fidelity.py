"""A converted root is what `docker export` of the same image gives: every entry, attribute by attribute."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import struct
import subprocess
import tarfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import images
import oci
import pytest
from docker_side import Docker
from images import Images, converted_disk
from prime_sandboxes import SandboxClient
from registry import Registry
from server import Server

# What either side makes at a start, and what belongs to the running machine.
OWN = {".dockerenv", "lost+found", "usr/sbin/modprobe", "etc/hostname", "etc/hosts", "etc/resolv.conf", "etc/mtab", "etc/machine-id", "run/warren"}
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
        xattrs = {name: os.getxattr(full, name, follow_symlinks=False).hex() for name in os.listxattr(full, follow_symlinks=False)}
        print([full[1:].hex(), kind, found.st_mode & 0o7777, found.st_uid, found.st_gid, found.st_size if digest else 0, digest, link.hex(),
                          [os.major(found.st_rdev), os.minor(found.st_rdev)] if kind in (stat.S_IFCHR, stat.S_IFBLK) else [0, 0], int(found.st_mtime), xattrs, found.st_ino])
        if kind == stat.S_IFDIR:
            walk(full)
walk(b"/")
"""

TOOLS_ENV = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}
KINDS = {tarfile.REGTYPE: 0o100000, tarfile.DIRTYPE: 0o040000, tarfile.SYMTYPE: 0o120000, tarfile.CHRTYPE: 0o020000, tarfile.BLKTYPE: 0o060000, tarfile.FIFOTYPE: 0o010000}
XATTR = "SCHILY.xattr."
CONTENT = ("kind", "mode", "uid", "gid", "size", "sha256", "link", "device", "mtime", "xattrs", "same as")

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
    for path, kind, mode, uid, gid, size, digest, link, device, mtime, xattrs, inode in rows:
        name = bytes.fromhex(path)
        shared = sorted(groups[inode]) if kind != KINDS[tarfile.DIRTYPE] else []
        values = (kind, mode, uid, gid, size, digest, bytes.fromhex(link), tuple(device), mtime, xattrs, shared if len(shared) > 1 else [])
        root[name] = dict(zip(CONTENT, values))
    return {path: entry for path, entry in root.items() if not is_own(path)}


def xattrs_in(entry: tarfile.TarInfo) -> dict[str, str]:
    return {key.removeprefix(XATTR): value.encode("utf-8", "surrogateescape").hex() for key, value in entry.pax_headers.items() if key.startswith(XATTR)}


def xattrs_of_layers(layers: list[oci.Layer]) -> dict[bytes, dict[str, str]]:
    """Extended attributes of all entries, the highest layer's: an export carries capabilities alone."""
    found: dict[bytes, dict[str, str]] = {}
    for layer in layers:
        with tarfile.open(fileobj=io.BytesIO(layer.tar()), errors="surrogateescape") as tar:
            for entry in tar:
                name = entry.name.removeprefix("./").strip("/").encode("utf-8", "surrogateescape")
                target = entry.linkname.removeprefix("./").strip("/").encode("utf-8", "surrogateescape")
                # An empty value takes a record back.
                found[name] = found[target] if entry.islnk() else {key: value for key, value in xattrs_in(entry).items() if value}
    return found


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
            mode = 0o777 if entry.issym() else entry.mode & 0o7777
            values = (KINDS[entry.type], mode, entry.uid, entry.gid, len(data), digest, link, device, int(entry.mtime), xattrs_in(entry), [])
            root[name] = dict(zip(CONTENT, values))
    for first, others in groups.items():
        for name in (shared := sorted([first, *others])):
            root[name]["same as"] = shared
    return {path: entry for path, entry in root.items() if not is_own(path)}


def acl(*entries: tuple[int, int, int]) -> bytes:
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)


NOBODY = 0xFFFFFFFF
ACL_ACCESS = acl((1, 6, NOBODY), (2, 4, 1000), (4, 4, NOBODY), (16, 4, NOBODY), (32, 0, NOBODY))
ACL_DEFAULT = acl((1, 7, NOBODY), (2, 5, 1000), (4, 5, NOBODY), (8, 1, 50), (16, 5, NOBODY), (32, 4, NOBODY))


def after_chmod(value: bytes, mode: int) -> bytes:
    """An access list as it is after the mode was set, which is what unpacks a layer does last."""
    bits = {1: mode >> 6 & 7, 16: mode >> 3 & 7, 32: mode & 7}
    return acl(*((tag, bits.get(tag, permissions), who) for tag, permissions, who in struct.iter_unpack("<HHI", value[4:])))


def hard_layers() -> list[oci.Layer]:
    """What converters get wrong, on top of the torture image; gzip and zstd in turn."""
    one = oci.LayerTar().directory("h").directory("h/becomes-link").add("h/becomes-link/x", data=b"x").directory("h/emptied")
    one.add("h/emptied/a", data=b"a").add("h/emptied/b", data=b"b").add("h/first", data=b"shared", mode=0o600, uid=7, gid=8)
    one.add("h/" + "n" * 255, data=b"longest name").add("h/new\nline\ttab", data=b"newline").add("h/bytes-\udcff\udcfe", data=b"bytes")
    one.add("h/acl", data=b"acl", xattrs={"system.posix_acl_access": ACL_ACCESS})
    one.add("h/block", tarfile.BLKTYPE, device=(7, 300)).add("h/char", tarfile.CHRTYPE, device=(511, 70000 & 0xFFFFF)).add("h/fifo", tarfile.FIFOTYPE, mode=0o622)
    one.symlink("h/dangling", "/no/where").symlink("h/loop", "loop").symlink("h/sixty", "s" * 60).symlink("h/long", "l" * 300)
    one.add("h/big", data=bytes(range(256)) * 40_000).add("h/owner", data=b"", uid=4_000_000_000 // 2, gid=65_537)
    one.directory("h/tree").directory("h/tree/deep").add("h/tree/deep/x", data=b"x").directory("h/swept").add("h/swept/old", data=b"old").directory("h/swept/sub")
    deep = "h"
    for depth in range(60):
        deep += f"/d{depth}"
        one.directory(deep, mode=0o700 + depth % 8)
    two = oci.LayerTar().add("h/.wh.becomes-link").hardlink("h/second", "h/first").add("h/emptied/.wh..wh..opq").add("h/dangling", data=b"no link now")
    # What this layer itself brings stays, wherever in it the marker stands; a file takes a whole tree's place without a whiteout.
    two.add("h/swept/new", data=b"new").add("h/swept/.wh..wh..opq").add("h/swept/newer", data=b"newer").add("h/tree", data=b"file now")
    three = oci.LayerTar().symlink("h/becomes-link", "emptied").add("h/emptied/c", data=b"c").hardlink("h/third", "h/second").directory("h/sixty").add("h/sixty/in", data=b"dir now")
    three.add("h/.wh.tree").add("h/tree", tarfile.FIFOTYPE).add("h/.wh.fifo").directory("h/fifo").add("h/fifo/in", data=b"dir now")
    return [oci.Layer.of_tar(one.bytes()), oci.Layer.zstd_of_tar(two.bytes()), oci.Layer.of_tar(three.bytes())]


def attribute_layer() -> oci.Layer:
    """Every kind of extended attribute: to be the highest layer, where Docker has just unpacked it."""
    tar = oci.LayerTar().directory("x", xattrs={"system.posix_acl_access": ACL_ACCESS, "user.folder": b"of a folder"})
    # With nothing in it: what Docker unpacks there inherits lists that the layer does not have.
    tar.directory("x/default", xattrs={"system.posix_acl_default": ACL_DEFAULT}).add("x/capable", data=b"c", mode=0o755, xattrs={"security.capability": images.file_capability(10), "user.beside": b"1"})
    tar.add("x/namespaced", data=b"c", mode=0o755, xattrs={"security.capability": struct.pack("<IIIIII", 0x03000001, 1 << 13, 0, 0, 0, 1000)})
    tar.add("x/many", data=b"m", xattrs={f"user.{n:03}": bytes([n % 128]) * n for n in range(60)})
    tar.add("x/large", data=b"l", xattrs={"user.large": bytes(range(128)) * 20, "user.empty": b"", "trusted.binary": b"\x00\xff\n="})
    tar.add("x/acl", data=b"acl", mode=0o640, uid=1000, gid=50, xattrs={"system.posix_acl_access": ACL_ACCESS})
    tar.symlink("x/link", "many").add("x/fifo", tarfile.FIFOTYPE, xattrs={"trusted.fifo": b"f"}).hardlink("x/linked", "x/many")
    return oci.Layer.zstd_of_tar(tar.bytes())


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


def test_every_entry_is_as_docker_export_has_it(docker: Docker, registry: Registry, server: Server, client: SandboxClient, create: Any, tmp_path: Path):
    begun = int(time.time())
    base = registry.images.get("torture")
    image = base.with_config(layers=[*base.layers, *hard_layers(), attribute_layer()])
    wanted = exported(docker, image, tmp_path)
    of_layers = xattrs_of_layers(image.layers)
    for path, entry in wanted.items():
        # An export has capabilities alone, in an older form; what Docker itself unpacked is looked at below.
        assert entry["xattrs"].keys() <= of_layers[path].keys(), path
        entry["xattrs"] = of_layers[path]
        if access := entry["xattrs"].get("system.posix_acl_access"):
            entry["xattrs"] = {**entry["xattrs"], "system.posix_acl_access": after_chmod(bytes.fromhex(access), entry["mode"]).hex()}
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
    top = docker.layer_folder([layer.diff_id for layer in image.layers])
    for path in [path for path in got if path.split(b"/")[0] == b"x"]:
        full = os.fsencode(top) + b"/" + path
        assert got[path]["xattrs"] == {name: os.getxattr(full, name, follow_symlinks=False).hex() for name in os.listxattr(full, follow_symlinks=False)}, path
    check_disk(converted_disk(server, client.client.request("GET", f"/sandbox/{sandbox.id}")["imageDigest"], tmp_path))


def check_disk(disk: Path) -> None:
    """The file system itself is sound, and has what a machine's own has."""
    checked = subprocess.run(["e2fsck", "-fn", str(disk)], capture_output=True, text=True, env=TOOLS_ENV)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    told = subprocess.run(["dumpe2fs", "-h", str(disk)], capture_output=True, text=True, env=TOOLS_ENV, check=True).stdout
    features = next(line for line in told.splitlines() if line.startswith("Filesystem features:")).split()
    assert {"has_journal", "dir_index", "extent"} <= set(features), features


def test_holes_stay_holes(registry: Registry, create: Any, client: SandboxClient, tmp_path: Path):
    """In both forms that tars have for them: content is as it was, and no blocks hold what was none."""
    layers = list(registry.images.get("glibc").layers)
    folder = tmp_path / "s"
    folder.mkdir()
    for form in ("gnu", "posix"):
        with (folder / form).open("wb") as file:
            for place in (0, 5 << 20, 33 << 20):
                file.seek(place)
                file.write(form.encode() * 1000)
            file.truncate(48 << 20)
        made = subprocess.run(["tar", "--create", "--sparse", f"--format={form}", "-C", str(tmp_path), f"s/{form}"], capture_output=True, check=True)
        assert len(made.stdout) < 1 << 20, "the tar itself has the holes"
        layers.append(oci.Layer.of_tar(made.stdout))
    sandbox = create(image=registry.push("sparse", "v1", registry.images.get("glibc").with_config(layers=layers)))
    shown = client.execute_command(sandbox.id, "cd /s && stat -c '%n %s %b' gnu posix && sha256sum gnu posix", timeout=120).stdout.splitlines()
    for line in shown[:2]:
        name, size, blocks = line.split()
        assert int(size) == 48 << 20 and int(blocks) * 512 <= 64 << 10, line
    for line in shown[2:]:
        digest, name = line.split()
        assert digest == hashlib.sha256((folder / name).read_bytes()).hexdigest(), name
