"""Intervals for key-value data: the share of people with a key, and the mean of their values.

The mean is a ratio, s / f. A value m0 is accepted if s - m0 f, which is linear in the counts, lies within its noise as
it would be if m0 were true: near -1 and +1 the rarer sign may not have been seen, and a variance from what was seen
would be 0. The noise has the variance and the skewness of the counts: on a sharp rung a single stray sign, rare as it
is, goes further than the normal law allows. While the rarer sign is rare, the exact binomial law of the signs is asked
too, and a value is kept if either accepts it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from estimators.inference.key_value import KeyValueEstimate, KeyValueParameters
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import skewed_tail, two_sided_z
from estimators.intervals.rung_shares import RARE, stratified_ends, weighted_ends

Floats = NDArray[np.float64]
LoadsAt = Callable[[Floats, Floats], tuple[Floats, Floats]]
"""From candidate shares and means [candidate, key] to the loads [rung, candidate, key] of every rung's own share and
total in s - m f."""

_MEANS = np.linspace(-1.0, 1.0, 401)[:, None]
"""Candidate means. Fewer: ends lie further out."""
_NEAR = np.geomspace(1e-6, 0.02, 48)[:, None]
"""Distances of further candidates from the estimate: of many people the whole interval lies between two of the others,
which reject it from either side, and no line between them finds its ends."""
_LEAST_SHARE = 1e-3
_TINY, _NEARLY_ONE = 1e-100, 1.0 - 1e-12
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

    @property
    def shares(self) -> Floats:
        """The share of every key that a rung sees, cut to what is possible; 0 where nobody was asked."""
        rate = (self.plus + self.minus) / np.maximum(self.users, 1.0)
        lie = np.array([[1.0 - own.p1] for own in self.parameters])
        slope = np.array([[own.presence] for own in self.parameters])
        return np.where(self.users > 0, np.clip((rate - lie) / slope, 0.0, 1.0), 0.0)

    @property
    def totals(self) -> Floats:
        """The mean value over all asked, 0 without the key, likewise."""
        difference = (self.plus - self.minus) / np.maximum(self.users, 1.0)
        sign = np.array([[own.sign] for own in self.parameters])
        shares = self.shares
        return np.asarray(np.clip(difference / sign, -shares, shares))

    def keys_at(self, chosen: NDArray[np.int64]) -> SignCounts:
        """Return the counts of some keys."""
        return SignCounts(self.parameters, self.users[:, chosen], self.plus[:, chosen], self.minus[:, chosen])

    def chance_of_plus(self, share: Floats, mean: Floats) -> Floats:
        """Return Pr(+1 | a sign was told), averaged over the signs that were told."""
        told = self.plus + self.minus
        chance = np.zeros(np.broadcast_shapes(share.shape, mean.shape))
        for own, number in zip(self.parameters, told, strict=True):
            rate = 1.0 - own.p1 + own.presence * share
            chance = chance + number * 0.5 * (1.0 + own.sign * mean * share / rate)
        return np.asarray(np.clip(chance / np.maximum(told.sum(axis=0), 1.0), 0.0, 1.0))


def share_ends(
    counts: SignCounts, weights: Floats, estimate: Floats, variance: Floats, alpha: float, *, apart: bool
) -> tuple[Floats, Floats]:
    """Return intervals of the shares: normal, or by the rungs' own laws where a rung that matters has rare answers.

    apart: the rungs may have different shares (stratified). Every rung matters then: one with few users may be so noisy
    that it decides, and a variance from its few answers is nothing to rely on.
    """
    reach = two_sided_z(alpha) * np.sqrt(variance)
    lower, upper = estimate - reach, estimate + reach
    questions = counts.presence
    rare = (questions.ones < RARE) | (questions.users - questions.ones < RARE)
    mattering = weights > (0.0 if apart else _MATTERS)
    failing = np.flatnonzero(np.any(rare & mattering, axis=0) & np.isfinite(estimate))
    if failing.size:
        some = questions.values_at(failing)
        if apart:
            low, high = stratified_ends(some, alpha=alpha, population="sampling")
        else:
            low, high = weighted_ends(
                some, weights[:, failing], alpha=alpha, population="sampling", common=estimate[failing]
            )
        lower[failing] = np.minimum(low, estimate[failing])
        upper[failing] = np.maximum(high, estimate[failing])
    return lower, upper


@dataclass(frozen=True)
class MeanTails:
    """How likely the counts are under every candidate mean: the smaller tail [candidate, key] of either law."""

    candidates: Floats
    of_difference: Floats
    of_signs: Floats
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, counts: SignCounts, estimate: KeyValueEstimate, loads_at: LoadsAt) -> MeanTails:
        """Ask both laws, at the estimated shares."""
        known = np.isfinite(estimate.share)
        share = np.where(known, np.clip(estimate.share, _LEAST_SHARE, 1.0), 0.5)
        means = candidate_means(estimate.mean)
        of_difference = _tail_of_difference(counts, share, means, loads_at)
        return cls(means, of_difference, _tail_of_signs(counts, share, means), known)

    def ends(self, alpha: float) -> tuple[Floats, Floats]:
        """Return intervals of the means; (-1, 1) where every mean is accepted, NaN where nothing is known of a key."""
        tail = np.maximum(self.of_difference, self.of_signs)
        # Where no mean is accepted, the least unlikely one stands.
        best = np.argmax(tail, axis=0)
        keys = np.arange(len(self.known))
        level = np.minimum(alpha / 2.0, tail[best, keys])
        accepted = tail >= level
        first, last = np.argmax(accepted, axis=0), len(tail) - 1 - np.argmax(accepted[::-1], axis=0)
        lower = _crossing(self.candidates, tail, np.maximum(first - 1, 0), first, level)
        upper = _crossing(self.candidates, tail, np.minimum(last + 1, len(tail) - 1), last, level)
        # Where the best candidate alone is accepted, neighbours keep the width above zero.
        flat = upper <= lower
        lower = np.where(flat, self.candidates[np.maximum(first - 1, 0), keys], lower)
        upper = np.where(flat, self.candidates[np.minimum(last + 1, len(tail) - 1), keys], upper)
        return np.where(self.known, lower, np.nan), np.where(self.known, upper, np.nan)


def _crossing(
    candidates: Floats, tail: Floats, outside: NDArray[np.int64], inside: NDArray[np.int64], level: Floats
) -> Floats:
    """Return where the tail reaches the level between two candidates: on the line between their normal scores."""
    keys = np.arange(tail.shape[1])
    low, high, at = (
        special.ndtri(np.clip(part, _TINY, _NEARLY_ONE)) for part in (tail[outside, keys], tail[inside, keys], level)
    )
    part = np.divide(at - low, high - low, out=np.zeros_like(high), where=high > low)
    start, end = candidates[outside, keys], candidates[inside, keys]
    return np.asarray(start + np.clip(part, 0.0, 1.0) * (end - start))


def candidate_means(near: Floats) -> Floats:
    """Return candidate means [candidate, key], rising: over the whole range, and close to the estimates."""
    middle = np.where(np.isfinite(near), near, 0.0)
    every = np.concatenate([_MEANS + 0.0 * middle, middle - _NEAR, middle[None], middle + _NEAR])
    return np.sort(np.clip(every, -1.0, 1.0), axis=0)


def _tail_of_signs(counts: SignCounts, share: Floats, means: Floats) -> Floats:
    """Return the smaller tail of the number of +1 among the signs that were told; 0 where both signs are common."""
    plus, told = counts.plus.sum(axis=0), (counts.plus + counts.minus).sum(axis=0)
    found = np.zeros(means.shape)
    rare = np.flatnonzero((np.minimum(plus, told - plus) < RARE) & (told > 0))
    if rare.size:
        chance = counts.keys_at(rare).chance_of_plus(share[rare], means[:, rare])
        up, trials = plus[rare], told[rare].astype(np.int64)
        found[:, rare] = _smaller_tail(np.broadcast_to(up, chance.shape), np.broadcast_to(trials, chance.shape), chance)
    return found


def _smaller_tail(count: Floats, trials: NDArray[np.int64], chance: Floats) -> Floats:
    """Return the smaller of Pr(X <= count) and Pr(X >= count) of binomial counts.

    The median is the mean rounded down or up: beyond that it is clear which tail is the smaller one.
    """
    mean = trials * chance
    below, above = count <= np.ceil(mean), count >= np.floor(mean)
    found = np.ones(chance.shape)
    found[below] = special.bdtr(count[below], trials[below], chance[below])
    above &= count > 0
    found[above] = np.minimum(found[above], special.bdtrc(count[above] - 1.0, trials[above], chance[above]))
    return found


def _tail_of_difference(counts: SignCounts, share: Floats, means: Floats, loads_at: LoadsAt) -> Floats:
    """Return the tail of s - m f on the side where it was seen."""
    of_share, of_total = loads_at(share + 0.0 * means, means)
    seen, variance, third, step = (np.zeros(means.shape) for _ in range(4))
    for g, own in enumerate(counts.parameters):
        users = counts.users[g]
        each = 1.0 / np.maximum(users, 1.0)
        of_presence, of_sign = of_share[g] * (each / own.presence), of_total[g] * (each / own.sign)
        up, down = of_presence + of_sign, of_presence - of_sign
        rate, tilt = 1.0 - own.p1 + own.presence * share, own.sign * share * means
        for_up, for_down = np.maximum(rate + tilt, 0.0) / 2.0, np.maximum(rate - tilt, 0.0) / 2.0
        mean, rest = up * for_up + down * for_down, 1.0 - for_up - for_down
        above, below = up - mean, down - mean
        # Products instead of powers, which take ten times as long.
        square_up, square_down, square_rest = for_up * above * above, for_down * below * below, rest * mean * mean
        seen += up * counts.plus[g] + down * counts.minus[g] - users * mean
        variance += users * (square_up + square_down + square_rest)
        third += users * (square_up * above + square_down * below - square_rest * mean)
        step = np.maximum(step, np.where(users > 0, np.maximum(np.abs(up), np.abs(down)), 0.0))
    variance = np.maximum(variance, _TINY)
    deviation = np.sqrt(variance)
    # Half an answer of the largest step: counts are whole.
    distance = (np.abs(seen) - 0.5 * step) / deviation
    return skewed_tail(distance, np.sign(seen) * third / (variance * deviation))
