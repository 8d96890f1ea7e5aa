"""Intervals for weighted sums of counts on several rungs, where some counts are rare.

Distances from the rungs' own centres to their own ends, added as squares, fall short there: errors of few answers are
bounded, so at small error rates a rung's distance stops growing, and no root of squares reaches the sum. Here a share
is tested by the law of the whole sum: its tail at the observed sum, by Lugannani and Rice's saddlepoint approximation
in Barndorff-Nielsen's form. It takes the exact cumulants of binomial counts, so it knows their bounds and their skew.
Sums come in steps: they are taken half a step nearer, as far as the other rungs' answers do not blur the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import two_sided_z
from estimators.intervals.remembered import remembered

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_TINY = 1e-300
_STEEPEST = 50.0
"""Largest exponent of one answer: what is tilted further is certain in any double."""
_TILTS, _FIRST_TILTS = 3, 9
"""Newton steps towards a saddlepoint, from the last one and from nothing."""
_BISECTIONS = 18
"""Halvings of the pull that gives a wanted sum."""
_DISTANCES = np.array([0.4, 0.7, 1.0, 1.4, 2.2, 4.0])
"""Distances that are tried before the search, in parts of the normal one."""
_TRIED_FIRST = 1, 3
"""Places of the two that tell which of the others are worth a trial: for most values the one between them."""
_SEARCHES = 3
"""Shares that are tried between two of those. Fewer: ends lie further out."""
_FAR = 40.0
"""Largest score that a search reckons with."""
_NEAR = 0.05
"""Normal scores below this are those of the normal law: the other form loses digits."""
_FLAT = 1e-6
"""Least correction of a score: next to the largest possible sum the curvature at the saddlepoint vanishes."""
_KEPT = 8
"""Results of `sum_ends` that are kept: one value and all at once, of a few methods."""
_OVER = 1.01
"""Searches aim a hundredth beyond the limit, for the rejected side is reported."""


@dataclass(frozen=True)
class _Law:
    """The law of a weighted sum of counts: people [group, value] who answer alike, their chances to name the value,
    what one such answer adds, and a normal variance beside them, per value."""

    people: Floats
    chances: Floats
    steps: Floats
    further: Floats
    rungs: int
    """Groups come rung by rung, once or twice."""

    @cached_property
    def mean(self) -> Floats:
        return np.asarray(np.add.reduce(self.people * self.steps * self.chances))

    @cached_property
    def _spread(self) -> Floats:
        return self.people * self.chances * (1.0 - self.chances)

    @cached_property
    def variance(self) -> Floats:
        return np.asarray(np.add.reduce(self.steps**2 * self._spread) + self.further)

    @cached_property
    def _total(self) -> Floats:
        return self.people * self.steps

    def tilted(self, tilt: Floats) -> tuple[Floats, Floats]:
        """Return mean and variance of the sum under the law tilted by exp(tilt sum), per value."""
        odds = self.chances * np.exp(np.minimum(self.steps * tilt, _STEEPEST))
        chances = odds / (1.0 - self.chances + odds)
        first = self._total * chances
        second = first * self.steps * (1.0 - chances)
        return np.add.reduce(first) + self.further * tilt, np.add.reduce(second) + self.further

    def exponent(self, tilt: Floats) -> Floats:
        """Return ln E exp(tilt sum), per value."""
        grown = np.exp(np.minimum(self.steps * tilt, _STEEPEST))
        logs = self.people * np.log(1.0 + self.chances * (grown - 1.0))
        return np.asarray(np.add.reduce(logs) + 0.5 * self.further * tilt * tilt)

    @cached_property
    def half_step(self) -> Floats:
        """Half of what one answer moves the sum by, less what the other rungs blur: the most of all rungs.

        A rung's answers make a lattice. How much of it is left in the sum is told by the characteristic function of the
        other rungs' answers at its frequency: all if they lie on the same lattice, nothing if they scatter widely.
        """
        several = len(self.people) // self.rungs
        scattering = np.add.reduce(self._spread.reshape(several, self.rungs, -1)) > 0.0
        steps = np.where(scattering, self.steps[: self.rungs], 0.0)
        frequency = 2.0 * math.pi / np.where(steps > 0.0, steps, 1.0)
        # [rung whose lattice it is, group, value]
        turn = 1.0 - np.cos(frequency[:, None] * np.concatenate([steps] * several))
        for rung in range(self.rungs):
            turn[rung, rung :: self.rungs] = 0.0
        kept = np.log(np.maximum(1.0 - 2.0 * self.chances * (1.0 - self.chances) * turn, _TINY))
        left = 0.5 * np.add.reduce(self.people * kept, axis=1) - 0.5 * self.further * frequency**2
        return np.asarray(np.maximum.reduce(0.5 * steps * np.exp(left)))


@dataclass(frozen=True)
class _Sums:
    """Weighted sums sum_g weight_g ones_g / (users_g slope_g) and what they are tested against, arrays [rung, value].

    Questions are in normal form: truth above lie. Rungs that say nothing have weight 0.
    """

    asked: YesNo
    weights: Floats
    population: Population
    further: Floats
    """Variance of what scatters beside the counts, per value."""
    common: Floats | None
    """The estimated share, where all rungs have one in common."""

    @cached_property
    def slope(self) -> Floats:
        return np.asarray(self.asked.truth - self.asked.lie)

    @cached_property
    def steps(self) -> Floats:
        """What one answer adds to the sum."""
        return np.asarray(self.weights / (self.asked.users * self.slope))

    def shares(self, pull: Floats) -> Floats:
        """Return the rungs' shares that have the greatest likelihood times exp(-pull sum)."""
        asked, slope = self.asked, self.slope
        observed, force = asked.ones / asked.users, pull * self.weights / asked.users
        if self.population == "fleet":
            return self._shares_of_a_fleet(observed, force)
        root = np.sqrt(np.maximum((force + slope) ** 2 - 4.0 * force * slope * observed, 0.0))
        answers = 2.0 * slope * observed / (force + slope + root)
        return np.asarray(np.clip((answers - asked.lie) / slope, 0.0, 1.0))

    def _shares_of_a_fleet(self, observed: Floats, force: Floats) -> Floats:
        """Return the same where so many devices have the value: never fewer than named it, if nobody lies.

        The likelihood is that of the saddlepoint: its derivative by the number of devices is the logarithm of how much
        likelier the tilted answer of one that has the value is.
        """
        asked = self.asked
        grown = np.exp(np.minimum(force, _STEEPEST))
        room = asked.truth - grown * asked.lie
        # No number of devices is likely enough to stand such a force.
        gone = room <= 0.0
        tilt = (grown * (1.0 - asked.lie) - (1.0 - asked.truth)) / np.where(gone, 1.0, room)
        having, others = (chance / (chance + (1.0 - chance) / tilt) for chance in (asked.truth, asked.lie))
        apart = np.where(gone, 1.0, np.maximum(having - others, _TINY))
        return np.where(gone, 0.0, np.clip((observed - others) / apart, 0.0, 1.0))

    @cached_property
    def seen(self) -> Floats:
        """The rungs' shares as they were seen, cut to what is possible."""
        if self.common is not None:
            return np.broadcast_to(np.clip(self.common, 0.0, 1.0), self.asked.ones.shape)
        return self.shares(np.zeros(self.asked.values))

    def shares_that_sum_to(self, wanted: Floats) -> Floats:
        """Return the rungs' most likely shares with this weighted sum, per value."""
        if self.common is not None:
            return np.broadcast_to(wanted / self.weights.sum(axis=0), self.asked.ones.shape)
        low, high = np.zeros_like(wanted), np.ones_like(wanted)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2.0
            more = np.add.reduce(self.weights * self.shares(self._pull(middle))) > wanted
            low, high = np.where(more, middle, low), np.where(more, high, middle)
        near, far = (self.shares(self._pull(end)) for end in (low, high))
        # Where nothing was counted the likelihood hardly tells shares apart: between the ends of the step, in a line.
        above, below = (np.sum(self.weights * end, axis=0) for end in (near, far))
        part = np.clip((above - wanted) / np.maximum(above - below, _TINY), 0.0, 1.0)
        return np.asarray(near + part * (far - near))

    def _pull(self, part: Floats) -> Floats:
        """Return a pull between 0 and (almost) infinity."""
        return np.asarray(self.asked.users.sum(axis=0) * part / np.maximum(1.0 - part, 1e-9))

    def law(self, shares: Floats) -> _Law:
        """Return the law of the sum at these shares."""
        asked, rungs = self.asked, len(shares)
        if self.population == "sampling":
            return _Law(asked.users, asked.lie + self.slope * shares, self.steps, self.further, rungs)
        people = np.concatenate([asked.users * shares, asked.users * (1.0 - shares)])
        chances = np.concatenate([asked.truth, asked.lie])
        return _Law(people, chances, np.concatenate([self.steps, self.steps]), self.further, rungs)

    def scores(self, shares: Floats, tilt: Floats, newton: int) -> tuple[Floats, Floats]:
        """Return the normal score of Pr(sum >= the observed one) at these shares, and the tilt of its saddlepoint."""
        law = self.law(shares)
        variance = law.variance
        seen = np.add.reduce(self.steps * self.asked.ones) - law.half_step
        gap = seen - law.mean
        normal = gap / np.sqrt(np.maximum(variance, _TINY))
        above = gap > 0.0
        low, high = np.zeros_like(seen), _STEEPEST / np.maximum(np.maximum.reduce(self.steps), _TINY)
        tilt = np.where((tilt > 0.0) & (tilt < high), tilt, np.minimum(gap / np.maximum(variance, _TINY), 0.5 * high))
        tilt = np.where(above, tilt, 0.0)
        for _ in range(newton):
            first, second = law.tilted(tilt)
            beyond = first > seen
            low, high = np.where(beyond, low, tilt), np.where(beyond, tilt, high)
            following = tilt - (first - seen) / np.maximum(second, _TINY)
            tilt = np.where((following >= low) & (following <= high), following, (low + high) / 2.0)
        signed = np.sqrt(np.maximum(2.0 * (tilt * seen - law.exponent(tilt)), 0.0))
        usable = above & (signed > _NEAR)
        divisor = np.where(usable, signed, 1.0)
        ratio = tilt * np.sqrt(np.maximum(law.tilted(tilt)[1], _TINY)) / divisor
        corrected = signed + np.log(np.maximum(ratio, _FLAT)) / divisor
        # Without any scatter a sum above its mean is impossible.
        return np.where(above & (variance <= 0.0), np.inf, np.where(usable, corrected, normal)), tilt

    def values_at(self, places: NDArray[np.int64]) -> _Sums:
        common = None if self.common is None else self.common[places]
        return replace(
            self,
            asked=self.asked.values_at(places),
            weights=self.weights[:, places],
            further=self.further[places],
            common=common,
        )


