"""K-randomization (Zhilyaev & Zeber): what a crowd's total gives away, exactly, and what one record pays alone.

Every record of L bits is sent k times, each bit flipped with probability q; only the total over N records is meant to
be seen. The rule of the paper bounds the likelihood ratio of that total within three standard deviations. That is a
statement about a crowd with an unstated chance of failure, not local differential privacy; here the failure chance
delta is computed, and `local_epsilon` is what a record loses to anyone who sees its own reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# Mass beyond this many standard deviations is below 1e-20; it is added to delta, so that cutting it off is safe.
_TAIL_SIGMAS = 9.5


@dataclass(frozen=True)
class CrowdTotal:
    """An estimated number of records with the bit set, and its variance for this crowd (Eq. 1.1 and 1.3)."""

    records: float
    variance: float


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


def flip_probability(records: int, ratio: float, *, copies: int = 1, bits: int = 1) -> float:
    """Return the flip probability q of the paper's rule for at least `records` records (Eq. 0.19, 1.23 and 2.33).

    ratio: the bound lambda > 1 on the likelihood ratio at three standard deviations. Fix it from a guaranteed minimum
    size of a window before data arrive; a window that turns out smaller is less private than promised.
    """
    if records < 1 or copies < 1 or bits < 1:
        raise ValueError(f"records, copies and bits must be positive; got {records}, {copies} and {bits}")
    if not ratio > 1:
        raise ValueError(f"the likelihood ratio must exceed 1; got {ratio!r}")
    spread = math.expm1(-math.log(ratio) / copies) ** 2 * copies * records / 9
    excess = math.expm1(math.log1p(spread) / bits)
    return 2 / ((4 + excess) * (1 + math.sqrt(excess / (4 + excess))))


def local_epsilon(flip: float, *, copies: int = 1, bits: int = 1) -> float:
    """Return what one record loses to someone who sees its reports: copies * bits * ln((1 - q) / q)."""
    _check_flip(flip)
    return copies * bits * math.log((1 - flip) / flip)


def total_deviation(records: int, flip: float, *, copies: int = 1) -> float:
    """Return the standard deviation of the estimated number of set records (Eq. 1.3)."""
    return math.sqrt(estimate_total(0, records, flip, copies=copies).variance)


def count_deviation(records: int, flip: float, *, copies: int = 1) -> float:
    """Return the standard deviation of the raw count of ones."""
    return math.sqrt(flip * (1 - flip) * copies * records)


def estimate_total(ones: int, records: int, flip: float, *, copies: int = 1) -> CrowdTotal:
    """Estimate how many of `records` records have the bit set from the count of ones in all their copies."""
    _check_flip(flip)
    slope = 1 - 2 * flip
    return CrowdTotal(
        records=(ones - flip * copies * records) / (copies * slope),
        variance=flip * (1 - flip) * records / (copies * slope**2),
    )


def inverse_ratio(ones: int, records: int, flip: float, *, copies: int = 1) -> float:
    """Return Pr(ones | one set record) / Pr(ones | none) exactly (Eq. 0.4 and 1.8).

    A hypergeometric mean of (p/q)^(2i - k): how many of the ones came from the record's own k copies.
    """
    return float(_inverse_ratios(np.array([ones]), records, flip, copies)[0])


def inverse_ratio_bound(ones: int, records: int, flip: float, *, copies: int = 1) -> float:
    """Return the paper's bound on `inverse_ratio` (Eq. 1.12); it is an upper one, so it cannot prove safety."""
    odds, share = (1 - flip) / flip, ones / (copies * records)
    return float(((1 - share) / odds + share * odds) ** copies)


def first_record_delta(records: int, flip: float, ratio: float, *, copies: int = 1) -> CrowdDelta:
    """Return the exact failure chances between no set record and one, for the published count of ones."""
    _check_flip(flip)
    counts, law = _binomial(copies * records, flip)
    return _hockey_sticks(law, law * _inverse_ratios(counts, records, flip, copies), ratio, 0)


