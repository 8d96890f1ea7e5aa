"""Intervals for key-value data: the share of people with a key, and the mean of their values.

The mean is a ratio, s / f. A value m0 is accepted if s - m0 f, which is linear in the counts, lies within its noise as
it would be if m0 were true: near -1 and +1 the rarer sign may not have been seen, and a variance from what was seen
would be 0. While the rarer sign is rare, the exact binomial law of the signs is asked too, and a value is kept if
either accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from estimators.inference.key_value import KeyValueEstimate, KeyValueParameters
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import two_sided_z
from estimators.intervals.rung_shares import RARE, spans

Floats = NDArray[np.float64]
CovarianceAt = Callable[[Floats, Floats], tuple[Floats, Floats, Floats]]
"""From share and total to the variances of both and their covariance."""

_MEANS = np.linspace(-1.0, 1.0, 401)[:, None]
"""Candidate means. Fewer: ends are rounded outwards by more."""
_LEAST_SHARE = 1e-3
_MATTERS = 0.05


@dataclass(frozen=True)
class SignCounts:
    """What every rung has seen of every key, [rung, key]."""

    parameters: Sequence[KeyValueParameters]
    users: Floats
    plus: Floats
    minus: Floats

    @property
    def presence(self) -> YesNo:
        """Every key as the question whether any sign was told."""
        truth, lie = [own.p2 for own in self.parameters], [1.0 - own.p1 for own in self.parameters]
        return YesNo.of(truth, lie, self.plus + self.minus, self.users)

    def chance_of_plus(self, share: Floats, mean: Floats) -> Floats:
        """Return Pr(+1 | a sign was told), averaged over the signs that were told."""
        told = self.plus + self.minus
        chance = np.zeros(np.broadcast_shapes(share.shape, mean.shape))
        for own, number in zip(self.parameters, told, strict=True):
            rate = 1.0 - own.p1 + own.presence * share
            chance = chance + number * 0.5 * (1.0 + own.sign * mean * share / rate)
        return np.asarray(np.clip(chance / np.maximum(told.sum(axis=0), 1.0), 0.0, 1.0))


def share_ends(
    counts: SignCounts, weights: Floats, estimate: Floats, variance: Floats, alpha: float
) -> tuple[Floats, Floats]:
    """Return intervals of the shares: normal, or by the rungs' own laws where a rung that matters has rare answers."""
    reach = two_sided_z(alpha) * np.sqrt(variance)
    lower, upper = estimate - reach, estimate + reach
    questions = counts.presence
    rare = (questions.ones < RARE) | (questions.users - questions.ones < RARE)
    failing = np.flatnonzero(np.any(rare & (weights > _MATTERS), axis=0) & np.isfinite(estimate))
    if failing.size:
        found = spans(questions.values_at(failing), alpha=alpha, population="sampling", shared=False)
        low, high = found.weighted(weights[:, failing])
        lower[failing] = np.minimum(low, estimate[failing])
        upper[failing] = np.maximum(high, estimate[failing])
    return lower, upper


def mean_ends(
    counts: SignCounts, estimate: KeyValueEstimate, covariance_at: CovarianceAt, alpha: float
) -> tuple[Floats, Floats]:
    """Return intervals of the means; (-1, 1) where every mean is accepted, NaN where nothing is known of a key."""
    known = np.isfinite(estimate.share)
    share = np.where(known, np.clip(estimate.share, _LEAST_SHARE, 1.0), 0.5)
    variance, total_variance, covariance = covariance_at(share + 0.0 * _MEANS, share * _MEANS)
    spread = np.maximum(total_variance - 2.0 * _MEANS * covariance + _MEANS**2 * variance, 0.0)
    distance = np.abs(estimate.total - _MEANS * estimate.share)
    accepted = distance <= two_sided_z(alpha) * np.sqrt(spread)
    plus, told = counts.plus.sum(axis=0), (counts.plus + counts.minus).sum(axis=0)
    chance = counts.chance_of_plus(share, _MEANS)
    below = special.bdtr(plus, np.maximum(told, 1.0).astype(np.int64), chance)
    above = np.where(
        plus > 0, special.bdtrc(np.maximum(plus - 1.0, 0.0), np.maximum(told, 1).astype(np.int64), chance), 1
    )
    rare = (np.minimum(plus, told - plus) < RARE) & (told > 0)
    accepted |= rare & (np.minimum(below, above) > alpha / 2.0)
    # Where no mean is accepted, the least unlikely one stands.
    best = np.argmin(np.where(spread > 0, distance / np.sqrt(np.maximum(spread, 1e-300)), np.inf), axis=0)
    accepted[best, np.arange(len(share))] = True
    first = np.argmax(accepted, axis=0)
    last = len(_MEANS) - 1 - np.argmax(accepted[::-1], axis=0)
    lower = _MEANS[np.maximum(first - 1, 0), 0]
    upper = _MEANS[np.minimum(last + 1, len(_MEANS) - 1), 0]
    return np.where(known, lower, np.nan), np.where(known, upper, np.nan)
