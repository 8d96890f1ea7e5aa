"""What an experiment gives: lines, each a number with the number it is held against and a computed verdict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from estimators.reproduction.charts import Chart

Scalar = float | bool

SIGMAS = 5.0
"""Standard errors that a simulated number may be away: one false alarm in two million numbers."""


class Verdict(StrEnum):
    """What a comparison says; always computed by `judge`."""

    REPRODUCED = "reproduced"
    """Equal to the number or claim that the paper prints."""
    EXPLAINED = "explained"
    """Not equal to it, and equal to what a known correction of the paper says."""
    AGREES = "agrees"
    """Equal to a closed form or to an independent recomputation, where the paper prints no number."""
    DIFFERS = "differs"
    OTHER_DATA = "other data"
    """A published number for data that may not be passed on, shown beside ours for other data; nothing is judged."""
    UNPUBLISHED = "no published number at hand"


@dataclass(frozen=True)
class Published:
    """A number, a claim or a table of numbers from a paper, as a data file states it."""

    id: str
    place: str
    """Section, equation, table or figure of the paper."""
    what: str
    value: Any
    """A number, true for a claim, or nested lists of numbers."""
    tolerance: float
    """Half a unit of the last printed digit."""
    kind: str
    """`printed`: stands in the paper. `formula`: value of a formula as printed. `recomputed`: an independent
    recomputation of a curve that the paper only draws."""
    erratum: str | None = None
    """Id of the correction in docs/papers.md."""
    right: Any = None
    """What the correction says is right, in the shape of `value`."""
    right_tolerance: float = 0.0
    relative_tolerance: float = 0.0
    """Allowed beside `tolerance`, as a share of the number: for recomputations that were themselves simulated."""

    def slack(self, value: Scalar) -> float:
        """Return how far a number may be from `value`, one of the entry's."""
        return self.tolerance + self.relative_tolerance * abs(value)


@dataclass(frozen=True)
class Line:
    """One number of an experiment beside the number that it is held against."""

    what: str
    ours: Scalar
    error: float
    """Standard error of a simulated number; 0 if it is exact."""
    against: str
    """`printed`, `formula`, `recomputed`, `theory` (the corrected closed form), or nothing."""
    published: Scalar | None
    verdict: Verdict
    place: str = ""
    erratum: str | None = None


@dataclass(frozen=True)
class Result:
    """All that an experiment found."""

    lines: tuple[Line, ...]
    charts: tuple[Chart, ...]
    notes: tuple[str, ...]

    def count(self, verdict: Verdict) -> int:
        """Return how many lines have this verdict."""
        return sum(line.verdict is verdict for line in self.lines)


def agrees(ours: Scalar, other: Scalar, tolerance: float, error: float = 0.0) -> bool:
    """Tell whether two numbers are equal within the printed digits and the noise of a simulation.

    >>> agrees(0.5836, 0.584, 0.0005), agrees(0.5830, 0.584, 0.0005), agrees(True, False, 0.0)
    (True, False, False)
    """
    if isinstance(other, bool) or isinstance(ours, bool):
        return bool(ours) is bool(other)
    if math.isinf(ours) or math.isinf(other):
        return ours == other
    slack = 1e-9 * max(abs(ours), abs(other))
    return abs(ours - other) <= tolerance + SIGMAS * error + slack


def judge(
    ours: Scalar,
    published: Scalar,
    tolerance: float,
    *,
    error: float = 0.0,
    right: Correction | None = None,
    printed: bool = True,
) -> Verdict:
    """Return the verdict of a number: it agrees; or it agrees with a stated correction; or neither.

    printed: the number is the paper's own, not a recomputation or a closed form of ours.
    """
    if agrees(ours, published, tolerance, error):
        return Verdict.REPRODUCED if printed else Verdict.AGREES
    if right is not None and agrees(ours, right.value, right.tolerance, error):
        return Verdict.EXPLAINED
    return Verdict.DIFFERS


@dataclass(frozen=True)
class Correction:
    """What a paper should have printed."""

    value: Scalar
    tolerance: float


def flatten(value: Any) -> list[Scalar]:
    """Return the numbers of nested lists in their order; a single number is a list of one."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [number for part in value for number in flatten(part)]
    return [value]
