"""K-randomization: the chance that the published total of a crowd reveals more than its level, exactly.

The rule of the paper bounds a likelihood ratio within three standard deviations and does not state how often it fails.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.fft import irfft, next_fast_len, rfft
from scipy.signal import fftconvolve
from scipy.stats import binom

from estimators.channels.crowd import check_flip
from estimators.mechanisms.k_randomization import KRandomization

Floats = NDArray[np.float64]

# Mass beyond this many standard deviations is tiny; it is added to delta, so that cutting it off is safe.
_TAIL_SIGMAS = 9.5
_LOSS_CELLS = 1 << 12
"""Points of the lattice of one total's likelihood ratios. Half as many make chances come out too large by up to 1 in
300; more take longer and change no digit that is shown."""
_ROUNDING = 1e-11
"""Added to what comes out of a Fourier transform: more than the floats of a million points can be off together."""


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


def totals_delta(records: int, flip: float, ratio: float, *, labels: int, copies: int = 1) -> CrowdDelta:
    """Return the failure chances of the published totals of several labels, between two records that differ in all.

    Each total is a law of its own, so their likelihood ratios multiply. The worst over how many others have a label, as
    long as it is the same number for every label. Ratios lie on a lattice; one between two points is split between them
    so that its mean stays, and both chances are convex, so they can only come out too large.
    """
    check_flip(flip)
    few = np.unique(np.geomspace(1, max(records // 2, 1), 6).astype(int)).tolist()
    tried = sorted({t for t in (0, *few, *(records - 1 - t for t in few), records - 1) if 0 <= t < records})
    found = []
    for others in tried:
        zeros, one, cut = _total_laws(others, records, flip, copies)
        pairs = ((zeros, one), (one, zeros))
        first, second = (min(_composed_delta(p, q, ratio, labels) + labels * cut, 1.0) for p, q in pairs)
        found.append(CrowdDelta(first, second, others))
    return max(found, key=lambda chances: chances.delta)


def _composed_delta(law: Floats, other: Floats, ratio: float, times: int) -> float:
    """Return E (1 - ratio * product of other / law)+ over `times` independent draws from `law`."""
    possible = (law > 0) & (other > 0)
    if times == 1:
        return float(np.maximum(law - ratio * other, 0).sum())
    steps = np.log(other[possible] / law[possible])
    first, step = steps.min(), max((steps.max() - steps.min()) / _LOSS_CELLS, 1e-12)
    below = np.minimum(np.floor((steps - first) / step).astype(np.int64), _LOSS_CELLS - 1)
    # The part of the upper point that keeps the mean of the ratio itself, not of its logarithm.
    above = np.clip(np.expm1(steps - first - below * step) / math.expm1(step), 0.0, 1.0)
    single = np.zeros(_LOSS_CELLS + 1)
    np.add.at(single, below, law[possible] * (1 - above))
    np.add.at(single, below + 1, law[possible] * above)
    size = times * _LOSS_CELLS + 1
    # A length with small prime factors: times * _LOSS_CELLS + 1 may be a prime, which takes twenty times as long.
    length = next_fast_len(size, real=True)
    whole = np.maximum(irfft(_power(rfft(single, length), times), length)[:size], 0.0)
    lost = -np.expm1(np.minimum(math.log(ratio) + times * first + step * np.arange(size), 0.0))
    # Where the other law is impossible, everything is lost.
    return float(whole @ lost) + times * float(law[~possible].sum()) + _ROUNDING


def _power(base: NDArray[np.complex128], times: int) -> NDArray[np.complex128]:
    """Return base ** times by squaring: numpy's complex power takes a logarithm per element."""
    found = np.ones_like(base)
    while times:
        if times & 1:
            found = found * base
        times >>= 1
        if times:
            base = base * base
    return found


