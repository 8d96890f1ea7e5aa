"""Measurements side by side with what they are compared to, and goals that are met or missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
        """How many times better we are; of what is allowed at most, how much we need."""
        if self.theirs is not None:
            return self.ours / self.theirs
        return None if self.most is None else self.ours / self.most

    @property
    def verdict(self) -> str | None:
        """The line about the goal: met, or missed by how much; None without a goal."""
        if self.least_ratio is not None and self.theirs is not None:
            ratio = self.ours / self.theirs
            if ratio >= self.least_ratio:
                return f"goal {self.name}: met"
            return f"goal {self.name}: missed by {_number(self.least_ratio - ratio)} times"
        if self.most is None:
            return None
        if self.ours <= self.most:
            return f"goal {self.name}: met"
        return f"goal {self.name}: missed by {self.ours - self.most:.3g} {self.unit}"

    @property
    def goal(self) -> str:
        """The goal in words; empty without one."""
        if self.least_ratio is not None:
            return f"at least {self.least_ratio:g}"
        return "" if self.most is None else "at most 1"

    def row(self) -> tuple[str, str, str, str]:
        """Return the cells of the table: name, ratio, goal, and what the ratio is of."""
        shown = "" if self.ratio is None else f"{'> ' if self.still_running else ''}{_number(self.ratio)}"
        ours = f"{self.ours:,.3g} {self.unit}"
        if self.theirs is not None:
            return self.name, shown, self.goal, f"({ours}; {self.peer}: {self.theirs:,.3g})"
        if self.most is not None:
            return self.name, shown, self.goal, f"({ours}; allowed: {self.most:,.3g})"
        return self.name, shown, self.goal, f"({ours})"

    def as_json(self) -> dict[str, Any]:
        """Return all of it for a file."""
        return {
            "name": self.name,
            "ratio": self.ratio,
            "goal": self.goal,
            "verdict": self.verdict,
            "cells": self.row(),
            "ours": self.ours,
            "unit": self.unit,
            "peer": self.peer,
            "theirs": self.theirs,
        }


@dataclass(frozen=True)
class Series:
    """How a cost grows: points (x, y) of one curve of a picture. Never compared with a goal."""

    name: str
    label: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Spent:
    """Where processor time goes: seconds for a million reports, by process or by what a process does."""

    name: str
    parts: Mapping[str, float]


Measured = Result | Series | Spent


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
    """Return the results as aligned columns: ratios, and absolute figures in brackets."""
    rows = [("what", "ratio", "goal", "(ours; compared to)"), *(result.row() for result in results)]
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)
