"""Images of several kinds, each booted; an image must be in the guest what it is in Docker."""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import authority
import images
import oci
import pytest
import waiting
from commands import warren
from conftest import BINARY, request, seed
from prime_sandboxes import APIClient, SandboxClient, SandboxImagePullError
from registry import Registry
from server import Server

Shell = Callable[[str], str]


@pytest.fixture
def boot(create: Any, client: SandboxClient, registry: Registry) -> Callable[..., Shell]:
    """Boots an image of the suite; answers a function that runs a script in it and returns stdout."""

    def boot(name: str, **more: Any) -> Shell:
        sandbox = create(image=registry.reference(name), **more)

        def shell(script: str, **call: Any) -> str:
            answer = client.execute_command(sandbox.id, script, timeout=60, **call)
            assert answer.exit_code == 0, answer
            return answer.stdout

        return shell

    return boot


def test_glibc_with_bash(boot: Any):
    shell = boot("glibc")
    assert shell("echo $BASH_VERSION; python3 -c \"print('hello')\"").split()[-1] == "hello"
    assert shell("cat /etc/debian_version").startswith("12")
    # The image's own bash, not a stand-in.
    assert shell("readlink /proc/$$/exe; :").strip() == "/usr/bin/bash"


def test_the_guest_is_a_machine_of_its_own(boot: Any, client: SandboxClient, create: Any):
    shell, other = boot("glibc", cpu_cores=1.5, memory_gb=0.5, disk_size_gb=3), boot("glibc")
    assert shell("nproc").strip() == "2" and other("nproc").strip() == "1"
    assert 400 << 10 < int(shell("awk '/MemTotal/ {print $2}' /proc/meminfo")) <= 512 << 10
    size = int(shell("df --output=size -B1 / | tail -1"))
    assert 0.93 * 3 * (1 << 30) <= size <= 3 * (1 << 30), size
    for question in ("cat /etc/machine-id", "hostname", "cat /proc/sys/kernel/random/uuid", "od -An -tx8 -N16 /dev/urandom"):
        assert shell(question) != other(question), question
    assert abs(int(shell("date +%s")) - time.time()) < 3
    assert shell("uname -r").strip() != os.uname().release


def test_user_workdir_and_env_of_the_image(boot: Any):
    shell = boot("user")
    assert shell("echo $(id -un):$PWD:$HOME:$APP_MODE") == "app:/srv/app:/home/app:test mode\n"


def test_musl_and_busybox_without_bash(boot: Any):
    """The clients always run /bin/bash: a stand-in takes its place, and the image's own tools stay in front."""
    shell = boot("musl")
    assert shell("echo ${BASH_VERSION:+bash}; [[ a == a ]] && echo $((6 * 7))") == "bash\n42\n"
    assert shell("readlink -f $(command -v grep)").strip() == "/bin/busybox"
    assert shell("musl-hello; echo $?") == "static 1\n7\n"
    assert shell("ls /bin/bash 2>/dev/null || echo the image is as it was").strip()


def test_background_jobs_without_bash_and_without_a_shell(create: Any, client: SandboxClient, registry: Registry):
    for name in ("musl", "static"):
        sandbox = create(image=registry.reference(name))
        job = client.start_background_job(sandbox.id, "echo out; exit 4", env={"A": "b"})
        done = waiting.until(lambda: (status := client.get_background_job(sandbox.id, job)).completed and status, 30, "the job ends")
        assert (done.exit_code, done.stdout) == (4, "out\n"), name


def test_no_shell_at_all(boot: Any):
    shell = boot("static")
    assert shell("/bin/hello a b; echo $?") == "static 3\n7\n"
    assert shell("mkdir -p /work && echo kept > /work/f && cat /work/f && test -d /tmp && grep -c kept /work/f") == "kept\n1\n"
    assert shell("cd /tmp && pwd; id -u") == "/tmp\n0\n"


def test_entrypoint_does_not_swallow_commands(boot: Any, create: Any, client: SandboxClient, registry: Registry):
    assert boot("entry")("echo runs") == "runs\n"
    for tag, config in (("exits", {"entrypoint": ["/bin/false"]}), ("cmd", {"cmd": ["sleep", "1"]}), ("neither", {"cmd": []})):
        sandbox = create(image=registry.push("entrypoints", tag, registry.images.get("glibc").with_config(**config)))
        assert client.execute_command(sandbox.id, "echo runs").stdout == "runs\n", tag


