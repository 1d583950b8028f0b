"""Snapshots, forks, resets, pauses and templates as a user types them, and the examples as he runs them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import waiting
from clocks import Clocks
from commands import Done, created_id, prime, run, warren
from conftest import ROOT, Create
from prime_sandboxes import SandboxClient
from server import Server

SIZE = ("--memory-gb", "0.25", "--disk-size-gb", "1")
EXAMPLE_SECS = 300
# A process that holds its state in memory alone, and what asks it for that.
COUNTER = "mkfifo /root/ask /root/told; (n=0; while read -r by < /root/ask; do n=$((n + by)); echo $n > /root/told; done) > /dev/null 2>&1 &"


def answer(*words: str) -> Any:
    return json.loads(warren(*words, "--output", "json").ok().stdout)


def add(sandbox_id: str, by: int) -> int:
    return int(warren("sandbox", "run", sandbox_id, "--", "sh", "-c", f"echo {by} > /root/ask && cat /root/told").ok().stdout)


def refused(done: Done, code: int, *texts: str) -> None:
    assert done.code == code and done.stderr.startswith("error: ") and all(text in done.stderr for text in texts), done


@pytest.fixture
def counting(create: Create) -> Iterator[str]:
    """A sandbox that counts; with it go the forks and snapshots of a test."""
    sandbox = create(labels=["counting"], secrets={"S": "hush"})
    warren("sandbox", "run", sandbox.id, "--", "sh", "-c", COUNTER).ok()
    assert add(sandbox.id, 5) == 5
    yield sandbox.id
    warren("sandbox", "delete", "--label", "counting", "--yes")
    for snapshot in warren("snapshot", "list", "--sandbox", sandbox.id, "--quiet").ok().stdout.split():
        warren("snapshot", "delete", snapshot).ok()


def test_fork(counting: str):
    forked = answer("sandbox", "fork", counting, "--count", "2", "--name", "twin", "--env", "A=of fork", "--drop-secrets")["sandboxes"]
    assert [(s["name"], s["status"], s["labels"], s["snapshot_id"] is not None) for s in forked] == [("twin", "RUNNING", ["counting"], True)] * 2
    first, second = (s["id"] for s in forked)
    assert (add(first, 1), add(second, 2), add(counting, 3)) == (6, 7, 8)
    assert warren("sandbox", "run", first, "--", "sh", "-c", "echo $A,$S").ok().stdout == "of fork,\n"
    quiet = warren("sandbox", "fork", first, "--label", "counting", "--secret", "S=new", "-q").ok().stdout.split()
    assert len(quiet) == 1 and add(quiet[0], 1) == 7
    assert warren("sandbox", "run", quiet[0], "--", "sh", "-c", "echo $A,$S").ok().stdout == "of fork,new\n"
    assert "snapshot_id:" in warren("sandbox", "get", quiet[0]).ok().stdout
    refused(warren("sandbox", "fork", counting, "--count", "100000"), 1, "count", "hint:")


def test_snapshot_and_reset(counting: str, client: SandboxClient):
    refused(warren("sandbox", "reset", counting), 1, counting, "no snapshot")
    taken = answer("sandbox", "snapshot", counting, "--name", "at five")
    assert (taken["name"], taken["state"], taken["sandboxId"], taken["hasSecrets"]) == ("at five", "READY", counting, True)
    assert add(counting, 1) == 6
    shown = warren("sandbox", "reset", counting, "--snapshot", taken["id"]).ok().stdout
    assert shown == f"{counting}  RUNNING  generation 1\n"
    assert add(counting, 2) == 7
    assert (answer("sandbox", "reset", counting)["generation"], add(counting, 3)) == (2, 8)
    listed = warren("snapshot", "list").ok().stdout
    assert "at five" in listed and counting in listed
    waiting.until(lambda: answer("snapshot", "get", taken["id"])["digest"], 60, "the snapshot has its digest")
    assert "at five" in warren("snapshot", "get", taken["id"]).ok().stdout
    [fork] = answer("snapshot", "fork", taken["id"])["sandboxes"]
    refused(warren("sandbox", "reset", fork["id"], "--snapshot", taken["id"]), 1, "fork it")
    client.delete(counting)
    assert add(fork["id"], 4) == 9, "the snapshot outlives its sandbox"
    assert warren("snapshot", "delete", taken["id"]).ok().stdout == f"{taken['id']} removed\n"
    refused(warren("snapshot", "delete", taken["id"]), 1, taken["id"])
    assert add(fork["id"], 1) == 10, "its forks outlive the snapshot"


def test_pause_and_resume(counting: str):
    assert warren("sandbox", "pause", counting).ok().stdout == f"{counting}  PAUSED  generation 0\n"
    refused(warren("sandbox", "run", counting, "--", "true"), 125, "PAUSED", "resume")
    refused(warren("sandbox", "snapshot", counting), 1, "PAUSED", "hint:")
    refused(warren("sandbox", "fork", counting), 1, "PAUSED", "hint:")
    assert counting in warren("sandbox", "list", "--status", "paused", "-q").ok().stdout.split()
    assert answer("sandbox", "resume", counting)["status"] == "RUNNING"
    assert warren("sandbox", "resume", counting).ok().stdout.endswith("RUNNING  generation 0\n"), "one that runs is left alone"
    assert add(counting, 1) == 6


def test_a_command_resumes_a_sandbox_that_wants_it(server: Server, glibc: str):
    sandbox_id = warren("sandbox", "create", glibc, *SIZE, "--auto-resume", "-q").ok().stdout.strip()
    try:
        warren("sandbox", "pause", sandbox_id).ok()
        assert warren("sandbox", "run", sandbox_id, "--", "echo", "on").ok().stdout == "on\n"
        assert answer("sandbox", "get", sandbox_id)["status"] == "RUNNING"
    finally:
        warren("sandbox", "delete", sandbox_id, "--yes").ok()


def test_templates_match_what_both_clients_create(server: Server, glibc: str):
    """One command line, as text for the template and as words for the two creates."""
    words = ("/bin/sh", "-c", "echo 'a  b' > /tmp/warm; exec sleep 100000")
    made = answer("template", "create", "--image", glibc, "--memory", "0.25", "--disk", "1", "--name", "warm", "--start",
                  """/bin/sh -c "echo 'a  b' > /tmp/warm; exec sleep 100000" """, "--ready", "test -s /tmp/warm", "--wait")["templates"][0]
    ids: list[str] = []
    try:
        assert (made["state"], made["name"]) == ("READY", "warm")
        assert [made["startCommand"]["executable"], *made["startCommand"]["args"]] == list(words)
        ids.append(warren("sandbox", "create", glibc, *SIZE, "-q", "--", *words).ok().stdout.strip())
        ids.append(created_id(prime("sandbox", "create", *SIZE, "-y", glibc, "--", *words)))
        for sandbox_id in ids:
            waiting.until(lambda i=sandbox_id: answer("sandbox", "get", i)["status"] == "RUNNING", 60, "it runs")
            assert answer("sandbox", "get", sandbox_id)["template_id"]
            assert warren("sandbox", "run", sandbox_id, "--", "cat", "/tmp/warm").ok().stdout == "a  b\n"
        ids.append(warren("sandbox", "create", glibc, *SIZE, "--no-template", "-q", "--", *words).ok().stdout.strip())
        assert answer("sandbox", "get", ids[-1])["template_id"] is None
        assert "warm" in warren("template", "list").ok().stdout and "READY" in warren("template", "get", made["id"]).ok().stdout
        rebuilt = warren("template", "rebuild", made["id"], "--wait").ok()
        assert "READY" in rebuilt.stdout
    finally:
        warren("sandbox", "delete", ",".join(ids), "--yes").ok()
        assert warren("template", "delete", made["id"]).ok().stdout == f"{made['id']} removed\n"


def test_a_template_that_fails_says_why(server: Server, glibc: str):
    failed = warren("template", "create", "--image", glibc, "--memory", "0.25", "--disk", "1", "--start", "sh -c 'echo broken; exec sleep 1000'", "--ready", "false", "--ready-within", "1", "--wait")
    refused(failed, 1, "not ready within 1 s", "broken", "hint:")
    [template] = [t["id"] for t in answer("template", "list")["templates"] if t["state"] == "FAILED"]
    warren("template", "delete", template).ok()
    refused(warren("template", "create", "--image", glibc, "--start", "a 'b"), 1, "--start")


def test_example_tree_search(server: Server, glibc: str):
    done = run([sys.executable, str(ROOT / "examples/tree_search.py"), glibc], secs=EXAMPLE_SECS).ok()
    assert "add: 10  OPEN, and its folder says: add add add" in done.stdout and "double: 16  jammed" in done.stdout
    assert "opened; 9 sandboxes, all deleted" in done.stdout
    assert not left("safe")


def test_example_tree_search_deletes_all_after_ctrl_c(server: Server, glibc: str):
    process = subprocess.Popen([sys.executable, str(ROOT / "examples/tree_search.py"), glibc, "--number", "1000000"], stdout=subprocess.PIPE, text=True)
    try:
        waiting.until(lambda: len(left("safe")) >= 2, EXAMPLE_SECS, "it has forked")
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 1 and said.endswith("stopped\n"), said
    assert not left("safe")


def test_example_reset_per_episode(server: Server, glibc: str):
    done = run([sys.executable, str(ROOT / "examples/reset_per_episode.py"), glibc], secs=EXAMPLE_SECS).ok()
    lines = done.stdout.splitlines()
    assert len(lines) == 20 and all(f"generation {n}, pristine" in line for n, line in enumerate(lines, 1)), done.stdout
    assert not left("bank")


@pytest.mark.last
def test_an_idle_sandbox_pauses_and_its_next_command_resumes_it(clocks: Clocks):
    life = clocks.life("pauses")
    assert (life.last["status"], life.last["errorType"]) == ("PAUSED", None) and life.lasted > 50, life
    assert warren("sandbox", "run", life.id, "--", "echo", "on").ok().stdout == "on\n"
    # Its idle time counts from that command, not from before the pause.
    assert answer("sandbox", "get", life.id)["status"] == "RUNNING"


def left(name: str) -> list[str]:
    """Sandboxes with such a name that are not over."""
    return [s["id"] for s in answer("sandbox", "list")["sandboxes"] if s["name"].startswith(name)]
