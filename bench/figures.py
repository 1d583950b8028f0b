"""Samples, and what is printed of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Samples:
    """Values of one quantity, all in `unit`."""

    unit: str
    values: list[float] = field(default_factory=list)

    def add(self, value: float) -> None:
        self.values.append(value)

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p99(self) -> float:
        """The value that 99 % do not exceed; of fewer than 100 values the largest."""
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]

    def json(self) -> dict[str, Any]:
        return {"unit": self.unit, "median": self.median, "p99": self.p99, "min": min(self.values), "n": len(self.values), "values": self.values}

    def __str__(self) -> str:
        return f"{self.median:9.1f} {self.unit:<5} p99 {self.p99:9.1f}  n={len(self.values)}"


@dataclass
class Row:
    """One row of the table: what was measured on either side, and what is wanted."""

    title: str
    bar: str
    sides: dict[str, Samples] = field(default_factory=dict)
    results: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def side(self, name: str, unit: str) -> Samples:
        return self.sides.setdefault(name, Samples(unit))

    def text(self) -> str:
        lines = [self.title, f"  bar: {self.bar}"]
        lines += [f"  {name:<44}{samples}" for name, samples in self.sides.items() if samples.values]
        lines += [f"  {name:<44}{value:9.2f}" for name, value in self.results.items()]
        return "\n".join(lines + [f"  note: {note}" for note in self.notes])

    def json(self) -> dict[str, Any]:
        sides = {name: samples.json() for name, samples in self.sides.items() if samples.values}
        return {"title": self.title, "bar": self.bar, "sides": sides, "results": self.results, "notes": self.notes}


def timed(action: Callable[[], object]) -> float:
    """Milliseconds that `action` takes."""
    begun = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - begun)