def test_torture_image(boot: Any):
    """Every entry of images._torture_layers, as `docker export` would have it."""
    shell = boot("torture")
    assert shell("ls -A /t/opaque; cat /t/opaque/new").split() == ["new", "new"]
    assert shell("ls -d /t/gone /t/gone-dir /t/.wh* 2>/dev/null | wc -l").strip() == "0"
    assert shell("cat /t/readded /t/becomes-file; cat /t/becomes-dir/x; cat /t/replaced /t/kept") == "a file nowfile nowxtwo, longerkept"
    inodes = shell("stat -c '%i %h %a %u:%g' /t/linked /t/linked-2 /t/linked-3").splitlines()
    assert len(set(inodes)) == 1 and inodes[0].endswith(" 3 640 12:34"), inodes
    assert shell("stat -c '%a %F' /t/setuid /t/sticky /t/setgid /t/fifo").splitlines() == ["4755 regular file", "1777 directory", "2775 directory", "600 fifo"]
    assert shell("stat -c '%g' /t/setgid").strip() == "50"
    assert shell("/t/setuid", user="nobody").strip() == "0"
    assert shell("/t/capable", user="nobody").strip() == "raw"
    names = "import os; print(sorted(os.listxattr('/t/xattr')), os.getxattr('/t/xattr', 'user.comment'), os.getxattr('/t/xattr', 'trusted.secret'), os.getxattr('/t/capable', 'security.capability').hex())"
    assert shell(f'python3 -c "{names}"').strip() == f"['trusted.secret', 'user.comment'] b'hello' b'\\x00\\x01\\x02' {images.file_capability(images.CAP_NET_RAW).hex()}"
    assert shell("readlink /t/long-link").strip() == images.LONG_TARGET
    assert shell("cat /t/" + "n" * 200) == "long name" and shell("cat /t/ümläut") == "utf-8"
    assert shell("cat $'/t/latin-\\xff'") == "not utf-8"
    assert shell("echo gone > /t/null; stat -c '%t:%T %F' /t/null").strip() == "1:3 character special file"
    assert shell("stat -c %s /t/empty /t/zeros; sha256sum < /t/zeros").split()[:3] == ["0", str(3 << 20), hashlib.sha256(bytes(3 << 20)).hexdigest()]
    assert shell("cat /t/dir-link/x") == "through"


def test_a_hundred_thousand_small_files(boot: Any):
    shell = boot("many")
    assert shell("ls /many | wc -l; ls /many/042 | wc -l; cat /many/042/0317 /many/099/0999").split() == ["100", "1000", "0420031709900999"]


