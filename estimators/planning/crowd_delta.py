"""K-randomization: the chance that the published total of a crowd reveals more than its level, exactly.

The rule of the paper bounds a likelihood ratio within three standard deviations and does not state how often it fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.signal import fftconvolve
from scipy.stats import binom

from estimators.channels.crowd import check_flip
from estimators.mechanisms.k_randomization import KRandomization

Floats = NDArray[np.float64]

# Mass beyond this many standard deviations is below 1e-20; it is added to delta, so that cutting it off is safe.
_TAIL_SIGMAS = 9.5


@dataclass(frozen=True)
class CrowdDelta:
    """Failure chances of the level ln(ratio) between two crowds that differ in one record.

    `zeros` and `one` are the crowds with T and with T + 1 set records, T the number of `others`.
    """

    zeros_over_one: float
    one_over_zeros: float
    others: int = 0

    @property
    def delta(self) -> float:
        """The larger of the two directions."""
        return max(self.zeros_over_one, self.one_over_zeros)


def crowd_delta(
    records: int, flip: float, ratio: float, *, copies: int = 1, exhaustive_records: int = 4000
) -> CrowdDelta:
    """Return the worst failure chances over how many others have the bit set, 0 to records - 1.

    Up to `exhaustive_records` every number is tried; beyond that a grid that is fine at both ends, where the worst
    cases are, and refined around its worst point. Mass that was cut off in the far tails is counted as failure.
    """
    check_flip(flip)
    if records <= exhaustive_records:
        return max((_delta_given(t, records, flip, ratio, copies) for t in range(records)), key=lambda d: d.delta)
    ends = np.unique(np.geomspace(1, records // 2, 60).astype(int))
    grid = sorted({0, *ends.tolist(), records - 1, *(records - 1 - ends).tolist()})
    worst = max((_delta_given(t, records, flip, ratio, copies) for t in grid), key=lambda d: d.delta)
    at = grid.index(worst.others)
    near = np.unique(np.linspace(grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)], 40).astype(int))
    return max((_delta_given(int(t), records, flip, ratio, copies) for t in near), key=lambda d: d.delta)


def vector_delta(records: int, flip: float, ratio: float, *, bits: int, cells: int = 1 << 15) -> CrowdDelta:
    """Return failure chances for published L-bit vectors, one copy each: all zeros against one vector of ones.

    The likelihood ratio is the mean of the vectors' weights (p/q)^(2l - L) (Eq. 2.11). Its law is convolved on a
    lattice. A weight between two lattice points is split between them so that its mean stays: that is a spread, and
    both failure chances are convex, so they can only come out too large.
    """
    check_flip(flip)
    set_bits = np.arange(bits + 1)
    chance = binom.pmf(set_bits, bits, flip)
    weight = np.exp((2.0 * set_bits - bits) * math.log((1 - flip) / flip))
    # From records * ratio on, a sum reveals nothing in the one direction and is a complement in the other: what lies
    # beyond can be dropped, however heavy the tail of the weights is.
    step = records * ratio / cells
    law = _lattice_power(chance, weight / step, records, cells)
    mean = np.arange(cells) * (step / records)
    zeros_over_one = float((law * np.maximum(1 - ratio * mean, 0)).sum())
    one_over_zeros = float((law * (ratio - mean)).sum()) - (ratio - 1)
    return CrowdDelta(min(zeros_over_one, 1.0), min(max(one_over_zeros, 0.0), 1.0))


def binomial(trials: int, chance: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the support of a binomial law but for negligible tails, and its probabilities."""
    spread = _TAIL_SIGMAS * math.sqrt(trials * chance * (1 - chance)) + 60
    first = max(0, math.floor(trials * chance - spread))
    counts = np.arange(first, min(trials, math.ceil(trials * chance + spread)) + 1)
    return counts, np.asarray(binom.pmf(counts, trials, chance))


def _delta_given(others: int, records: int, flip: float, ratio: float, copies: int) -> CrowdDelta:
    own = np.arange(copies + 1)
    set_law = binomial(copies * others, 1 - flip)[1]
    unset_law = binomial(copies * (records - 1 - others), flip)[1]
    rest = np.convolve(set_law, unset_law)
    zeros = np.convolve(rest, binom.pmf(own, copies, flip))
    one = np.convolve(rest, binom.pmf(own, copies, 1 - flip))
    return hockey_sticks(zeros, one, ratio, others)


def hockey_sticks(zeros: Floats, one: Floats, ratio: float, others: int) -> CrowdDelta:
    """Return both failure chances between the laws of two crowds."""
    return CrowdDelta(
        zeros_over_one=float(np.maximum(zeros - ratio * one, 0).sum()),
        one_over_zeros=float(np.maximum(one - ratio * zeros, 0).sum()),
        others=others,
    )


def _lattice_power(chance: Floats, places: Floats, records: int, cells: int) -> Floats:
    """Return the law of the sum of `records` draws of `places` on cells 0 .. cells - 1; larger sums are dropped."""
    single = np.zeros(cells + 1)
    kept = places < cells
    below = np.floor(places[kept]).astype(np.int64)
    above = places[kept] - below
    np.add.at(single, below, chance[kept] * (1 - above))
    np.add.at(single, below + 1, chance[kept] * above)
    power = single[:cells]
    total = np.zeros(cells)
    total[0] = 1.0
    remaining = records
    while remaining:
        if remaining & 1:
            total = np.maximum(fftconvolve(total, power)[:cells], 0)
        remaining >>= 1
        if remaining:
            power = np.maximum(fftconvolve(power, power)[:cells], 0)
    return total


def failure_chance(mechanism: KRandomization) -> float:
    """Return the chance that the totals of the smallest crowd reveal more than the survey's level; never too small.

    For one bit it is exact, the worst over all other records. For vectors it compares a crowd of empty records with
    one in which one record has every bit set (Zhilyaev & Zeber's pair). Several copies of a vector have no law that
    could be convolved; the copies of each record are then taken as one long vector. An observer who cannot link them
    knows less, so that is a bound.
    """
    ratio = math.exp(mechanism.ladder[0])
    if len(mechanism.labels) == 1:
        return crowd_delta(mechanism.least_records, mechanism.flip, ratio, copies=mechanism.copies).delta
    bits = mechanism.copies * len(mechanism.labels)
    return vector_delta(mechanism.least_records, mechanism.flip, ratio, bits=bits).delta
