"""The bipartite graph of people and keys: its edges, their weights, and averages of them (Ma & Wang, section 4).

A person is connected with every key that they have; the weight of the edge is the value. What is counted is the graph
of the devices that answered.

All of it is linear in the counts: edges are a sum of shares, weight is a sum of totals, and a mean weight m is accepted
if weight - m edges lies within its noise. Their noise is that of the answers, with chances drawn to the middle by z^2
answers on every rung and key: a sign that nobody told may have been rare, and variances of what was seen would add up
to nothing. Their skewness is that of the same chances, and half a step is added because answers are whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Derived, DerivedKind, Population
from estimators.inference.key_value import KeyValueEstimate
from estimators.inference.key_value_intervals import MeanTails, SignCounts, candidate_means
from estimators.intervals.one_look import skewed_distance, skewed_tail, two_sided_z

Floats = NDArray[np.float64]

EDGE_WEIGHT, _MEANING = "mean edge weight", "mean value of the pairs that exist"
_CLEAR = 3.0
"""How sure it must be that the mean number of keys is no whole number before its spread is taken out."""
_ANSWERS = 3
"""No key, and the two signs."""


@dataclass(frozen=True)
class Loads:
    """What the share and the total that a rung sees of a key weigh in the estimates of both, arrays [rung, key]."""

    share_in_share: Floats
    total_in_share: Floats
    share_in_total: Floats
    total_in_total: Floats

    @classmethod
    def of_parts(cls, parts: Floats) -> Loads:
        """Weigh share and total of a rung alike, each by its part."""
        nothing = np.zeros_like(parts)
        return cls(parts, nothing, nothing, parts)


@dataclass(frozen=True)
class _Noise:
    """How far a statistic strays, one entry per candidate."""

    variance: Floats
    skewness: Floats
    half_step: Floats

    def less(self, spread: float) -> _Noise:
        """Return the noise without a part of the variance that is none."""
        return replace(self, variance=np.maximum(self.variance - spread, 0.0))

    def tail(self, distance: Floats) -> Floats:
        """Return how likely it is to stray so far to the side of the distance."""
        beyond = (np.abs(distance) - self.half_step) / np.sqrt(self.variance)
        return skewed_tail(beyond, np.sign(distance) * self.skewness)

    def ends(self, value: float, alpha: float) -> tuple[float, float]:
        """Return the ends of the interval around a value; no closer than those of the normal law."""
        z, deviation, half = two_sided_z(alpha), math.sqrt(self.variance[0]), self.half_step[0]
        down, up = (max(z, skewed_distance(alpha / 2.0, side * self.skewness[0])) for side in (1.0, -1.0))
        return value - down * deviation - half, value + up * deviation + half


@dataclass(frozen=True)
class Graph:
    """The counts behind a graph, and how they were put together.

    apart: rungs are weighed by users and may differ. together: the answers of a person about all keys count.
    """

    counts: SignCounts
    loads: Loads
    estimate: KeyValueEstimate
    users: int
    scale: float = 1.0
    apart: bool = False
    together: bool = False

    def derived(self, population: Population, alpha: float) -> tuple[Derived, ...]:
        """Return totals and averages with their intervals, for the record of a window.

        For the fleet, the spread of how many keys a person has is no error. How large it is depends on which keys go
        together, and nobody is asked about two keys: only the least that a whole number with this mean can have is
        taken out. The spread of weights is not taken out at all. Both are on the safe side; with one key nothing is
        given away.
        """
        users, keys = self.users, self.estimate.share.size
        share, total = (self.scale * float(part.sum()) for part in (self.estimate.share, self.estimate.total))
        if not math.isfinite(share + total):
            share = total = math.nan
        of_edges = self._noise(np.array([1.0]), np.array([0.0]), alpha)
        of_weight = self._noise(np.array([0.0]), np.array([1.0]), alpha)
        if population == "fleet":
            of_edges = of_edges.less(_least_spread(share, _CLEAR * math.sqrt(of_edges.variance[0])) / max(users, 1))
        edges = _Total(share, of_edges, alpha)
        weight = _Total(total, of_weight, alpha)
        return (
            edges.derived("edges", "total", "number of pairs of a device and a key that it has", users),
            edges.derived("keys per device", "mean", "mean number of keys of a device", 1.0),
            edges.derived(
                "average degree", "mean", "mean number of edges of a device or a key", 2.0 * users / (users + keys)
            ),
            edges.derived("density", "share", "share of all pairs of a device and a key that exist", 1.0 / keys),
            weight.derived("weight", "total", "sum of all values", users),
            self._edge_weight(share, total, alpha),
        )

    def _edge_weight(self, share: float, total: float, alpha: float) -> Derived:
        """Return the mean weight of the edges that exist; where it may be anything, its band says so and no more."""
        if not math.isfinite(share):
            return Derived(EDGE_WEIGHT, "mean", _MEANING, *(math.nan,) * 4)
        means = candidate_means(np.array([total / share if share > 0.0 else math.nan]))
        candidates = means[:, 0]
        tail = self._noise(-candidates, np.ones_like(candidates), alpha).tail(total - candidates * share)[:, None]
        (lower,), (upper,) = MeanTails(means, tail, np.zeros_like(tail), np.array([True])).ends(alpha)
        if share <= 0.0 or (lower <= -1.0 and upper >= 1.0):
            return Derived(EDGE_WEIGHT, "mean", _MEANING, math.nan, math.nan, -1.0, 1.0)
        mean = total / share
        variance = float(self._noise(np.array([-mean]), np.array([1.0]), alpha).variance[0]) / share**2
        lower, upper = min(float(lower), mean), max(float(upper), mean)
        return Derived(EDGE_WEIGHT, "mean", _MEANING, mean, variance, lower, upper)

    def _noise(self, of_share: Floats, of_total: Floats, alpha: float) -> _Noise:
        """Return the noise of sums over keys of of_share f + of_total s, for every pair of those factors."""
        loads, (a, b) = self.loads, (self.scale * side[:, None, None] for side in (of_share, of_total))
        shares = a * loads.share_in_share + b * loads.share_in_total
        totals = a * loads.total_in_share + b * loads.total_in_total
        counts, drawn = self.counts, two_sided_z(alpha) ** 2
        users = counts.users
        presence, sign = (
            np.array([[getattr(own, name)] for own in counts.parameters]) for name in ("presence", "sign")
        )
        each = 1.0 / np.maximum(users, 1.0)
        up, down = (each * (shares / presence + side * totals / sign) for side in (1.0, -1.0))
        for_up, for_down = ((told + drawn / _ANSWERS) / (users + drawn) for told in (counts.plus, counts.minus))
        mean = up * for_up + down * for_down
        parts = ((for_up, up - mean), (for_down, down - mean), (1.0 - for_up - for_down, -mean))
        variance, third = (
            np.sum(users * sum(chance * step**power for chance, step in parts), axis=(1, 2)) for power in (2, 3)
        )
        half_step = 0.5 * np.max(np.maximum(np.abs(up), np.abs(down)) * (users > 0), axis=(1, 2))
        skewness = third / variance**1.5
        return _Noise(variance + self._between(a, b), skewness, half_step)

    def _between(self, of_share: Floats, of_total: Floats) -> Floats:
        """Return the variance beside the noise of answers, which counts of single keys do not show."""
        found = np.zeros(len(of_share))
        if self.apart:
            # Rungs differ, and how many of each are asked about a key is random.
            users = np.maximum(self.counts.users.sum(axis=0), 1.0)
            parts = self.counts.users / users
            seen = of_share * self.counts.shares + of_total * self.counts.totals
            spread = np.sum(parts * (seen - np.sum(parts * seen, axis=1, keepdims=True)) ** 2, axis=1)
            found += np.sum(spread / users, axis=1)
        if self.together:
            # One key of a person is sampled: keys go apart, but weights of opposite sign may go together.
            own = of_share[:, 0] * self.estimate.share + of_total[:, 0] * self.estimate.total
            found += np.maximum(np.sum(own**2, axis=1) - np.sum(own, axis=1) ** 2, 0.0) / max(self.users, 1)
        return found


@dataclass(frozen=True)
class _Total:
    """A mean over devices with its noise, to be told in other units."""

    value: float
    noise: _Noise
    alpha: float

    def derived(self, name: str, kind: DerivedKind, meaning: str, factor: float) -> Derived:
        lower, upper = self.noise.ends(self.value, self.alpha)
        variance = factor**2 * float(self.noise.variance[0])
        if not math.isfinite(self.value):
            variance = lower = upper = math.nan
        return Derived(name, kind, meaning, factor * self.value, variance, factor * lower, factor * upper)


def _least_spread(mean: float, error: float) -> float:
    """Return the least variance of whole numbers, not negative, whose mean is within `error` of `mean`."""
    low, high = mean - error, mean + error
    if not 0.0 <= low <= high or math.floor(low) != math.floor(high):
        return 0.0
    parts = (low - math.floor(low), high - math.floor(high))
    return min(part * (1.0 - part) for part in parts)
