"""The images of the suite: what is in each, built from Debian's packages and by hand, cached under target/test-images.

| name      | what                                                                        |
| glibc     | Debian minbase: glibc, bash, coreutils, python3-minimal                      |
| user      | glibc, with ENV, USER and WORKDIR, and an account of its own                 |
| musl      | musl's C library, BusyBox's tools, no bash                                   |
| static    | one static binary and nothing else: no shell, no /etc, no /tmp               |
| nix       | everything in /nix/store, a link for /bin/sh; no /usr, /lib, /etc or /tmp     |
| torture   | glibc, and three layers of links, modes, capabilities, xattrs and whiteouts  |
| many      | static, and 100,000 small files                                              |
| entry     | glibc, with an ENTRYPOINT that would swallow any command                     |
| machine   | Debian minbase with Docker and its compose, systemd, iptables, WireGuard's and FUSE's tools  |
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import struct
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from oci import Image, Layer, LayerTar, digest
from server import Server

DEBIAN_SUITE = "bookworm"
DEBIAN_MIRROR = os.environ.get("WARREN_TEST_DEBIAN_MIRROR", "http://deb.debian.org/debian")
DEBOOTSTRAP_TIMEOUT_SECS = 600
MANY_FILES = 100_000
ROOT_PACKAGES = "python3-minimal"
MACHINE_PACKAGES = "python3-minimal,ca-certificates,docker.io,iptables,iproute2,procps,busybox-static,systemd-sysv,dbus,libpam-systemd,wireguard-tools,fuse2fs,docker-compose"

STATIC_C = """
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "wait")) pause();
    printf("static %d\\n", argc);
    return 7;
}
"""


# Bytes of a slot in the store of chunks.
SLOT = 64 << 10


def converted_disk(server: Server, digest: str, into: Path) -> Path:
    """The disk that the server made of an image, `digest` as it shows it, as a plain file in the folder `into`."""
    store = server.data_dir / "images"
    # Magic, length of the disk, slot of its header.
    header = int.from_bytes((store / "manifests" / digest.removeprefix("sha256:")).read_bytes()[16:20], "little")
    options = f"driver=qcow2,file.driver=raw,file.offset={header * SLOT},file.file.driver=file,file.file.filename={store}/chunks"
    disk = into / "disk.ext4"
    subprocess.run(["qemu-img", "convert", "--image-opts", "-O", "raw", options, str(disk)], check=True)
    return disk


class Images:
    """Builds each image once a cache folder; every method answers the same object again."""

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._built: dict[str, Image] = {}
        cache.mkdir(parents=True, exist_ok=True)

    def get(self, name: str) -> Image:
        if name not in self._built:
            self._built[name] = getattr(self, "_" + name)()
        return self._built[name]

    def root_tar(self) -> Path:
        """The root file system of `glibc` as a plain tar."""
        return self._file("debian-root.v3.tar", lambda part: _debian_root(part, ROOT_PACKAGES))

    def _file(self, name: str, build: Callable[[Path], object]) -> Path:
        path = self._cache / name
        if not path.exists():
            part = self._cache / (name + ".part")
            part.unlink(missing_ok=True)
            build(part)
            part.rename(path)
        return path

    def _blob_of(self, name: str, build: Callable[[], bytes]) -> Layer:
        """A layer whose compressed bytes are kept on disk."""
        path = self._file(name, lambda part: part.write_bytes(Layer.of_tar(build()).blob))
        blob = path.read_bytes()
        return Layer(blob, digest(gzip.decompress(blob)))

    def _glibc(self) -> Image:
        base = self._blob_of("debian-root.v3.layer.gz", lambda: self.root_tar().read_bytes())
        return Image([base], env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "FROM_IMAGE": "image"}, cmd=["bash"])

    def _machine(self) -> Image:
        base = self._blob_of("debian-machine.v2.layer.gz", lambda: self._file("debian-machine.v2.tar", lambda part: _debian_root(part, MACHINE_PACKAGES)).read_bytes())
        return self.get("glibc").with_config(layers=[base])

    def _user(self) -> Image:
        base = self.get("glibc")
        return base.with_config(
            layers=[*base.layers, _account_layer()],
            env={**base.env, "APP_MODE": "test mode"},
            user="app",
            workdir="/srv/app",
        )

    def _entry(self) -> Image:
        return self.get("glibc").with_config(entrypoint=["/bin/bash"], cmd=[])

    def _musl(self) -> Image:
        return Image([_musl_layer()], env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}, cmd=["sh"])

    def _static(self) -> Image:
        return Image([LayerTar().directory("bin").add("bin/hello", data=_static_binary(), mode=0o755).layer()], entrypoint=["/bin/hello"])

    def _nix(self) -> Image:
        path = f"/{NIX_STORE}/2ccc-hello/bin:/{NIX_STORE}/1bbb-busybox/bin"
        return Image([_nix_layer()], env={"PATH": path}, cmd=["hello"])

    def _torture(self) -> Image:
        base = self.get("glibc")
        return base.with_config(layers=[*base.layers, *_torture_layers()])

    def _many(self) -> Image:
        base = self.get("static")
        return base.with_config(layers=[*base.layers, self._blob_of("many.v1.layer.gz", _many_tar)])


def _debian_root(into: Path, packages: str) -> None:
    """Debian minbase and these packages, without what only people read, as a tar with owners and xattrs."""
    with tempfile.TemporaryDirectory(dir=into.parent) as work:
        root = Path(work) / "root"
        command = ["debootstrap", "--variant=minbase", f"--include={packages}", DEBIAN_SUITE, str(root), DEBIAN_MIRROR]
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEBOOTSTRAP_TIMEOUT_SECS)
        if done.returncode:
            raise RuntimeError(f"debootstrap failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
        for surplus in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache/apt", "var/lib/apt/lists"):
            shutil.rmtree(root / surplus, ignore_errors=True)
        subprocess.run(["tar", "--xattrs", "--numeric-owner", "--one-file-system", "-C", str(root), "-cf", str(into), "."], check=True)


def _account_layer() -> Layer:
    """An account `app` (1000:1000, also in group 1001), added the way `RUN useradd` would."""
    passwd = "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\napp:x:1000:1000:App:/home/app:/bin/bash\n"
    group = "root:x:0:\nnogroup:x:65534:\napp:x:1000:\nextra:x:1001:app\n"
    tar = LayerTar().add("etc/passwd", data=passwd.encode()).add("etc/group", data=group.encode())
    return tar.directory("home/app", uid=1000, gid=1000).directory("srv/app", uid=1000, gid=1000).layer()


def _compile(compiler: list[str], source: str) -> bytes:
    with tempfile.TemporaryDirectory() as work:
        out = Path(work) / "out"
        subprocess.run([*compiler, "-O1", "-x", "c", "-o", str(out), "-"], input=source.encode(), check=True, timeout=60)
        return out.read_bytes()


def _static_binary() -> bytes:
    return _compile(["musl-gcc", "-static", "-s"], STATIC_C)


def _busybox() -> bytes:
    return Path(shutil.which("busybox") or "/bin/busybox").read_bytes()


def _musl_loader() -> bytes:
    return Path("/lib/ld-musl-x86_64.so.1").resolve().read_bytes()


def _musl_layer() -> Layer:
    """A root like Alpine's: musl as the C library, BusyBox for everything else."""
    busybox, loader = _busybox(), _musl_loader()
    applets = subprocess.run(["busybox", "--list"], capture_output=True, text=True, check=True).stdout.split()
    tar = LayerTar()
    for folder in ("bin", "dev", "etc", "home", "lib", "proc", "root", "run", "sbin", "sys", "usr", "usr/bin", "usr/sbin", "var"):
        tar.directory(folder)
    tar.directory("tmp", mode=0o1777)
    tar.add("bin/busybox", data=busybox, mode=0o755)
    for applet in applets:
        if applet not in ("busybox", "bash"):
            tar.symlink(f"bin/{applet}", "busybox")
    tar.add("lib/ld-musl-x86_64.so.1", data=loader, mode=0o755)
    tar.add("usr/bin/musl-hello", data=_compile(["musl-gcc"], STATIC_C), mode=0o755)
    tar.add("etc/passwd", data=b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n")
    tar.add("etc/group", data=b"root:x:0:\nnogroup:x:65534:\n")
    return tar.layer()


NIX_STORE = "nix/store"


def _nix_layer() -> Layer:
    """A root as Nix makes it: a dynamic program whose loader is in the store too."""
    loader = f"{NIX_STORE}/0aaa-musl/lib/ld-musl-x86_64.so.1"
    tar = LayerTar().directory("nix").directory(NIX_STORE, mode=0o1775, gid=30000)
    for package, folder in (("0aaa-musl", "lib"), ("1bbb-busybox", "bin"), ("2ccc-hello", "bin")):
        tar.directory(f"{NIX_STORE}/{package}", mode=0o555).directory(f"{NIX_STORE}/{package}/{folder}", mode=0o555)
    tar.add(loader, data=_musl_loader(), mode=0o555).add(f"{NIX_STORE}/1bbb-busybox/bin/busybox", data=_busybox(), mode=0o555)
    for applet in ("sh", "id", "cat", "ls", "readlink", "stat", "wc"):
        tar.symlink(f"{NIX_STORE}/1bbb-busybox/bin/{applet}", "busybox")
    tar.add(f"{NIX_STORE}/2ccc-hello/bin/hello", data=_compile(["musl-gcc", f"-Wl,--dynamic-linker=/{loader}"], STATIC_C), mode=0o555)
    return tar.directory("bin").symlink("bin/sh", f"/{NIX_STORE}/1bbb-busybox/bin/sh").layer()


def _many_tar() -> bytes:
    """100,000 files of 8 bytes in 100 folders."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for folder in range(MANY_FILES // 1000):
            entry = tarfile.TarInfo(f"many/{folder:03}")
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
            for number in range(1000):
                data = f"{folder:03}{number:05}".encode()
                entry = tarfile.TarInfo(f"many/{folder:03}/{number:04}")
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


CAP_NET_RAW = 13
LONG_TARGET = "/" + "/".join(["long" * 10] * 7)


def file_capability(bit: int) -> bytes:
    """`security.capability`, version 2, one permitted capability, effective."""
    return struct.pack("<IIIII", 0x02000001, 1 << bit, 0, 0, 0)


def _torture_layers() -> list[Layer]:
    """See test_images.py, which checks every entry."""
    first = LayerTar()
    first.directory("t").directory("t/opaque").add("t/opaque/old", data=b"old").directory("t/opaque/sub").add("t/opaque/sub/old", data=b"old")
    first.add("t/gone", data=b"gone").directory("t/gone-dir").add("t/gone-dir/x", data=b"x")
    first.directory("t/becomes-file").add("t/becomes-file/x", data=b"x").add("t/becomes-dir", data=b"file")
    first.add("t/linked", data=b"linked", mode=0o640, uid=12, gid=34).hardlink("t/linked-2", "t/linked", mode=0o640, uid=12, gid=34)
    first.add("t/replaced", data=b"one").add("t/kept", data=b"kept").directory("t/readded").add("t/readded/old", data=b"old")
    first.symlink("t/dir-link", "kept-dir").directory("t/kept-dir").add("t/kept-dir/x", data=b"through")

    second = LayerTar()
    second.add("t/opaque/.wh..wh..opq").add("t/opaque/new", data=b"new")
    second.add("t/.wh.gone").add("t/.wh.gone-dir").add("t/.wh.readded").add("t/readded", data=b"a file now")
    second.add("t/becomes-file", data=b"file now").directory("t/becomes-dir").add("t/becomes-dir/x", data=b"x")
    second.add("t/replaced", data=b"two, longer").hardlink("t/linked-3", "t/linked", mode=0o640, uid=12, gid=34)

    third = LayerTar()
    third.add("t/setuid", data=_compile(["musl-gcc", "-static", "-s"], UID_C), mode=0o4755).directory("t/sticky", mode=0o1777).directory("t/setgid", mode=0o2775, gid=50)
    third.add("t/capable", data=_compile(["musl-gcc", "-static", "-s"], RAW_C), mode=0o755, xattrs={"security.capability": file_capability(CAP_NET_RAW)})
    third.add("t/xattr", data=b"x", xattrs={"user.comment": b"hello", "trusted.secret": b"\x00\x01\x02"})
    third.symlink("t/long-link", LONG_TARGET).add("t/" + "n" * 200, data=b"long name")
    third.add("t/fifo", tarfile.FIFOTYPE, mode=0o600).add("t/null", tarfile.CHRTYPE, mode=0o666, device=(1, 3))
    third.add("t/empty").add("t/zeros", data=bytes(3 << 20)).add("t/ümläut", data=b"utf-8")

    fourth = LayerTar(tarfile.GNU_FORMAT).add(os.fsdecode(b"t/latin-\xff"), data=b"not utf-8")
    return [layer.layer() for layer in (first, second, third, fourth)]


UID_C = """
#include <stdio.h>
#include <unistd.h>
int main(void) { printf("%d\\n", (int)geteuid()); return 0; }
"""

RAW_C = """
#include <stdio.h>
#include <sys/socket.h>
#include <netinet/in.h>
int main(void) { puts(socket(AF_INET, SOCK_RAW, IPPROTO_ICMP) < 0 ? "refused" : "raw"); return 0; }
"""


def escape_tar(canary: str) -> bytes:
    """A layer that tries to write outside of its root in four ways. `canary` is an absolute path on the host."""
    depth = "../" * 12
    tar = LayerTar().directory("e").add("e/ok", data=b"ok")
    tar.add(depth + canary.lstrip("/") + ".dotdot", data=b"escaped")
    tar.symlink("e/out", os.path.dirname(canary)).add(f"e/out/{os.path.basename(canary)}.symlink", data=b"escaped")
    tar.symlink("e/up", depth).add(f"e/up{os.path.dirname(canary)}/{os.path.basename(canary)}.up", data=b"escaped")
    tar.hardlink("e/hard", depth + canary.lstrip("/"))
    return tar.bytes()
