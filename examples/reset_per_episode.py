#!/usr/bin/env python3
"""Twenty episodes in one sandbox, each from the same state: a bank whose balance is in a process's memory and whose ledger is on disk.

A reset puts memory, processes and disk back to the snapshot. Id and address stay, the generation grows; a command of the episode before that
still runs ends with an error that says so.

    examples/reset_per_episode.py IMAGE [--episodes 20]        (set up as for tree_search.py; IMAGE needs a shell and mkfifo)
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from prime_sandboxes import APIClient, CreateSandboxRequest, SandboxClient

OPENING = 100
BANK = rf"""
mkdir /bank && cd /bank && mkfifo order answer
balance={OPENING}
echo "open $balance" > ledger
while read -r amount < order; do
    balance=$((balance + amount))
    echo "$amount" >> ledger
    echo "$balance" > answer
done
"""


class Bank:
    """The environment of an agent: orders go in, balances come out."""

    def __init__(self, image: str) -> None:
        self.sandboxes = SandboxClient(APIClient())
        request = CreateSandboxRequest(name="bank", docker_image=image, memory_gb=0.25, disk_size_gb=1.0, timeout_minutes=60)
        self.id = self.sandboxes.create(request).id

    def open(self) -> str:
        """Starts the bank, and keeps the state that every episode begins from."""
        self.sandboxes.wait_for_creation(self.id)
        self.run(f"cat > /bank.sh <<'END'\n{BANK}END\nsh /bank.sh >/dev/null 2>&1 &\nwhile ! [ -s /bank/ledger ]; do sleep 0.1; done")
        return self.sandboxes.client.request("POST", f"/sandbox/{self.id}/snapshots", json={"name": "opening"})["id"]

    def reset(self, snapshot: str) -> int:
        """Back to the snapshot; the generation that begins."""
        return self.sandboxes.client.request("POST", f"/sandbox/{self.id}/reset", json={"snapshot_id": snapshot})["generation"]

    def order(self, amount: int) -> int:
        """Balance after it, from the process's memory."""
        return int(self.run(f"cd /bank && echo {amount} > order && cat answer"))

    def ledger(self) -> list[str]:
        return self.run("cat /bank/ledger").splitlines()

    def run(self, command: str) -> str:
        done = self.sandboxes.execute_command(self.id, command, timeout=60)
        if done.exit_code != 0:
            raise RuntimeError(f"`{command}` exits with {done.exit_code}: {done.stderr}")
        return done.stdout

    def close(self, snapshot: str | None) -> None:
        self.sandboxes.delete(self.id)
        if snapshot:
            self.sandboxes.client.request("DELETE", f"/snapshots/{snapshot}")


def main() -> int:
    arguments = argparse.ArgumentParser(description="Episodes that all begin alike.")
    arguments.add_argument("image")
    arguments.add_argument("--episodes", type=int, default=20)
    given = arguments.parse_args()
    bank, snapshot = Bank(given.image), None
    try:
        snapshot = bank.open()
        for episode in range(given.episodes):
            began = time.monotonic()
            generation = bank.reset(snapshot)
            pristine = bank.order(0) == OPENING and bank.ledger() == [f"open {OPENING}", "0"]
            took = (time.monotonic() - began) * 1000
            # What an agent would do.
            amounts = [random.randrange(-20, 20) for _ in range(3)]
            balance = [bank.order(amount) for amount in amounts][-1]
            print(f"episode {episode}: generation {generation}, {'pristine' if pristine else 'NOT PRISTINE'} after {took:.0f} ms; "
                  f"{amounts} lead to {balance}, {len(bank.ledger())} lines in the ledger", flush=True)
            if not pristine or balance != OPENING + sum(amounts):
                return 1
    finally:
        bank.close(snapshot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
