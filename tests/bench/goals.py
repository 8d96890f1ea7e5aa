"""Measurements side by side with what they are compared to, and goals that are met or missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True)
class Result:
    """One row of the table: how fast we are, how fast the other is (both in `unit`), and the goal.

    A goal is a least ratio of the two, or, where there is nothing to compare with, a largest number of `unit`. A row
    without a goal is only shown.
    """

    name: str
    ours: float
    unit: str
    peer: str = ""
    theirs: float | None = None
    least_ratio: float | None = None
    most: float | None = None
    still_running: bool = False
    """The other one was stopped before it was done; the ratio is larger than stated."""

    @property
    def ratio(self) -> float | None:
        """How many times better we are."""
        return None if self.theirs is None else self.ours / self.theirs

    @property
    def verdict(self) -> str | None:
        """The line about the goal: met, or missed by how much; None without a goal."""
        if self.least_ratio is not None and self.ratio is not None:
            if self.ratio >= self.least_ratio:
                return f"goal {self.name}: met"
            return f"goal {self.name}: missed by {_number(self.least_ratio - self.ratio)} times"
        if self.most is None:
            return None
        if self.ours <= self.most:
            return f"goal {self.name}: met"
        return f"goal {self.name}: missed by {self.ours - self.most:.3g} {self.unit}"

    def row(self) -> tuple[str, str, str, str, str]:
        """Return the cells of the table."""
        goal = "" if self.most is None else f"{self.most:g} {self.unit}"
        if self.least_ratio is not None:
            goal = f"{self.least_ratio:g} times"
        theirs = "" if self.theirs is None else f"{self.theirs:,.3g} ({self.peer})"
        ratio = "" if self.ratio is None else f"{'> ' if self.still_running else ''}{_number(self.ratio)}"
        return self.name, f"{self.ours:,.3g} {self.unit}", theirs, ratio, goal


def _number(times: float) -> str:
    """Return a ratio with as many digits as matter."""
    return f"{times:,.0f}" if times >= 10 else f"{times:.2f}"


def seconds(work: Work) -> float:
    """Return how long one run takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def side_by_side(ours: Work, theirs: Work, *, rounds: int = 5) -> tuple[float, float]:
    """Return the shortest times of both, measured in turns, so that a busy machine disturbs both alike."""
    ours(), theirs()
    pairs = [(seconds(ours), seconds(theirs)) for _ in range(rounds)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def table(results: Iterable[Result]) -> str:
    """Return the results as aligned columns."""
    rows = [("what", "ours", "compared to", "ratio", "goal"), *(result.row() for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
