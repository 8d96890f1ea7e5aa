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
from scipy import special

from estimators.bounds import check_alpha
from estimators.channel import RetentionChannel

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

Side = Literal["above", "below"]

GRID_POINTS = 64
"""Alternatives that the e-process averages over. Fewer miss shares between them; more cost time and gain nothing."""

# 2**-20 is finer than any share that can be told apart, and each step costs a pass over all alternatives.
_BISECTIONS = 20
_CHUNK = 1024


@dataclass(frozen=True)
class YesNo:
    """Each value as a yes/no question of its own: arrays [rung, value], users [rung].

    truth is Pr(the answer names the value | it is the person's), lie the same for another value; ones counts the
    answers that name it.
    """

    truth: Floats
    lie: Floats
    ones: Floats
    users: Floats

    @classmethod
    def of(cls, truth: ArrayLike, lie: ArrayLike, ones: ArrayLike, users: ArrayLike) -> YesNo:
        """Check shapes and broadcast: truth and lie [rung] or [rung, value], ones [rung] or [rung, value]."""
        per_rung = np.asarray(users, dtype=np.float64)
        tallied = np.asarray(ones, dtype=np.float64).reshape(len(per_rung), -1)
        chances = [np.asarray(chance, dtype=np.float64).reshape(len(per_rung), -1) for chance in (truth, lie)]
        full = [np.broadcast_to(chance, tallied.shape) for chance in chances]
        if np.any(tallied < 0) or np.any(tallied > per_rung[:, None]):
            raise ValueError(
                "ones must be between 0 and the users of the rung; counts and users do not belong together"
            )
        return cls(full[0], full[1], tallied, per_rung)

    @classmethod
    def retention(cls, channels: Sequence[RetentionChannel], counts: Counts, users: Counts) -> YesNo:
        """Collapse a retention family (GRR, uRR) to the bits 'the answer is v', one per value."""
        size = channels[0].size
        lie = np.zeros((len(channels), size))
        for row, channel in zip(lie, channels, strict=True):
            row[: channel.pool] = channel.lie
        keep = np.array([channel.retention for channel in channels])
        return cls.of(keep[:, None] + lie, lie, counts, users)

    @property
    def values(self) -> int:
        """Number of values."""
        return int(self.ones.shape[1])

    def log_likelihood(self, shares: Floats) -> Floats:
        """Return sum over rungs of h ln(lambda) + (n - h) ln(1 - lambda) for shares [..., value]; 0 ln 0 = 0."""
        total = np.zeros(np.broadcast_shapes(shares.shape, (self.values,)))
        for truth, lie, ones, users in zip(self.truth, self.lie, self.ones, self.users, strict=True):
            if users > 0:
                answers = lie + (truth - lie) * shares
                total += special.xlogy(ones, answers) + special.xlog1py(users - ones, -answers)
        return np.asarray(total)

    def part(self, start: int, stop: int) -> YesNo:
        """Return some of the values."""
        return YesNo(self.truth[:, start:stop], self.lie[:, start:stop], self.ones[:, start:stop], self.users)


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
    evidence = special.logsumexp(tally.log_likelihood(alternatives), axis=0) - math.log(points)
    return np.asarray(evidence - tally.log_likelihood(limit))


def confidence_sequence(tally: YesNo, alpha: float, *, side: Side = "above", points: int = GRID_POINTS) -> Floats:
    """Return a lower bound (side above) or upper bound (side below) of every share that holds at all looks at once.

    The bound is the largest threshold that the e-process rejects, up to 2**-20 towards the safe side: rejected
    thresholds form an interval that begins at 0 (or ends at 1), so bisection finds its end. No users: 0 (or 1).
    """
    check_alpha(alpha)
    parts = [
        _confidence_part(tally.part(start, start + _CHUNK), alpha, side, points)
        for start in range(0, tally.values, _CHUNK)
    ]
    return np.concatenate(parts)


def _confidence_part(tally: YesNo, alpha: float, side: Side, points: int) -> Floats:
    enough = math.log(1.0 / alpha)
    rejected, open_end = (0.0, 1.0) if side == "above" else (1.0, 0.0)
    safe, unsafe = np.full(tally.values, rejected), np.full(tally.values, open_end)
    for _ in range(_BISECTIONS):
        middle = (safe + unsafe) / 2
        beyond = log_e(tally, middle, side=side, points=points) >= enough
        safe, unsafe = np.where(beyond, middle, safe), np.where(beyond, unsafe, middle)
    return safe