def crowd_delta(
    records: int, flip: float, ratio: float, *, copies: int = 1, exhaustive_records: int = 4000
) -> CrowdDelta:
    """Return the worst failure chances over how many others have the bit set, 0 to records - 1.

    Up to `exhaustive_records` every number is tried; beyond that a grid that is fine at both ends, where the worst
    cases are, and refined around its worst point. Mass that was cut off in the far tails is counted as failure.
    """
    _check_flip(flip)
    if records <= exhaustive_records:
        return max((_delta_given(t, records, flip, ratio, copies) for t in range(records)), key=lambda d: d.delta)
    ends = np.unique(np.geomspace(1, records // 2, 60).astype(int))
    grid = sorted({0, *ends.tolist(), records - 1, *(records - 1 - ends).tolist()})
    worst = max((_delta_given(t, records, flip, ratio, copies) for t in grid), key=lambda d: d.delta)
    at = grid.index(worst.others)
    near = np.unique(np.linspace(grid[max(at - 1, 0)], grid[min(at + 1, len(grid) - 1)], 40).astype(int))
    return max((_delta_given(int(t), records, flip, ratio, copies) for t in near), key=lambda d: d.delta)


def coverage_of_three_sigmas(records: int, flip: float, *, copies: int = 1) -> float:
    """Return the exact probability that the count of an empty crowd stays within three standard deviations."""
    counts, law = _binomial(copies * records, flip)
    centre = flip * copies * records
    inside = np.abs(counts - centre) <= 3 * count_deviation(records, flip, copies=copies)
    return float(law[inside].sum())


def chance_of_excess(records: int, flip: float, ratio: float, *, copies: int = 1) -> float:
    """Return the probability, in an empty crowd, of a count whose likelihood ratio exceeds `ratio`."""
    counts, law = _binomial(copies * records, flip)
    return float(law[_inverse_ratios(counts, records, flip, copies) * ratio < 1].sum())


def weight_moments(records: int, flip: float, *, bits: int) -> tuple[float, float]:
    """Return mean and variance, in an empty crowd, of the weight sum_l s_l (q/p)^(L - 2l) (Eq. 2.25)."""
    p = 1 - flip
    return float(records), records * (((p**3 + flip**3) / (p * flip)) ** bits - 1)


def vector_delta(records: int, flip: float, ratio: float, *, bits: int, cells: int = 1 << 15) -> CrowdDelta:
    """Return failure chances for published L-bit vectors, one copy each: all zeros against one vector of ones.

    The likelihood ratio is the mean of the vectors' weights (p/q)^(2l - L) (Eq. 2.11). Its law is convolved on a
    lattice. A weight between two lattice points is split between them so that its mean stays: that is a spread, and
    both failure chances are convex, so they can only come out too large.
    """
    _check_flip(flip)
    from scipy.stats import binom

    set_bits = np.arange(bits + 1)
    chance = binom.pmf(set_bits, bits, flip)
    weight = np.exp((2.0 * set_bits - bits) * math.log((1 - flip) / flip))
    # From records * ratio on, a sum betrays nobody in the one direction and is a complement in the other: what lies
    # beyond can be dropped, however heavy the tail of the weights is.
    step = records * ratio / cells
    law = _lattice_power(chance, weight / step, records, cells)
    mean = np.arange(cells) * (step / records)
    zeros_over_one = float((law * np.maximum(1 - ratio * mean, 0)).sum())
    one_over_zeros = float((law * (ratio - mean)).sum()) - (ratio - 1)
    return CrowdDelta(min(zeros_over_one, 1.0), min(max(one_over_zeros, 0.0), 1.0))


def _check_flip(flip: float) -> None:
    if not 0 < flip < 0.5:
        raise ValueError(f"the flip probability must lie between 0 and 1/2; got {flip!r}")


def _inverse_ratios(ones: NDArray[np.int64], records: int, flip: float, copies: int) -> Floats:
    trials, log_odds = copies * records, math.log((1 - flip) / flip)
    own = np.arange(copies + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        # Successive ratios of the hypergeometric law; its own normalisation removes the need for any binomial
        # coefficient of the size of the crowd.
        steps = np.log((copies - own[:-1]) * (ones - own[:-1]) / ((own[:-1] + 1) * (trials - copies - ones + own[1:])))
    first = np.maximum(0, ones - (trials - copies))
    possible = (own >= first) & (own <= np.minimum(copies, ones))
    steps = np.where((own[:-1] >= first) & (own[1:] <= np.minimum(copies, ones)), steps, 0.0)
    logs = np.concatenate([np.zeros((1, len(ones))), np.cumsum(steps, axis=0)])
    law = np.where(possible, np.exp(logs - np.where(possible, logs, -np.inf).max(axis=0)), 0.0)
    return np.asarray((law * np.exp((2 * own - copies) * log_odds)).sum(axis=0) / law.sum(axis=0))


def _binomial(trials: int, chance: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the support of a binomial law but for negligible tails, and its probabilities."""
    from scipy.stats import binom

    spread = _TAIL_SIGMAS * math.sqrt(trials * chance * (1 - chance)) + 60
    first = max(0, math.floor(trials * chance - spread))
    counts = np.arange(first, min(trials, math.ceil(trials * chance + spread)) + 1)
    return counts, np.asarray(binom.pmf(counts, trials, chance))


def _delta_given(others: int, records: int, flip: float, ratio: float, copies: int) -> CrowdDelta:
    from scipy.stats import binom

    own = np.arange(copies + 1)
    set_law = _binomial(copies * others, 1 - flip)[1]
    unset_law = _binomial(copies * (records - 1 - others), flip)[1]
    rest = np.convolve(set_law, unset_law)
    zeros = np.convolve(rest, binom.pmf(own, copies, flip))
    one = np.convolve(rest, binom.pmf(own, copies, 1 - flip))
    return _hockey_sticks(zeros, one, ratio, others)


def _hockey_sticks(zeros: Floats, one: Floats, ratio: float, others: int) -> CrowdDelta:
    return CrowdDelta(
        zeros_over_one=float(np.maximum(zeros - ratio * one, 0).sum()),
        one_over_zeros=float(np.maximum(one - ratio * zeros, 0).sum()),
        others=others,
    )


def _lattice_power(chance: Floats, places: Floats, records: int, cells: int) -> Floats:
    """Return the law of the sum of `records` draws of `places` on cells 0 .. cells - 1; larger sums are dropped."""
    from scipy.signal import fftconvolve

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
