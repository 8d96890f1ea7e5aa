"""Noisy sampling against relaxation: variances and published experiments (Pan)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.channels.moments import (
    binary_variance,
    retention_variances,
)
from estimators.channels.noisy_sampling import sampling_epsilon, sampling_ladder
from estimators.channels.response import REAL
from estimators.papers.closed_forms import grr_response

Floats = NDArray[np.float64]


def sampling_variance(permanent: float, sample: float, samples: int, users: int) -> float:
    """Return the variance of the linear decoder for a fixed fleet (Pan, Eq. 68 and 134)."""
    spread = binary_variance(sample, users) / samples / math.tanh(permanent / 2) ** 2
    return spread + binary_variance(permanent, users)


def count_laws(permanent: float, sample: float, samples: int) -> tuple[Floats, Floats]:
    """Return the laws of the number of ones among the samples for a bit that is 1 and a bit that is 0."""
    told = REAL.grr(sample, 2).truth
    ones = np.array([math.comb(samples, t) * told**t * (1 - told) ** (samples - t) for t in range(samples + 1)])
    kept, turned = REAL.grr(permanent, 2).truth, REAL.grr(permanent, 2).lie
    return kept * ones + turned * ones[::-1], kept * ones[::-1] + turned * ones


def majority_variance(permanent: float, sample: float, samples: int, users: int) -> float:
    """Return the variance when each person's samples are decoded by majority (a fair coin at a draw)."""
    if_one, _ = count_laws(permanent, sample, samples)
    counts = np.arange(samples + 1)
    decoded = float(if_one[2 * counts > samples].sum() + 0.5 * if_one[2 * counts == samples].sum())
    return decoded * (1 - decoded) / (users * (2 * decoded - 1) ** 2)


def weighted_variance(permanent: float, sample: float, samples: int, users: int, share: float) -> float:
    """Return the variance with the best weight per number of ones, for a fixed fleet with this share of ones."""
    if_one, if_zero = count_laws(permanent, sample, samples)
    weights = (if_one - if_zero) / (share * if_one + (1 - share) * if_zero)
    gain = float(weights @ (if_one - if_zero))
    spread = share * _variance(weights, if_one) + (1 - share) * _variance(weights, if_zero)
    return spread / (users * gain**2)


def _variance(scores: Floats, law: Floats) -> float:
    return float(law @ scores**2 - (law @ scores) ** 2)


@dataclass(frozen=True)
class SamplingComparison:
    """Variances of the share of ones after the same loss: three decoders of noisy samples, and relaxation."""

    linear: float
    majority: float
    weighted: float
    relaxation: float


def compare_sampling(permanent: float, sample: float, samples: int, users: int, share: float) -> SamplingComparison:
    """Return what relaxation gains over noisy sampling at equal privacy."""
    return SamplingComparison(
        sampling_variance(permanent, sample, samples, users),
        majority_variance(permanent, sample, samples, users),
        weighted_variance(permanent, sample, samples, users, share),
        binary_variance(sampling_epsilon(permanent, sample, samples), users),
    )


@dataclass(frozen=True)
class Curve:
    """One curve of figure 1: level, variance of noisy sampling, variance of relaxation, per round, for one person."""

    levels: list[float]
    sampling: list[float]
    relaxation: list[float]


def sampling_curve(permanent: float, sample: float, rounds: int) -> Curve:
    """Return the curves of Pan's figures 1a and 1b."""
    levels = sampling_ladder(permanent, sample, rounds)
    sampled = [sampling_variance(permanent, sample, k, 1) for k in range(1, rounds + 1)]
    return Curve(levels, sampled, [binary_variance(level, 1) for level in levels])


def linear_ladder(rounds: int, *, first: float = 0.1, last: float = 1.0) -> list[float]:
    """Return equally spaced levels, as in Pan's figure 1c; one round is the last level."""
    if rounds == 1:
        return [last]
    return [first + (last - first) * j / (rounds - 1) for j in range(rounds)]


@dataclass(frozen=True)
class BinaryExperiment:
    """What theory says about Pan's first experiment, per round."""

    levels: list[float]
    deviation: list[float]
    lower: list[float]
    upper: list[float]
    sampling_variance: list[float]
    minimum_error: float


def binary_experiment(permanent: float, sample: float, rounds: int, users: int, share: float) -> BinaryExperiment:
    """Return levels, standard deviations and intervals of two of them for every round (Pan, section 6.1)."""
    levels = sampling_ladder(permanent, sample, rounds)
    deviation = [math.sqrt(binary_variance(level, users)) for level in levels]
    return BinaryExperiment(
        levels,
        deviation,
        [share - 2 * sd for sd in deviation],
        [share + 2 * sd for sd in deviation],
        [sampling_variance(permanent, sample, k, users) for k in range(1, rounds + 1)],
        REAL.grr(levels[-1], 2).lie,
    )


def value_experiment(counts: Sequence[int], ladder: Sequence[float]) -> list[list[float]]:
    """Return the standard deviation of every share at every level (Pan, section 6.2)."""
    users = sum(counts)
    shares = np.array(counts) / users
    deviations = (
        np.sqrt(retention_variances(shares, users, grr_response(level, len(counts)), population="fleet"))
        for level in ladder
    )
    return [row.tolist() for row in deviations]