@remembered(_KEPT)
def sum_ends(
    asked: YesNo,
    weights: Floats,
    *,
    alpha: float,
    population: Population,
    further: Floats | float = 0.0,
    common: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the ends of the interval of sum_g weights[g] share[g], per value, at level 1 - alpha.

    asked is in normal form. common is the estimated share if all rungs have one in common; otherwise each has its own,
    and a sum is tested at the rungs' shares that are most likely with it. further is a variance beside the counts'.
    An end at which even the share 0 (or 1) is accepted lies beyond it by the normal distance.
    """
    z = two_sided_z(alpha)
    values = asked.values
    scatter = np.broadcast_to(np.asarray(further, dtype=np.float64), (values,))
    # Both ends at once: the upper one is the lower end of the question turned round.
    turned = YesNo(1.0 - asked.lie, 1.0 - asked.truth, asked.users - asked.ones, asked.users)
    both = YesNo(
        np.concatenate([asked.truth, turned.truth], axis=1),
        np.concatenate([asked.lie, turned.lie], axis=1),
        np.concatenate([asked.ones, turned.ones], axis=1),
        np.concatenate([asked.users, turned.users], axis=1),
    )
    estimates = None if common is None else np.concatenate([common, 1.0 - common])
    sums = _Sums(both, np.concatenate([weights, weights], axis=1), population, np.tile(scatter, 2), estimates)
    found = _lower_ends(sums, z)
    lower, upper = found[:values], weights.sum(axis=0) - found[values:]
    if population == "fleet":
        # Where answers hardly lie, at least half a device either side: the estimate may be between whole ones.
        middle = np.add.reduce(weights * (asked.ones / asked.users - asked.lie) / (asked.truth - asked.lie))
        half = 0.5 / np.add.reduce(np.where(weights > 0.0, asked.users, 0.0))
        lower, upper = np.minimum(lower, middle - half), np.maximum(upper, middle + half)
    return lower, np.asarray(upper)


def _lower_ends(sums: _Sums, z: float) -> Floats:
    nothing = np.zeros_like(sums.weights)
    law = sums.law(nothing)
    estimate = np.add.reduce(sums.steps * sums.asked.ones) - law.mean
    rejected = sums.scores(nothing, np.zeros_like(estimate), _FIRST_TILTS)[0] >= z
    found = np.minimum(0.0, estimate - z * np.sqrt(law.variance))
    places = np.flatnonzero(rejected)
    if places.size:
        some = sums.values_at(places)
        found[places] = np.sum(some.weights * _rejected_shares(some, z), axis=0)
    return np.asarray(found)


@dataclass(frozen=True)
class _End:
    """Shares on one side of the limit, with the normal score of the observed sum and its tilt."""

    shares: Floats
    score: Floats
    tilt: Floats

    def where(self, chosen: Bools, other: _End) -> _End:
        """Return this end where chosen, else the other."""
        return _End(
            *(np.where(chosen, getattr(self, name), getattr(other, name)) for name in ("shares", "score", "tilt"))
        )


def _rejected_shares(sums: _Sums, z: float) -> Floats:
    """Return the rungs' shares at the largest sum found that is rejected; at 0 it is.

    First which of some sums the limit lies between; then between the shares there, where the normal score is almost a
    straight line.
    """
    inside, outside = _bracket(sums, z)
    for _ in range(_SEARCHES):
        part = (_OVER * z - inside.score) / np.maximum(outside.score - inside.score, _TINY)
        part = np.clip(part, 0.02, 0.98)
        shares = (1.0 - part) * inside.shares + part * outside.shares
        score, tilt = sums.scores(shares, (1.0 - part) * inside.tilt + part * outside.tilt, _TILTS)
        between, beyond = _End(shares, score, tilt), score >= z
        # Illinois: an end that stays counts half, so that both ends move.
        inside = replace(inside, score=(inside.score + z) / 2.0).where(beyond, between)
        outside = between.where(beyond, replace(outside, score=(outside.score + _OVER * z) / 2.0))
    return outside.shares


def _bracket(sums: _Sums, z: float) -> tuple[_End, _End]:
    """Return shares whose sum is accepted and shares whose sum is not, with nothing tried between them."""
    values, users = sums.asked.values, sums.asked.users
    own = sums.seen
    # Drawn to the middle by z^2 answers: where nothing was seen to scatter, something may.
    drawn = (users * own + 0.5 * z * z) / (users + z * z)
    reach = z * np.sqrt(sums.law(drawn).variance)
    middle = np.maximum(np.sum(sums.weights * own, axis=0), _TINY)
    far = reach / middle
    shape = len(_DISTANCES), values
    shares, tilts = np.zeros((len(_DISTANCES), *sums.weights.shape)), np.zeros(shape)
    # What is not tried lies on the same side as what is, nearer to the estimate or further from it.
    scores = np.full(shape, _FAR)

    def attempt(distances: NDArray[np.intp], places: NDArray[np.intp]) -> None:
        # Near the estimate differences, far from it ratios: the limit of a rare count is a small part of it.
        wanted = middle[places] * np.exp(-(_DISTANCES[distances] * far[places]))
        some = sums.values_at(places)
        tried = some.shares_that_sum_to(wanted)
        found, tilts[distances, places] = some.scores(tried, np.zeros(wanted.size), _FIRST_TILTS)
        shares[distances, :, places], scores[distances, places] = tried.T, np.minimum(found, _FAR)

    every = np.arange(values)
    attempt(np.repeat(_TRIED_FIRST, values), np.tile(every, len(_TRIED_FIRST)))
    near, beyond = (scores[distance] < z for distance in _TRIED_FIRST)
    first, second = _TRIED_FIRST
    left = np.zeros(shape, dtype=np.bool_)
    left[:first], left[first + 1 : second], left[second + 1 :] = ~near & ~beyond, near & ~beyond, beyond
    attempt(*np.nonzero(left))
    # The estimate is accepted, 0 is not.
    shares = np.concatenate([own[None], shares, np.zeros_like(own)[None]])
    scores = np.concatenate([np.zeros((1, values)), scores, np.full((1, values), _FAR)])
    tilts = np.concatenate([tilts[:1], tilts, tilts[-1:]])
    last, columns = len(shares) - 1 - np.argmax((scores < z)[::-1], axis=0), every
    inside, outside = (
        _End(shares[at, :, columns].T, scores[at, columns], tilts[at, columns]) for at in (last, last + 1)
    )
    return inside, outside
