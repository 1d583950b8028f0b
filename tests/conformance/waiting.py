"""Waits on conditions, with a bound. Nothing in this suite sleeps and hopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

POLL_SECS = 0.05


def until(condition: Callable[[], T], secs: float, what: str) -> T:
    """Answers the first truthy answer of `condition`; fails with its last one when `secs` are over."""
    deadline = time.monotonic() + secs
    while True:
        last = condition()
        if last:
            return last
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {secs:g} s: {what} (last: {last!r})")
        time.sleep(POLL_SECS)
