"""Privacy budget of a device: what answers cost and what is left, in exact integers.

Costs are whole *units* of 10^-12 epsilon, rounded up, so that sums over a lifetime are exact and never too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

UNITS_PER_EPSILON = 10**12

UNBOUNDED = -1
"""The cost of an answer without a local guarantee; such answers are counted, not added."""


class BudgetError(RuntimeError):
    """A release would cost more than is left, or than the person allows. What raises it has released nothing."""


def cost_units(epsilon: float) -> int:
    """Return what a delivered epsilon costs, rounded up; UNBOUNDED for infinity.

    >>> cost_units(0.5), cost_units(1e-13), cost_units(float("inf"))
    (500000000000, 1, -1)
    """
    if math.isinf(epsilon):
        return UNBOUNDED
    return math.ceil(Fraction(epsilon) * UNITS_PER_EPSILON)


def limit_units(epsilon: float) -> int | None:
    """Return how much a budget allows, rounded down; None if it is unlimited."""
    return None if math.isinf(epsilon) else math.floor(Fraction(epsilon) * UNITS_PER_EPSILON)


def as_epsilon(units: int) -> float:
    """Return units as an epsilon, for messages."""
    return units / UNITS_PER_EPSILON


@dataclass(frozen=True)
class Odometer:
    """What a device has spent in its life, over all surveys: units, and answers without a finite cost."""

    spent_units: int
    unbounded: int

    @property
    def epsilon(self) -> float:
        """Finite spending so far."""
        return as_epsilon(self.spent_units)
