"""Start rules: every kind of image boots and takes commands, as the user and in the folder that `docker run` has for it; or says what is missing.

What an image's ENTRYPOINT and CMD mean here is in docs/start-rules.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import oci
import pytest
import waiting
from commands import run
from conftest import ROOT
from docker_side import Docker
from images import DEBIAN_MIRROR, Images
from prime_sandboxes import SandboxClient
from registry import Registry
from server import Server

WHO = "echo $(id -u):$(id -g) groups $(id -G) home $HOME in $(pwd) path $PATH"

# What an image may say; the base is a root like Alpine's.
CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "entrypoint-and-cmd": {"entrypoint": ["/bin/echo"], "cmd": ["hello"]},
    "cmd": {"cmd": ["sleep", "1"]},
    "neither": {"cmd": []},
    "empty-entrypoint": {"entrypoint": [], "cmd": []},
    "shell-as-entrypoint": {"entrypoint": ["/bin/sh"], "cmd": []},
    "entrypoint-that-exits": {"entrypoint": ["/bin/false"]},
    "entrypoint-that-is-missing": {"entrypoint": ["/no/such/program"]},
    "user-number": {"user": "12345"},
    "user-number-and-group": {"user": "12345:77"},
    "user-name": {"user": "nobody"},
    "user-and-group": {"user": "nobody:games"},
    "user-of-groups": {"user": "worker"},
    "user-and-its-number": {"user": "1007"},
    "user-with-home-of-env": {"user": "worker", "env": {"HOME": "/elsewhere", "PATH": "/bin"}},
    "workdir-missing": {"workdir": "/made/on/start"},
    "workdir-missing-and-user": {"workdir": "/made/on/start", "user": "worker"},
    "no-path": {"env": {}},
}
PASSWD = b"root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\nworker:x:1007:1008:w:/home/worker:/bin/sh\n"
GROUP = b"root:x:0:\ngames:x:60:\nstaff:x:50:worker,nobody\nlate:x:1009:worker\nnogroup:x:65534:\nworker:x:1008:\n"


@pytest.fixture(scope="module")
def base(images: Images) -> oci.Image:
    accounts = oci.LayerTar().add("etc/passwd", data=PASSWD).add("etc/group", data=GROUP).directory("home/worker", uid=1007, gid=1008)
    musl = images.get("musl")
    return musl.with_config(layers=[*musl.layers, accounts.layer()])


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Docker]:
    docker = Docker(tmp_path_factory.mktemp("docker") / "d", "--storage-driver", "vfs")
    docker.start()
    yield docker
    docker.close()


@pytest.mark.parametrize("name", CONFIGS)
def test_commands_run_as_docker_runs_them(docker: Docker, registry: Registry, base: oci.Image, create: Any, client: SandboxClient, tmp_path: Path, name: str):
    image = base.with_config(**CONFIGS[name])
    docker("load", "--input", str(oci.write_docker_archive(tmp_path / "image.tar", image, f"start:{name}")))
    theirs = docker("run", "--rm", "--network", "none", "--entrypoint", "/bin/sh", f"start:{name}", "-c", WHO)
    sandbox = create(image=registry.push("start", name, image))
    ours = client.execute_command(sandbox.id, WHO)
    # The clients need tools that this root lacks; they are found after all of the image's own.
    assert (ours.exit_code, ours.stdout.strip().replace(":/dev/warren/tools/bin", "")) == (0, theirs), ours.stderr


def test_a_root_as_nix_makes_it(registry: Registry, create: Any, client: SandboxClient):
    sandbox = create(image=registry.reference("nix"))
    shown = client.execute_command(sandbox.id, "id -u; hello; echo $?; readlink /bin/sh; test -d /tmp && echo has /tmp; command -v cat")
    store = "/nix/store"
    assert shown.stdout.splitlines() == ["0", "static 1", "7", f"{store}/1bbb-busybox/bin/sh", "has /tmp", f"{store}/1bbb-busybox/bin/cat"], shown
    # Nothing of it is ours to write.
    assert client.execute_command(sandbox.id, "ls -A /usr /lib64 2>/dev/null | wc -l; stat -c %a:%g /nix/store").stdout.split() == ["0", "1775:30000"]


def test_a_root_with_nothing_but_one_program(registry: Registry, create: Any, client: SandboxClient):
    """No /etc, no /tmp, no accounts, no shell: the tools of the platform stand in, for commands and jobs."""
    image = registry.images.get("static").with_config(user="12345:77", workdir="/work/deep")
    sandbox = create(image=registry.push("start", "scratch", image))
    shown = client.execute_command(sandbox.id, "echo $(id -u):$(id -g) $HOME $(pwd); /bin/hello; echo $?; touch /tmp/f && echo wrote")
    assert shown.stdout.splitlines() == ["12345:77 / /work/deep", "static 1", "7", "wrote"], shown
    missing = client.execute_command(sandbox.id, "/usr/bin/python3 -c 1")
    assert missing.exit_code == 127 and "/usr/bin/python3" in missing.stderr and "No such file" in missing.stderr


def test_an_s6_style_init_is_process_1_of_the_commands_world(registry: Registry, base: oci.Image, create: Any, client: SandboxClient):
    init = b"#!/bin/sh\necho init is $$\nmkdir -p /run/service\ntrap 'echo told to end; exit 5' TERM\nwhile :; do sleep 0.1; done\n"
    layer = oci.LayerTar().add("init", data=init, mode=0o755).layer()
    image = base.with_config(layers=[*base.layers, layer], entrypoint=["/init"], cmd=[])
    sandbox = create(image=registry.push("start", "s6", image), start_command={"executable": "/init", "args": []})
    waiting.until(lambda: "init is 1\n" in client.get_logs(sandbox.id), 20, "the init runs, as process 1")
    assert client.execute_command(sandbox.id, "tr '\\0' ' ' < /proc/1/cmdline; ls -d /run/service").stdout == "/bin/sh /init /run/service\n"
    client.delete(sandbox.id)
    assert "told to end\n" in client.get_logs(sandbox.id)
    assert client.client.request("GET", f"/sandbox/{sandbox.id}")["exitCode"] == 5


# The start command


def test_a_start_command_replaces_the_entrypoint_and_has_its_last_words(registry: Registry, base: oci.Image, create: Any, client: SandboxClient):
    image = base.with_config(entrypoint=["/bin/echo", "swallowed:"], user="worker", workdir="/home/worker", env={"PATH": "/bin", "FROM_IMAGE": "yes"})
    script = "echo $(id -un) in $(pwd) with $FROM_IMAGE $FROM_SANDBOX; trap 'sleep 0.5; echo last words; exit 3' TERM; echo ready; while :; do sleep 0.1; done"
    sandbox = create(image=registry.push("start", "replaced", image), start_command={"executable": "/bin/sh", "args": ["-c", script]}, environment_vars={"FROM_SANDBOX": "too"})
    waiting.until(lambda: "ready\n" in client.get_logs(sandbox.id), 20, "the start command runs")
    client.delete(sandbox.id)
    # The shell tells of its child, which got the signal too.
    assert client.get_logs(sandbox.id).replace("Terminated\n", "") == "worker in /home/worker with yes too\nready\nlast words\nthe start command ended with exit code 3\n"
    assert client.client.request("GET", f"/sandbox/{sandbox.id}")["exitCode"] == 3


def test_a_start_command_that_ignores_its_signal_is_killed_after_the_grace_period(registry: Registry, base: oci.Image, create: Any, client: SandboxClient):
    script = "trap 'echo heard it' TERM; echo ready; while :; do sleep 0.1; done"
    sandbox = create(image=registry.push("start", "plain", base), start_command={"executable": "/bin/sh", "args": ["-c", script]})
    waiting.until(lambda: "ready\n" in client.get_logs(sandbox.id), 20, "the start command runs")
    client.delete(sandbox.id)
    shown = client.client.request("GET", f"/sandbox/{sandbox.id}")
    assert "heard it\n" in client.get_logs(sandbox.id) and shown["status"] == "TERMINATED"


@pytest.mark.parametrize("executable, args, log", [
    ("/bin/sh", ["-c", "echo out; echo err >&2; exit 4"], "out\nerr\nthe start command ended with exit code 4\n"),
    ("/bin/sh", ["-c", "echo out; kill -9 $$"], "out\nthe start command ended by signal 9\n"),
    ("no-such-program", [], "cannot execute \"no-such-program\""),
], ids=["exits", "killed", "missing"])
def test_the_end_of_a_start_command_is_told_and_ends_nothing(registry: Registry, base: oci.Image, create: Any, client: SandboxClient, executable: str, args: list[str], log: str):
    sandbox = create(image=registry.push("start", "plain", base), start_command={"executable": executable, "args": args})
    waiting.until(lambda: log in client.get_logs(sandbox.id), 20, "the logs tell its end")
    assert client.execute_command(sandbox.id, "echo goes on").stdout == "goes on\n"


@pytest.mark.parametrize("config, named", [({"user": "ghost"}, "ghost"), ({"user": "ghost:games"}, "ghost"), ({"user": "worker:nobodies"}, "nobodies"), ({"workdir": "srv/app"}, "srv/app")])
def test_what_an_image_asks_for_and_lacks_is_named_at_once(registry: Registry, base: oci.Image, client: SandboxClient, create: Any, config: dict[str, str], named: str):
    """As Docker does, which refuses to start such a container."""
    sandbox = create(image=registry.push("start", "lacks-" + "-".join(config.values()).replace(":", "-").replace("/", "-"), base.with_config(**config)), wait=False)
    ended = waiting.until(lambda: (s := client.get(sandbox.id)).status not in ("PENDING", "PROVISIONING") and s, 60, "the sandbox is over")
    assert ended.status == "ERROR" and f'"{named}"' in ended.error_message, ended
    assert ended.error_type == "IMAGE_UNUSABLE"


# Images that are ours to provide


def test_the_platform_image_for_volumes(server: Server, create: Any, client: SandboxClient):
    """`volume-import:dev` (contract 5.3): made by our script, found by its name without a registry."""
    script = run([str(ROOT / "scripts/platform-images.sh")], env={"WARREN_URL": server.url, "WARREN_API_KEY": server.api_key, "PLATFORM_IMAGES_MIRROR": DEBIAN_MIRROR}, secs=600)
    assert "volume-import:dev" in script.ok().text
    sandbox = create(image="volume-import:dev")
    shown = client.execute_command(sandbox.id, "rsync --version | head -n 1; bash --version | head -n 1; mkdir -p /a /b && echo kept > /a/f && rsync -a /a/ /b/ && cat /b/f").stdout.splitlines()
    assert shown[0].startswith("rsync  version 3") and shown[1].startswith("GNU bash") and shown[2] == "kept", shown
