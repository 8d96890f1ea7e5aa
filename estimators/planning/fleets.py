"""Trial fleets: what a mechanism's own estimator says at expected shares, for any number of users on any rungs.

A planned interval is one that the estimator makes of the answers to expect: exact where counts are rare, stratified or
pooled as asked. Where no closed form gives these answers, a fleet's chains are drawn once and its tally is scaled.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.estimates import Method, Population
from estimators.estimation.registry import estimator_of
from estimators.mechanism import Drawn, Specification
from estimators.simulation.simulator import simulator_of
from estimators.simulation.tallies import TRIAL_DEVICES, chains_of, expected_cells, tally_of, trial_values
from estimators.tally import Tally

Floats = NDArray[np.float64]

MOST_USERS = 10**12
"""More users than that are not planned with."""


@dataclass(frozen=True)
class Planned:
    """What to expect of every label: the true quantity, and how far the ends of its interval lie below and above.

    nan where a label cannot be estimated.
    """

    labels: tuple[str, ...]
    truth: Floats
    below: Floats
    above: Floats
    leading: NDArray[np.bool_]
    """Labels of the kind of the first; widths of other kinds are not compared with theirs."""

    @property
    def half_widths(self) -> Floats:
        """Half of each interval's width."""
        return np.asarray((self.below + self.above) / 2)

    @property
    def typical(self) -> float:
        """The median half-width over the labels of the first one's kind that can be estimated; infinite if none can."""
        known = self.half_widths[self.leading & np.isfinite(self.half_widths)]
        return float(np.median(known)) if len(known) else math.inf


@dataclass(frozen=True)
class TrialFleet:
    """A fleet with its true quantities, and its answers: expected ones where channels say them, else drawn chains."""

    specification: Specification
    truth: Floats
    answers: Floats | Drawn

    @classmethod
    def of(cls, specification: Specification, shares: Sequence[float] | None = None) -> TrialFleet:
        """Return a fleet whose kinds of values have these shares, by default even ones. Deterministic."""
        values = trial_values(specification, TRIAL_DEVICES, shares)
        expected = expected_cells(specification, values)
        answers = chains_of(specification, values) if expected is None else expected
        return cls(specification, simulator_of(specification).truth(values), answers)

    def tally(self, users: int, parts: ArrayLike) -> Tally:
        """Return the tally of so many users, of whom these parts are on each rung."""
        counts, people = self._cells(users * self.specification.copies, np.asarray(parts, dtype=np.float64))
        if self.specification.answer.kind == "bits":
            return Tally(np.rint(counts).astype(np.int64), np.rint(people).astype(np.int64))
        # Rounded along the cells, so that every user still has one answer.
        whole = np.rint(np.cumsum(counts, axis=2)).astype(np.int64)
        return Tally(np.diff(whole, prepend=0, axis=2), whole[:, :, -1])

    def _cells(self, sent: int, parts: Floats) -> tuple[Floats, Floats]:
        """Return expected counts [rung, group, cell] and users [rung, group] of so many answers."""
        if not isinstance(self.answers, Drawn):
            people = sent * parts
            return (people[:, None] * self.answers)[:, None, :], people[:, None]
        drawn = len(self.answers.groups)
        ends = np.rint(np.cumsum(parts) * drawn).astype(np.int64)
        rungs = np.repeat(np.arange(self.specification.rungs), np.diff(ends, prepend=0))
        trial = tally_of(self.specification, self.answers, rungs)
        return np.asarray(trial.counts * (sent / drawn)), np.asarray(trial.users * (sent / drawn))

    def planned(self, users: int, parts: ArrayLike, *, method: Method, population: Population, alpha: float) -> Planned:
        """Return the intervals to expect with so many users, of whom these parts are on each rung."""
        # Dealt cards depend on each other: a deck cannot be scaled. There the width falls as the root of the users.
        whole = bool(simulator_of(self.specification).jointly_encoded)
        tally = self.tally(TRIAL_DEVICES if whole else users, parts)
        found = estimator_of(self.specification).estimate(tally, method=method, population=population, alpha=alpha)
        scale = math.sqrt(TRIAL_DEVICES / users) if whole else 1.0
        below, above = scale * (found.value - found.lower), scale * (found.upper - found.value)
        return Planned(found.labels, self.truth, below, above, self.specification.leading)


def fewest(reaches: Callable[[int], bool], *, near: int = 1_000) -> int | None:
    """Return the smallest number of users that reaches a goal, to one in a thousand; None if MOST_USERS do not.

    The search begins `near` some number. The goal must be reached by every larger number too.

    >>> fewest(lambda users: users >= 50, near=7)
    50
    """
    low = high = max(near, 1)
    while high < MOST_USERS and not reaches(high):
        low, high = high, min(4 * high, MOST_USERS)
    if high == MOST_USERS and not reaches(high):
        return None
    while low == high or reaches(low):
        if low == 1:
            return 1
        low, high = max(low // 4, 1), low
    while high - low > max(high // 1_000, 1):
        middle = math.isqrt(low * high) if high > 2 * low else (low + high) // 2
        low, high = (low, middle) if reaches(middle) else (middle, high)
    return high
