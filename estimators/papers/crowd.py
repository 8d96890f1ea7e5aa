"""K-randomization: totals of crowds and the published numbers (Zhilyaev & Zeber)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.channels.crowd import check_flip
from estimators.inference.crowd_delta import CrowdDelta, binomial, hockey_sticks

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class CrowdTotal:
    """An estimated number of records with the bit set, and its variance for this crowd (Eq. 1.1 and 1.3)."""

    records: float
    variance: float


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


def first_record_delta(records: int, flip: float, ratio: float, *, copies: int = 1) -> CrowdDelta:
    """Return the exact failure chances between no set record and one, for the published count of ones."""
    check_flip(flip)
    counts, law = binomial(copies * records, flip)
    return hockey_sticks(law, law * inverse_ratios(counts, records, flip, copies), ratio, 0)


def coverage_of_three_sigmas(records: int, flip: float, *, copies: int = 1) -> float:
    """Return the exact probability that the count of an empty crowd stays within three standard deviations."""
    counts, law = binomial(copies * records, flip)
    centre = flip * copies * records
    inside = np.abs(counts - centre) <= 3 * count_deviation(records, flip, copies=copies)
    return float(law[inside].sum())


def chance_of_excess(records: int, flip: float, ratio: float, *, copies: int = 1) -> float:
    """Return the probability, in an empty crowd, of a count whose likelihood ratio exceeds `ratio`."""
    counts, law = binomial(copies * records, flip)
    return float(law[inverse_ratios(counts, records, flip, copies) * ratio < 1].sum())


def weight_moments(records: int, flip: float, *, bits: int) -> tuple[float, float]:
    """Return mean and variance, in an empty crowd, of the weight sum_l s_l (q/p)^(L - 2l) (Eq. 2.25)."""
    p = 1 - flip
    return float(records), records * (((p**3 + flip**3) / (p * flip)) ** bits - 1)
