"""Volumes with the unmodified SDK and CLI (checklist 38 and 40): disks that outlive sandboxes, on real machines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from commands import prime, warren
from conftest import Create
from prime_sandboxes import APIError, SandboxClient, Volume, VolumeMount
from server import Server

MakeVolume = Callable[[str], Volume]


@pytest.fixture
def volume(client: SandboxClient) -> Iterator[MakeVolume]:
    """Makes volumes that the end of the test deletes; to be asked for before `create`, so that the sandboxes go first."""
    made: list[str] = []

    def volume(name: str) -> Volume:
        made.append(name)
        return client.volumes.create(name)

    yield volume
    for name in made:
        with contextlib.suppress(APIError):
            client.volumes.delete(name)


def mount(name: str, path: str, read_only: bool = False) -> VolumeMount:
    return VolumeMount(name=name, mount_path=path, read_only=read_only)


def sh(client: SandboxClient, sandbox_id: str, command: str) -> str:
    """Output of a command that must succeed."""
    done = client.execute_command(sandbox_id, command)
    assert done.exit_code == 0, done
    return done.stdout


@pytest.mark.parametrize("name", ["logs", "auth", "a/b", "status"])
def test_line_38_any_name_is_created_read_and_deleted(client: SandboxClient, name: str):
    made = client.volumes.create(name)
    with pytest.raises(APIError, match="HTTP 409"):
        client.volumes.create(name)
    got = client.volumes.get(name)
    assert (got.id, got.head_checkpoint_id, got.occupied_bytes, got.account_storage_used_bytes is not None) == (made.id, None, 0, True)
    assert name in [v.name for v in client.volumes.list().volumes]
    client.volumes.delete(name)
    with pytest.raises(APIError, match="HTTP 404"):
        client.volumes.get(name)


def test_several_mounts_of_which_one_is_read_only(volume: MakeVolume, create: Create, client: SandboxClient):
    for name in ("one", "two", "three"):
        volume(name)
    sandbox = create(volumes=[mount("three", "/mnt/deep/three"), mount("one", "/one"), mount("two", "/two", read_only=True)])
    table = sh(client, sandbox.id, "cat /proc/mounts")
    assert [line.split()[3].split(",")[0] for path in ("/mnt/deep/three", "/one", "/two") for line in table.splitlines() if line.split()[1] == path] == ["rw", "rw", "ro"]
    assert sh(client, sandbox.id, "ls -A /one | grep -v lost+found | wc -l; df --output=size -BG /one | tail -1").split() == ["0", "63G"]
    sh(client, sandbox.id, "dd if=/dev/urandom of=/one/big bs=1M count=40 conv=fsync && cp -r /etc /mnt/deep/three/ && sync && cmp /etc/passwd /mnt/deep/three/etc/passwd")
    for attempt in ("touch /two/x", "mount -o remount,rw /two", "dd if=/dev/zero of=$(grep ' /two ' /proc/mounts | cut -d' ' -f1) count=1 conv=fsync"):
        assert client.execute_command(sandbox.id, attempt).exit_code != 0, attempt
    # The device is, not only the mount.
    assert sh(client, sandbox.id, "cat /sys/block/$(basename $(grep ' /two ' /proc/mounts | cut -d' ' -f1))/ro") == "1\n"


def test_volumes_within_each_other(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("outer"), volume("inner")
    sandbox = create(volumes=[mount("inner", "/data/inner"), mount("outer", "/data")])
    sh(client, sandbox.id, "mountpoint /data && mountpoint /data/inner && touch /data/inner/x /data/y")


def test_a_volume_in_use_stays(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("held")
    sandbox = create(volumes=[mount("held", "/held")])
    with pytest.raises(APIError, match="HTTP 409.*" + sandbox.id):
        client.volumes.delete("held")
    client.delete(sandbox.id)
    client.volumes.delete("held")


def test_what_cannot_be_mounted_is_refused_and_leaves_nothing(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("there")
    before = client.list(per_page=1).total
    bad = [("not-there", "/a", "no such volume"), ("there", "/", "must not be /"), ("there", "a", "absolute"), ("there", "/proc/a", "/proc"), ("there", "/a/../b", "not have")]
    for name, path, why in bad:
        with pytest.raises(APIError, match=f"HTTP 422.*{why}"):
            create(volumes=[mount(name, path)])
    with pytest.raises(APIError, match="HTTP 422.*once"):
        create(volumes=[mount("there", "/a"), mount("there", "/b")])
    assert client.list(per_page=1).total == before


def test_a_mount_path_that_leads_through_a_file(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("lost")
    sandbox = create(wait=False, volumes=[mount("lost", "/etc/passwd/x")])
    with pytest.raises(Exception):
        client.wait_for_creation(sandbox.id)
    ended = client.get(sandbox.id)
    assert (ended.status, ended.error_type) == ("ERROR", "VOLUME_UNUSABLE")
    assert "/etc/passwd/x" in (ended.error_message or "")


def test_the_commands(server: Server, volume: MakeVolume, client: SandboxClient, glibc: str):
    prime("sandbox", "volumes", "create", "typed").ok()
    again = prime("sandbox", "volumes", "create", "typed")
    assert again.code != 0 and "HTTP 409" in again.stdout
    assert "typed" in prime("sandbox", "volumes", "list").ok().stdout
    assert "never published" in prime("sandbox", "volumes", "get", "typed").ok().stdout
    assert "never" in warren("volumes", "list").ok().stdout
    prime("sandbox", "volumes", "delete", "typed", "-y").ok()
    assert warren("volumes", "delete", "typed").code != 0
    warren("volumes", "create", "own/name").ok()
    made = warren("sandbox", "create", glibc, "--memory-gb", "0.25", "--disk-size-gb", "1", "--volume", "own/name:/v:ro", "--quiet").ok().stdout.strip()
    assert "/v" in sh(client, made, "mount | grep ' /v '")
    warren("sandbox", "delete", made, "--yes").ok()
    warren("volumes", "delete", "own/name").ok()
