#!/usr/bin/env python3
"""Searches a tree of moves that cannot be undone, by forking the live sandbox at each node.

The task is a safe. Its dial lives in the memory of a process in the sandbox, each turn is written to a folder there, and no turn can be taken
back: a dial that is past its number has jammed the safe. So each node forks its sandbox once for each move (one call; the process goes on in
all of them), makes one move in each child, keeps those that may still lead to the number, and goes on with the closest.

    pip install prime-sandboxes
    export PRIME_API_BASE_URL=http://127.0.0.1:8700 PRIME_API_KEY=...
    examples/tree_search.py IMAGE [--number 10]

IMAGE needs a shell and mkfifo. Everything that was made is deleted at the end, also after Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import uuid
from dataclasses import dataclass, field

from prime_sandboxes import APIClient, CreateSandboxRequest, SandboxClient

MOVES = ("double", "add")
SAFE = r"""
mkdir /safe && cd /safe && mkfifo move dial
dial=1
while read -r move < move; do
    case $move in
        double) dial=$((dial * 2)) ;;
        add) dial=$((dial + 3)) ;;
    esac
    echo "$move" >> turns
    echo "$dial" > dial
done
"""


@dataclass
class Node:
    """A state of the safe, and the sandbox that is in it."""

    sandbox: str
    dial: int
    moves: tuple[str, ...] = ()
    verdict: str = ""
    children: list[Node] = field(default_factory=list)


class Search:
    """The tree, and the sandboxes of its open nodes."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sandboxes = SandboxClient(APIClient())
        # Forks have it too, so that one call finds all of them.
        self.label = f"tree-search-{uuid.uuid4().hex[:8]}"
        self.made = 0
        self.seen = {1}
        self.stopped = False

    def stop(self, *_: object) -> None:
        """Between two steps: no fork is on its way then that the end would miss."""
        self.stopped = True

    def begin(self, image: str) -> Node:
        request = CreateSandboxRequest(name="safe", docker_image=image, memory_gb=0.25, disk_size_gb=1.0, timeout_minutes=30, labels=[self.label])
        sandbox = self.sandboxes.create(request)
        self.sandboxes.wait_for_creation(sandbox.id)
        self.made += 1
        self.run(sandbox.id, f"cat > /safe.sh <<'END'\n{SAFE}END\nsh /safe.sh >/dev/null 2>&1 &\nwhile ! [ -p /safe/dial ]; do sleep 0.1; done")
        return Node(sandbox.id, dial=1)

    def expand(self, node: Node) -> None:
        """Forks the node once for each move, and makes the move."""
        body = {"count": len(MOVES), "name": f"safe-{'-'.join(node.moves) or 'start'}"}
        forked = self.sandboxes.client.request("POST", f"/sandbox/{node.sandbox}/fork", json=body)["sandboxes"]
        self.made += len(forked)
        for move, fork in zip(MOVES, forked, strict=True):
            self.sandboxes.wait_for_creation(fork["id"])
            dial = int(self.run(fork["id"], f"cd /safe && echo {move} > move && cat dial"))
            node.children.append(Node(fork["id"], dial, (*node.moves, move)))
        # Nothing more can be learned from it.
        self.sandboxes.delete(node.sandbox)

    def prune(self, node: Node) -> bool:
        """Whether a node leads nowhere; its sandbox is then gone."""
        if node.dial > self.number:
            node.verdict = "jammed"
        elif node.dial in self.seen:
            node.verdict = "seen before"
        else:
            self.seen.add(node.dial)
            return False
        self.sandboxes.delete(node.sandbox)
        return True

    def search(self, root: Node) -> Node | None:
        """The node whose dial shows the number; the closest is looked at first."""
        open_nodes = [root]
        while open_nodes and not self.stopped:
            open_nodes.sort(key=lambda node: self.number - node.dial)
            node = open_nodes.pop(0)
            if node.dial == self.number:
                turns = self.run(node.sandbox, "cat /safe/turns").split()
                node.verdict = f"OPEN, and its folder says: {' '.join(turns)}"
                return node
            self.expand(node)
            open_nodes += [child for child in node.children if not self.prune(child)]
        return None

    def run(self, sandbox: str, command: str) -> str:
        done = self.sandboxes.execute_command(sandbox, command, timeout=60)
        if done.exit_code != 0:
            raise RuntimeError(f"{sandbox}: `{command}` exits with {done.exit_code}: {done.stderr}")
        return done.stdout

    def end(self) -> None:
        self.sandboxes.bulk_delete(labels=[self.label])


def show(node: Node, depth: int = 0) -> None:
    print(f"{'    ' * depth}{node.moves[-1] if node.moves else 'start'}: {node.dial}  {node.verdict}".rstrip())
    for child in node.children:
        show(child, depth + 1)


def main() -> int:
    arguments = argparse.ArgumentParser(description="Opens a safe by forking a sandbox.")
    arguments.add_argument("image")
    arguments.add_argument("--number", type=int, default=10, help="where the dial has to stand")
    given = arguments.parse_args()
    search, found = Search(given.number), None
    for name in (signal.SIGINT, signal.SIGTERM):
        signal.signal(name, search.stop)
    try:
        root = search.begin(given.image)
        found = search.search(root)
        show(root)
    finally:
        search.end()
    print("stopped" if search.stopped else f"{'opened' if found else 'no way to open it'}; {search.made} sandboxes, all deleted")
    return 0 if found else 1


if __name__ == "__main__":
    sys.exit(main())