def test_a_layer_with_a_wrong_digest_is_refused(registry: Registry, client: SandboxClient):
    layer = oci.LayerTar().add("wrong", data=os.urandom(1000)).layer()
    image = registry.images.get("static").with_config(layers=[*registry.images.get("static").layers, layer])
    reference = registry.push("spoiled", "v1", image)
    file = registry.blob_file(layer.digest)
    spoiled = bytearray(file.read_bytes())
    spoiled[len(spoiled) // 2] ^= 1
    file.write_bytes(spoiled)
    sandbox = client.create(request(reference))
    with pytest.raises(SandboxImagePullError):
        client.wait_for_creation(sandbox.id)
    assert "digest" in client.get(sandbox.id).error_message and layer.digest[:19] in client.get(sandbox.id).error_message
    client.delete(sandbox.id)


@pytest.fixture
def imported(server: Server) -> Iterator[list[str]]:
    """Names that a test imported; removed afterwards."""
    names: list[str] = []
    yield names
    for name in names:
        warren("images", "remove", name)


@pytest.mark.parametrize("kind", ["layout", "docker-archive", "root-tar"])
def test_import(server: Server, registry: Registry, client: SandboxClient, create: Any, tmp_path: Path, imported: list[str], kind: str):
    image = registry.images.get("musl").with_config(env={"PATH": "/bin:/usr/bin", "KIND": kind}, workdir="/home")
    if kind == "layout":
        path = oci.write_layout(tmp_path / "layout", image, "v1")
    elif kind == "docker-archive":
        path = oci.write_docker_archive(tmp_path / "archive.tar", image, "whatever:v9")
    else:
        path = tmp_path / "root.tar"
        path.write_bytes(gzip.decompress(image.layers[0].blob))
    name = f"imported-{kind}:v1"
    assert warren("images", "import", str(path), "--name", name).ok()
    imported.append(name)
    assert name in warren("images", "list").ok().stdout
    sandbox = create(image=name)
    shown = client.execute_command(sandbox.id, "echo $KIND $PWD; busybox true && echo ok").stdout.split()
    assert shown == ([kind, "/home", "ok"] if kind != "root-tar" else ["/", "ok"])


def test_a_spoiled_layout_is_refused(server: Server, registry: Registry, tmp_path: Path):
    image = registry.images.get("musl")
    path = oci.write_layout(tmp_path / "layout", image, spoil=lambda name, data: data[:-1] + b"x" if name == image.layers[0].digest else data)
    refused = warren("images", "import", str(path), "--name", "spoiled-layout:v1")
    assert refused.code == 1 and "digest" in refused.stderr
    assert "spoiled-layout" not in warren("images", "list").ok().stdout


def test_what_is_no_file_is_not_imported(server: Server, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        refused = warren("images", "import", str(path), "--name", "no-file:v1")
        assert refused.code == 1 and "neither a file nor a folder" in refused.stderr, refused


def test_the_cli_tells_why_a_create_failed(server: Server, registry: Registry):
    refused = warren("sandbox", "create", f"{registry.address}/no/such:v1", "--quiet")
    assert refused.code != 0 and "no/such" in refused.stderr and not refused.stdout.strip(), refused


@pytest.mark.parametrize("kind", ["layer", "root-tar"])
def test_a_tar_that_tries_to_escape_is_contained(server: Server, registry: Registry, client: SandboxClient, create: Any, tmp_path: Path, imported: list[str], kind: str):
    """Nothing appears outside. The image is refused with a reason, or boots with the entries inside its own root."""
    canary = tmp_path / "canary"
    canary.write_text("untouched")
    before = stat.S_IMODE(canary.stat().st_mode), canary.stat().st_nlink
    content = images.escape_tar(str(canary))
    name = f"escape-{kind}:v1"
    if kind == "layer":
        static = registry.images.get("static")
        path = oci.write_layout(tmp_path / "layout", static.with_config(layers=[*static.layers, oci.Layer.of_tar(content)]))
    else:
        path = tmp_path / "escape.tar"
        path.write_bytes(content)
    done = warren("images", "import", str(path), "--name", name)
    if done.code == 0:
        imported.append(name)
        sandbox = create(image=name)
        assert client.execute_command(sandbox.id, "cat /e/ok").stdout == "ok"
    else:
        assert "error:" in done.stderr and len(done.stderr) > 30
    assert sorted(os.listdir(tmp_path)) == sorted({"canary", path.name})
    assert canary.read_text() == "untouched" and (stat.S_IMODE(canary.stat().st_mode), canary.stat().st_nlink) == before


def test_an_image_for_another_machine_is_a_clear_error(registry: Registry, client: SandboxClient):
    reference = registry.push("arm", "v1", registry.images.get("static").with_config(architecture="arm64"))
    sandbox = client.create(request(reference))
    with pytest.raises(SandboxImagePullError):
        client.wait_for_creation(sandbox.id)
    assert "arm64" in client.get(sandbox.id).error_message
    client.delete(sandbox.id)


def test_a_moved_tag_is_seen_and_shown_by_digest(server: Server, registry: Registry, client: SandboxClient, create: Any):
    """Two creates of one tag, which is pushed again in between: each shows the digest that it runs."""
    static = registry.images.get("static")
    seen = []
    for version in (b"one", b"two"):
        reference = registry.push("moved", "latest", static.with_config(layers=[*static.layers, oci.LayerTar().add("version", data=version).layer()]))
        # Without this the tag would not be asked about again so soon.
        warren("images", "pull", reference).ok()
        sandbox = create(image=reference)
        digest = client.client.request("GET", f"/sandbox/{sandbox.id}")["imageDigest"]
        seen.append((client.execute_command(sandbox.id, "cat /version").stdout, digest))
    assert [text for text, _ in seen] == ["one", "two"] and seen[0][1] != seen[1][1] and seen[0][1].startswith("sha256:")


@pytest.mark.parametrize("trusted", [True, False])
def test_a_registry_that_speaks_tls(workspace: Path, server: Server, registry: Registry, monkeypatch: pytest.MonkeyPatch, trusted: bool):
    """Reached as the mirror of a name that nothing else answers for. The host's authorities decide; another's certificate is a clear error."""
    registry.reference("musl")
    home = workspace / f"tls-registry-{trusted}"
    tls = authority.files(workspace / "tls")
    secure = Registry(home / "registry", registry.images, tls=tls, content_of=registry).start()
    own = Server(BINARY, home / "server")
    seed(own.data_dir, server.data_dir)
    (own.data_dir / "registries.toml").write_text(f'[mirrors]\n"registry.test" = ["{secure.url}"]\n')
    if trusted:
        monkeypatch.setenv("SSL_CERT_FILE", str(tls.authority))
    try:
        own.start()
        monkeypatch.setenv("PRIME_API_BASE_URL", own.url)
        monkeypatch.setenv("PRIME_API_KEY", own.api_key)
        client = SandboxClient(APIClient())
        sandbox = client.create(request("registry.test/musl:v1"))
        if trusted:
            client.wait_for_creation(sandbox.id)
            assert client.execute_command(sandbox.id, "musl-hello").exit_code == 7
            assert secure.requests("/manifests/v1") >= 1 or "/v2/musl/manifests/v1" in secure.log.read_text()
        else:
            with pytest.raises(SandboxImagePullError):
                client.wait_for_creation(sandbox.id)
            assert "certificate" in client.get(sandbox.id).error_message.lower()
        own.delete_all()
    finally:
        own.close()
        secure.close()
