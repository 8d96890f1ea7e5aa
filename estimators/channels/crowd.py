"""K-randomization (Zhilyaev & Zeber): the flip probability of a crowd, its total, and what one record pays alone.

Every record of L bits is sent k times, each bit flipped with probability q; only the total over N records is meant to
be seen. The rule of the paper bounds the likelihood ratio of that total within three standard deviations. That is a
statement about a crowd with an unstated chance of failure, not local differential privacy: `planning.crowd_delta`
computes that chance, and `local_epsilon` is what a record loses to anyone who sees its own reports.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CrowdTotal:
    """An estimated number of records with the bit set, and its variance for this crowd (Eq. 1.1 and 1.3)."""

    records: float
    variance: float


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
    check_flip(flip)
    return copies * bits * math.log((1 - flip) / flip)


def total_deviation(records: int, flip: float, *, copies: int = 1) -> float:
    """Return the standard deviation of the estimated number of set records (Eq. 1.3)."""
    return math.sqrt(estimate_total(0, records, flip, copies=copies).variance)


def count_deviation(records: int, flip: float, *, copies: int = 1) -> float:
    """Return the standard deviation of the raw count of ones."""
    return math.sqrt(flip * (1 - flip) * copies * records)


def estimate_total(ones: int, records: int, flip: float, *, copies: int = 1) -> CrowdTotal:
    """Estimate how many of `records` records have the bit set from the count of ones in all their copies."""
    check_flip(flip)
    slope = 1 - 2 * flip
    return CrowdTotal(
        records=(ones - flip * copies * records) / (copies * slope),
        variance=flip * (1 - flip) * records / (copies * slope**2),
    )


def inverse_ratio(ones: int, records: int, flip: float, *, copies: int = 1) -> float:
    """Return Pr(ones | one set record) / Pr(ones | none) exactly (Eq. 0.4 and 1.8).

    A hypergeometric mean of (p/q)^(2i - k): how many of the ones came from the record's own k copies.
    """
    return float(inverse_ratios(np.array([ones]), records, flip, copies)[0])


def inverse_ratio_bound(ones: int, records: int, flip: float, *, copies: int = 1) -> float:
    """Return the paper's bound on `inverse_ratio` (Eq. 1.12); it is an upper one, so it cannot prove safety."""
    odds, share = (1 - flip) / flip, ones / (copies * records)
    return float(((1 - share) / odds + share * odds) ** copies)


def check_flip(flip: float) -> None:
    """Refuse a flip probability outside (0, 1/2)."""
    if not 0 < flip < 0.5:
        raise ValueError(f"the flip probability must lie between 0 and 1/2; got {flip!r}")


def inverse_ratios(ones: NDArray[np.int64], records: int, flip: float, copies: int) -> Floats:
    """Return `inverse_ratio` for many counts at once."""
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
