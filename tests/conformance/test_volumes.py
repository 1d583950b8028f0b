"""Volumes with the unmodified SDK and CLI (checklist 38 and 40): disks that outlive sandboxes, on real machines."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import waiting
from commands import prime, warren
from conftest import Create, request
from prime_sandboxes import APIClient, APIError, SandboxClient, Volume, VolumeMount
from registry import Registry
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


def sums(client: SandboxClient, sandbox_id: str, folder: str) -> str:
    return sh(client, sandbox_id, f"cd {folder} && find . -type f | sort | xargs sha256sum")


def test_line_40_a_publish_is_seen_by_who_comes_after_it_is_durable(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("data")
    writer, before = create(volumes=[mount("data", "/data")]), create(volumes=[mount("data", "/data")])
    sh(client, writer.id, "mkdir /data/d && cp -a /usr/bin /data/d/ && head -c 3000000 /dev/urandom > /data/random && ln -s random /data/link")
    assert client.execute_command(before.id, "ls /data/random").exit_code != 0
    begun = client.volumes.publish(writer.id, "data", wait=False)
    assert (begun.state, begun.sandbox_id, begun.parent_id) == ("PENDING", writer.id, None)

    def durable() -> bool:
        # Asked in this order: a head that was seen must be durable when it is asked for after that.
        head = client.volumes.get("data").head_checkpoint_id
        state = client.get_checkpoint(begun.id).state
        assert head in (None, begun.id) and (head is None or state == "DURABLE")
        return head == begun.id

    waiting.until(durable, 60, "the head moves")
    shown = client.volumes.get("data")
    assert shown.occupied_bytes > 3_000_000 and shown.account_storage_used_bytes == shown.occupied_bytes
    assert [v.occupied_bytes for v in client.volumes.list().volumes if v.name == "data"] == [shown.occupied_bytes]
    # Who was there before sees nothing of it; who comes after sees all of it, also read-only: the file system is whole.
    assert client.execute_command(before.id, "ls /data/random").exit_code != 0
    after, reader = create(volumes=[mount("data", "/x")]), create(volumes=[mount("data", "/y", read_only=True)])
    written = sums(client, writer.id, "/data")
    assert len(written.splitlines()) > 100
    assert sums(client, after.id, "/x") == sums(client, reader.id, "/y") == written
    assert sh(client, reader.id, "readlink /y/link") == "random\n"
    # It is a checkpoint of its own kind.
    assert begun.id not in [c.id for c in client.list_checkpoints(writer.id)]
    with pytest.raises(APIError, match="HTTP 409"):
        client.delete_checkpoint(begun.id)
    with pytest.raises(APIError, match="HTTP 422"):
        client.create(request("", docker_image=None, disk_size_gb=None, checkpoint_id=begun.id))


def test_line_40_who_may_not_publish(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("mine"), volume("other")
    sandbox = create(volumes=[mount("mine", "/mine", read_only=True)])
    with pytest.raises(APIError, match="HTTP 404"):
        client.volumes.publish(sandbox.id, "other")
    with pytest.raises(APIError, match="HTTP 404"):
        client.volumes.publish(sandbox.id, "no such volume")
    with pytest.raises(APIError, match="HTTP 400"):
        client.volumes.publish(sandbox.id, "mine", force=True)
    client.delete(sandbox.id)
    with pytest.raises(APIError, match="HTTP 409"):
        client.volumes.publish(sandbox.id, "mine")


def test_line_40_two_sandboxes_publish(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("both")
    first, second = create(volumes=[mount("both", "/v")]), create(volumes=[mount("both", "/v")])
    for sandbox, text in ((first, "first"), (second, "second")):
        sh(client, sandbox.id, f"echo {text} > /v/who; echo {text} > /v/{text}")
    # One is under way: others are refused, also with force, also of the same sandbox.
    begun = client.volumes.publish(first.id, "both", wait=False)
    for sandbox in (first, second):
        with contextlib.suppress(APIError):
            client.volumes.publish(sandbox.id, "both", force=True, wait=False)
            assert client.get_checkpoint(begun.id).state == "DURABLE", "a publish was taken while another was not over"
    waiting.until(lambda: client.get_checkpoint(begun.id).state == "DURABLE", 60, "the first is over")
    settled(client, "both")
    if client.volumes.get("both").head_checkpoint_id == begun.id:
        with pytest.raises(APIError, match="HTTP 409.*force"):
            client.volumes.publish(second.id, "both")
    forced = client.volumes.publish(second.id, "both", force=True)
    assert client.volumes.get("both").head_checkpoint_id == forced.id
    # It goes on from what it published itself.
    sh(client, second.id, "echo more >> /v/who")
    again = client.volumes.publish(second.id, "both")
    assert (again.parent_id, again.depth) == (forced.id, forced.depth + 1)
    with pytest.raises(APIError, match="HTTP 409"):
        client.volumes.publish(first.id, "both")
    reader = create(volumes=[mount("both", "/v", read_only=True)])
    assert sh(client, reader.id, "cat /v/who; ls /v") == "second\nmore\nlost+found\nsecond\nwho\n"


def settled(client: SandboxClient, name: str) -> None:
    """Waits until no publish of a volume is under way: its head stays what it is for a second."""

    def same() -> bool:
        head = client.volumes.get(name).head_checkpoint_id
        time.sleep(1)
        return head == client.volumes.get(name).head_checkpoint_id

    waiting.until(same, 60, "the head stays")


def test_a_publish_outlives_its_sandbox_and_goes_with_its_volume(server: Server, volume: MakeVolume, create: Create, client: SandboxClient):
    volume("late")
    sandbox = create(volumes=[mount("late", "/late")])
    sh(client, sandbox.id, "head -c 20000000 /dev/urandom > /late/big; sha256sum < /late/big > /late/sum")
    begun = client.volumes.publish(sandbox.id, "late", wait=False)
    client.delete(sandbox.id)
    client.wait_for_checkpoint(begun.id)
    reader = create(volumes=[mount("late", "/late")])
    sh(client, reader.id, "sha256sum < /late/big | cmp - /late/sum")
    client.delete(reader.id)
    kept = server.data_dir / "checkpoints"
    assert begun.id in [folder.name for folder in kept.iterdir()]
    client.volumes.delete("late")
    waiting.until(lambda: begun.id not in [folder.name for folder in kept.iterdir()], 20, "its bytes are let go")
    with pytest.raises(APIError, match="HTTP 404"):
        client.get_checkpoint(begun.id)


def test_a_volume_that_is_written_to_while_it_is_published(volume: MakeVolume, create: Create, client: SandboxClient):
    """Each version is whole: what was complete before the call is there, and the file system needs no repair."""
    volume("busy")
    sandbox = create(volumes=[mount("busy", "/busy")])
    client.execute_command(sandbox.id, "nohup sh -c 'n=0; while :; do n=$((n+1)); echo $n > /busy/f$n; cp /etc/passwd /busy/copy$n; echo $n > /busy/next; mv /busy/next /busy/last; sync /busy/last; done' > /dev/null 2>&1 &")
    waiting.until(lambda: client.execute_command(sandbox.id, "test -s /busy/last").exit_code == 0, 20, "it writes")
    for _ in range(3):
        known = int(sh(client, sandbox.id, "cat /busy/last"))
        client.volumes.publish(sandbox.id, "busy")
        reader = create(volumes=[mount("busy", "/busy", read_only=True)])
        for path in (f"f{known}", f"copy{known}"):
            sh(client, reader.id, f"test -s /busy/{path}")
        client.delete(reader.id)


def test_publish_typed(volume: MakeVolume, create: Create, client: SandboxClient):
    volume("typed")
    sandbox = create(volumes=[mount("typed", "/t")])
    sh(client, sandbox.id, "echo 1 > /t/one")
    done = prime("sandbox", "volumes", "publish", "typed", "--sandbox", sandbox.id).ok()
    assert "DURABLE" in done.stdout and "Published volume typed" in done.stdout
    sh(client, sandbox.id, "echo 2 > /t/two")
    published = warren("volumes", "publish", "typed", "--sandbox", sandbox.id, "--quiet").ok().stdout.strip()
    assert published in warren("volumes", "get", "typed").ok().stdout
    refused = warren("volumes", "publish", "none", "--sandbox", sandbox.id)
    assert refused.code == 1 and "has no volume none" in refused.text
    assert published in prime("sandbox", "checkpoint", "get", published).ok().stdout


def test_serve_is_killed_amid_publishes(own_server: Server, registry: Registry):
    """After a restart each publish is durable, has failed, or was never taken; the head is one that is durable, and the sandbox goes on."""
    client = SandboxClient(APIClient())
    client.volumes.create("v")
    sandbox = client.create(request(registry.reference("glibc"), volumes=[mount("v", "/v")]))
    client.wait_for_creation(sandbox.id)
    for turn, pause in enumerate((0.0, 0.03, 0.1, 0.2, 0.4, 0.8)):
        sh(client, sandbox.id, f"head -c 8000000 /dev/urandom > /v/big; echo {turn} > /v/turn")
        ids: list[str] = []

        def publish() -> None:
            with own_server.http(timeout=5) as http, contextlib.suppress(Exception):
                ids.append(http.post(f"/api/v1/sandbox/{sandbox.id}/volumes/v/publish", json={"force": True}).raise_for_status().json()["id"])

        publishing = threading.Thread(target=publish)
        publishing.start()
        time.sleep(pause)
        own_server.kill()
        publishing.join()
        own_server.start()
        for taken in ids:
            waiting.until(lambda: client.get_checkpoint(taken).state in ("DURABLE", "FAILED"), 60, "a publish that was taken ends")
        again = waiting.until(lambda: again_published(client, sandbox.id), 60, "it can be published again")
        assert client.volumes.get("v").head_checkpoint_id == again
    reader = client.create(request(registry.reference("glibc"), volumes=[mount("v", "/v", read_only=True)]))
    client.wait_for_creation(reader.id)
    assert sh(client, reader.id, "cat /v/turn") == "5\n"
    assert sums(client, reader.id, "/v") == sums(client, sandbox.id, "/v")
    client.bulk_delete(sandbox_ids=[sandbox.id, reader.id])
    client.volumes.delete("v")


def again_published(client: SandboxClient, sandbox_id: str) -> str | None:
    """The id of a publish that became durable, unless an earlier one is not over."""
    try:
        return client.volumes.publish(sandbox_id, "v").id
    except APIError as error:
        assert "HTTP 409" in str(error)
        return None
