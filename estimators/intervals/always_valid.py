"""Bounds that may be looked at all the time: wrong at some look with probability at most alpha.

An alert looks at every tick. The likelihood e-process is exact for any number of looks and is a function of the current
tally alone: nothing to store, nothing to spend twice. It assumes that the rung does not depend on the value. Where it
may (self-selected rungs), use the checkpoints of checkpoints.py. The theorem and its proof are in docs/always-valid.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.channel import Channel, one_against_rest
from estimators.channels.nested import Retaining
from estimators.intervals.one_look import check_alpha
from estimators.intervals.sequence_ends import Curves, lower_ends

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

Side = Literal["above", "below"]

GRID_POINTS = 64
"""Alternatives that the e-process averages over. Fewer may miss a share between them; more cost more time."""


@dataclass(frozen=True, eq=False)
class YesNo:
    """Each value as a yes/no question of its own: arrays [rung, value].

    truth is Pr(the answer names the value | it is the person's), lie the same for another value; ones counts the
    answers that name it, users those who answered.
    """

    truth: Floats
    lie: Floats
    ones: Floats
    users: Floats

    @classmethod
    def of(cls, truth: ArrayLike, lie: ArrayLike, ones: ArrayLike, users: ArrayLike) -> YesNo:
        """Check and broadcast: each array is [rung] or [rung, value]."""
        rungs = len(np.asarray(users))
        arrays = [np.asarray(array, dtype=np.float64).reshape(rungs, -1) for array in (truth, lie, ones, users)]
        full = np.broadcast_arrays(*arrays)
        if np.any(full[2] < 0) or np.any(full[2] > full[3]):
            raise ValueError(
                "ones must be between 0 and the users of the rung; counts and users do not belong together"
            )
        return cls(full[0], full[1], full[2], full[3])

    @classmethod
    def retention(cls, channels: Sequence[Retaining], counts: Counts, users: Counts) -> YesNo:
        """Collapse a retention family (GRR, uRR) to the bits 'the answer is v', one per value."""
        lie = np.array([channel.response.lie for channel in channels])
        keep = np.array([channel.retention for channel in channels])
        return cls.of(keep[:, None] + lie, lie, counts, users)

    @classmethod
    def dense(cls, channels: Sequence[Channel], counts: Counts, users: Counts) -> YesNo | None:
        """Collapse any channel whose answer v is equally likely under all values but v; None if one is not."""
        probabilities = one_against_rest(channels)
        return None if probabilities is None else cls.of(*probabilities, counts, users)

    @property
    def values(self) -> int:
        """Number of values."""
        return int(self.ones.shape[1])

    def log_likelihood(self, shares: Floats) -> Floats:
        """Return sum over rungs of h ln(lambda) + (n - h) ln(1 - lambda) for shares [..., value]; 0 ln 0 = 0."""
        total = np.zeros(np.broadcast_shapes(shares.shape, (self.values,)))
        for truth, lie, ones, users in zip(self.truth, self.lie, self.ones, self.users, strict=True):
            if users.any():
                answers = lie + (truth - lie) * shares
                total += _times_log(ones, answers) + _times_log(users - ones, 1.0 - answers)
        return np.asarray(total)

    def rungs(self, chosen: NDArray[np.bool_]) -> YesNo:
        """Return some of the rungs."""
        return YesNo(self.truth[chosen], self.lie[chosen], self.ones[chosen], self.users[chosen])

    def values_at(self, places: NDArray[np.int64]) -> YesNo:
        """Return the values at these places, in that order."""
        return YesNo(self.truth[:, places], self.lie[:, places], self.ones[:, places], self.users[:, places])


def _times_log(counts: Floats, chances: Floats) -> Floats:
    # 0 ln 0 = 0. A third of the time of scipy's xlogy and xlog1py together, and this is the inner loop of every look.
    with np.errstate(divide="ignore", invalid="ignore"):
        product = counts * np.log(chances)
    if np.all(counts > 0):
        return np.asarray(product)
    return np.where(counts > 0, product, 0.0)


def log_e(tally: YesNo, threshold: ArrayLike, *, side: Side = "above", points: int = GRID_POINTS) -> Floats:
    """Return the logarithm of the e-process against 'the share is at most (above) or at least (below) threshold'.

    One entry per value; threshold in (0, 1), a number or one per value. Alarm iff it reaches ln(1 / alpha). It is the
    mean over equally spaced alternatives of their likelihood ratio against the threshold, of last answers only.
    """
    limit = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (tally.values,))
    if np.any((limit <= 0) | (limit >= 1)):
        raise ValueError(f"a threshold must be a share strictly between 0 and 1; got {limit.tolist()[:5]}")
    grid = (np.arange(points) + 0.5)[:, None] / points
    alternatives = limit + (1.0 - limit) * grid if side == "above" else limit * grid
    logs = tally.log_likelihood(alternatives)
    # By hand: the library's function costs ten times as much, and this is computed at every tick of every window. The
    # alternatives lie inside (0, 1), so the highest is finite.
    highest = logs.max(axis=0)
    evidence = highest + np.log(np.exp(logs - highest).mean(axis=0))
    return np.asarray(evidence - tally.log_likelihood(limit))


def confidence_sequence(tally: YesNo, alpha: float, *, side: Side = "above", points: int = GRID_POINTS) -> Floats:
    """Return a lower bound (side above) or upper bound (side below) of every share that holds at all looks at once.

    The bound is the largest threshold that the e-process rejects, up to 2**-20 towards the safe side: rejected
    thresholds form an interval that begins at 0 (or ends at 1); sequence_ends finds its end. No users: 0 (or 1).
    """
    check_alpha(alpha)
    enough = math.log(1.0 / alpha)
    if side == "above":
        return lower_ends(Curves.of(tally.truth, tally.lie, tally.ones, tally.users), enough, points)
    # The share of all others: what lies above its bound is what lies below the share's.
    return 1.0 - lower_ends(Curves.of(tally.lie, tally.truth, tally.ones, tally.users), enough, points)


def confidence_interval(tally: YesNo, alpha: float) -> tuple[Floats, Floats]:
    """Return lower and upper bounds, each with half of alpha: the interval holds at all looks with 1 - alpha."""
    return confidence_sequence(tally, alpha / 2), confidence_sequence(tally, alpha / 2, side="below")
