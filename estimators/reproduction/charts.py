"""Charts as data: an experiment says what is to be seen, `streams/reproduction` draws it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Curve:
    """A line through points, or points alone."""

    label: str
    x: ArrayLike
    y: ArrayLike
    style: str = "line"
    """`line`, `dashed`, `points`, or `published` (hollow marks)."""
    error: ArrayLike | None = None
    """Half-lengths of error bars."""
    colour: int | None = None
    """Number of the palette's colour; None: the next one."""


@dataclass(frozen=True)
class Band:
    """The area between two curves."""

    label: str
    x: ArrayLike
    low: ArrayLike
    high: ArrayLike
    colour: int = 0


@dataclass(frozen=True)
class Bars:
    """Groups of bars: one height per category for every label."""

    categories: Sequence[str]
    heights: Mapping[str, Sequence[float]]
    errors: Mapping[str, Sequence[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Level:
    """A horizontal line."""

    label: str
    y: float


Mark = Curve | Band | Bars | Level


@dataclass(frozen=True)
class Chart:
    """One panel of a picture."""

    title: str
    x: str
    y: str
    marks: Sequence[Mark]
    x_log: bool = False
    y_log: bool = False