def vector_delta(records: int, flip: float, ratio: float, *, bits: int, cells: int = 1 << 15) -> CrowdDelta:
    """Return failure chances for published L-bit vectors, one copy each: all zeros against one vector of ones.

    The likelihood ratio is the mean of the vectors' weights (p/q)^(2l - L) (Eq. 2.11). Its law is convolved on a
    lattice. A weight between two lattice points is split between them so that its mean stays: that is a spread, and
    both failure chances are convex, so they can only come out too large.
    """
    check_flip(flip)
    set_bits = np.arange(bits + 1)
    chance = binom.pmf(set_bits, bits, flip)
    # A weight beyond all floats is infinite, and dropped below like every one beyond records * ratio.
    with np.errstate(over="ignore"):
        weight = np.exp((2.0 * set_bits - bits) * math.log((1 - flip) / flip))
    # From records * ratio on, a sum reveals nothing in the one direction and is a complement in the other: what lies
    # beyond can be dropped, however heavy the tail of the weights is.
    step = records * ratio / cells
    with np.errstate(over="ignore"):
        law = _lattice_power(chance, weight / step, records, cells)
    mean = np.arange(cells) * (step / records)
    zeros_over_one = float((law * np.maximum(1 - ratio * mean, 0)).sum())
    one_over_zeros = float((law * (ratio - mean)).sum()) - (ratio - 1)
    return CrowdDelta(min(zeros_over_one, 1.0), min(max(one_over_zeros, 0.0), 1.0))


def binomial(trials: int, chance: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the support of a binomial law but for negligible tails, and its probabilities."""
    counts, law, _ = cut_binomial(trials, chance)
    return counts, law


def cut_binomial(trials: int, chance: float) -> tuple[NDArray[np.int64], Floats, float]:
    """Return a binomial law without its far tails: counts, their probabilities, and the probability of the tails."""
    spread = _TAIL_SIGMAS * math.sqrt(trials * chance * (1 - chance)) + 60
    first = max(0, math.floor(trials * chance - spread))
    counts = np.arange(first, min(trials, math.ceil(trials * chance + spread)) + 1)
    tails = binom.cdf(counts[0] - 1, trials, chance) + binom.sf(counts[-1], trials, chance)
    return counts, np.asarray(binom.pmf(counts, trials, chance)), float(tails)


def _delta_given(others: int, records: int, flip: float, ratio: float, copies: int) -> CrowdDelta:
    zeros, one, cut = _total_laws(others, records, flip, copies)
    return hockey_sticks(zeros, one, ratio, others, cut=cut)


def _total_laws(others: int, records: int, flip: float, copies: int) -> tuple[Floats, Floats, float]:
    """Return the law of a total if one record has the bit unset and if it has it set, and the mass cut off each."""
    own = np.arange(copies + 1)
    _, set_law, set_tails = cut_binomial(copies * others, 1 - flip)
    _, unset_law, unset_tails = cut_binomial(copies * (records - 1 - others), flip)
    rest = np.convolve(set_law, unset_law)
    zeros = np.convolve(rest, binom.pmf(own, copies, flip))
    one = np.convolve(rest, binom.pmf(own, copies, 1 - flip))
    return zeros, one, set_tails + unset_tails


def hockey_sticks(zeros: Floats, one: Floats, ratio: float, others: int, *, cut: float = 0.0) -> CrowdDelta:
    """Return both failure chances between the laws of two crowds; `cut` is mass that is missing from each of them.

    Wherever the missing mass lies, it adds at most itself to either chance.
    """
    return CrowdDelta(
        zeros_over_one=float(np.maximum(zeros - ratio * one, 0).sum()) + cut,
        one_over_zeros=float(np.maximum(one - ratio * zeros, 0).sum()) + cut,
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


def failure_chance(mechanism: KRandomization, *, records: int | None = None) -> float:
    """Return the chance that the totals of the smallest crowd, or of `records`, reveal more than the survey's level.

    For one label it is exact, the worst over all other records. For several labels it compares two records that differ
    in all of them, and is the worst as long as equally many others have each label. Never too small.
    """
    ratio, labels = math.exp(mechanism.ladder[0]), len(mechanism.labels)
    crowd = mechanism.least_records if records is None else records
    if labels == 1:
        return crowd_delta(crowd, mechanism.flip, ratio, copies=mechanism.copies).delta
    return totals_delta(crowd, mechanism.flip, ratio, labels=labels, copies=mechanism.copies).delta


def shuffled_failure_chance(mechanism: KRandomization) -> float:
    """Return a bound on the same chance for someone who sees all copies of the smallest crowd, shuffled.

    It compares a crowd of empty records with one in which one record has every bit set (Zhilyaev & Zeber's pair).
    Several copies of a vector have no law that could be convolved; the copies of each record are then taken as one long
    vector. An observer who cannot link them knows less.
    """
    bits = mechanism.copies * len(mechanism.labels)
    return vector_delta(mechanism.least_records, mechanism.flip, math.exp(mechanism.ladder[0]), bits=bits).delta
