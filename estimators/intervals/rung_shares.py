"""One-look intervals for shares seen through several rungs.

Every rung gives an interval of its own share: exact where an answer or its absence is rare, otherwise a score interval
whose variance is taken at its own end, with shares that the channel can produce. A weighted sum of the rungs' shares
gets the ends theta -+ sqrt(sum_g (w_g d_g)^2), where d_g is the distance from the rung's centre to its end on that side
(the method of variance estimates recovery, Zou & Donner 2008): one rung alone keeps its own interval. Where a count
among several is rare, squares do not add up; the law of the sum is asked (weighted_sums.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.intervals.always_valid import YesNo
from estimators.intervals.exact_shares import exact_limits, exact_near
from estimators.intervals.one_look import two_sided_z
from estimators.intervals.weighted_sums import sum_ends

Floats = NDArray[np.float64]

RARE = 60
"""A count below this, of answers or of their absence, gets an exact interval. Smaller: score intervals on a lattice
miss up to 6.5 % at 25; larger: tables that change nothing take time."""

QUIET = 25.0
"""A fleet's count whose variance is below this gets an exact interval too: its errors are few whole answers."""

_FURTHER_OUT = 0.3
"""Normal ends and squares of distances leave out that counts are skewed. What that adds grows with (z^3 - 3 z)^2 over
the count: beyond this part of it, ends far out (z above 2.84: a dozen values at once) miss up to 1.8 times as often."""

_MATTERS = 0.05
"""A rung with less than this part of the information cannot spoil a pooled interval."""

_STEPS_OF_TABLES = (7, 15, 30, RARE - 1)
_TINY = 1e-300
_EDGE = 1e-4
"""Shares for weights stay this far inside [0, 1]."""

_STEPS = 12
"""Fixed-point steps of the ends of a sample of people."""


@dataclass(frozen=True)
class Spans:
    """Per rung and value: a centre, and the distances down and up to the ends of its interval."""

    centre: Floats
    down: Floats
    up: Floats

    def weighted(self, weights: Floats, further: Floats | float = 0.0) -> tuple[Floats, Floats]:
        """Return the ends of the interval of sum_g weights[g] share[g], per value.

        further is a squared distance of what scatters beside the rungs' own shares. A centre outside [0, 1] must not
        eat up the room that another rung needs: the ends reach at least as far as from possible centres.
        """
        lower, upper = self.centre - self.down, self.centre + self.up
        possible = np.minimum(np.maximum(self.centre, 0.0), 1.0)
        ends = []
        for centre in (self.centre,) if np.array_equal(possible, self.centre) else (self.centre, possible):
            middle = np.sum(weights * centre, axis=0)
            distances = (weights * np.maximum(centre - lower, 0.0), weights * np.maximum(upper - centre, 0.0))
            down, up = (np.sqrt(np.sum(part**2, axis=0) + further) for part in distances)
            ends.append((middle - down, middle + up))
        return np.minimum.reduce([low for low, _ in ends]), np.maximum.reduce([high for _, high in ends])


def weighted_ends(
    questions: YesNo,
    weights: Floats,
    *,
    alpha: float,
    population: Population,
    further: Floats | float = 0.0,
    common: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the ends of the interval of sum_g weights[g] share[g], per value.

    Where a rung has so few answers that its errors are bounded, or come in steps that matter, and another rung counts
    as well, the law of the whole sum is asked. common is the estimate of the share if rungs have it in common; further
    is the variance of what scatters beside the rungs' own shares.
    """
    asked, live = _normal_form(questions)
    weights = np.where(live, weights, 0.0)
    few = _few(two_sided_z(alpha))
    summed = _asked_exactly(asked, live, population, few).any(axis=0) & ((weights > 0).sum(axis=0) > 1)
    variance = np.broadcast_to(np.asarray(further, dtype=np.float64), summed.shape)
    lower, upper = np.zeros(summed.shape), np.zeros(summed.shape)
    alone = np.flatnonzero(~summed)
    if alone.size:
        found = spans(questions.values_at(alone), alpha=alpha, population=population)
        squared = two_sided_z(alpha) ** 2 * variance[alone]
        lower[alone], upper[alone] = found.weighted(weights[:, alone], squared)
    chosen = np.flatnonzero(summed)
    if chosen.size:
        lower[chosen], upper[chosen] = sum_ends(
            asked.values_at(chosen),
            weights[:, chosen],
            alpha=alpha,
            population=population,
            further=variance[chosen],
            common=None if common is None else common[chosen],
        )
    return lower, upper


def spans(questions: YesNo, *, alpha: float, population: Population) -> Spans:
    """Return the interval of every rung's share; of no width around 0 where a rung says nothing about a value."""
    asked, live = _normal_form(questions)
    truth, lie, ones, users = asked.truth, asked.lie, asked.ones, asked.users
    centre = (ones / users - lie) / (truth - lie)
    rare = live & _rare(asked)
    exact = _asked_exactly(asked, live, population)
    if np.array_equal(exact, live):
        down, up = np.zeros_like(centre), np.zeros_like(centre)
    else:
        down, up = _score(asked, centre, two_sided_z(alpha), population)
    found = Spans(centre, down, up)
    for place in zip(*np.nonzero(exact & ~rare), strict=True):
        law = (int(users[place]), float(truth[place]), float(lie[place]), int(ones[place]))
        centre[place], down[place], up[place] = exact_near(*law, alpha)
    _fill_rare(found, asked, rare, alpha, population)
    for part in (centre, down, up):
        part[~live] = 0.0
    return found


def _few(z: float) -> float:
    """Return the count below which the normal law does not fit so far out, where several rungs are combined."""
    return max(float(RARE), _FURTHER_OUT * (z**3 - 3.0 * z) ** 2)


def _rare(asked: YesNo, few: float = RARE) -> NDArray[np.bool_]:
    return np.asarray((asked.ones < few) | (asked.users - asked.ones < few))


def _asked_exactly(
    asked: YesNo, live: NDArray[np.bool_], population: Population, few: float = RARE
) -> NDArray[np.bool_]:
    """Tell which counts the normal law does not fit."""
    if population == "sampling":
        return live & _rare(asked, few)
    centre = (asked.ones / asked.users - asked.lie) / (asked.truth - asked.lie)
    quiet = asked.users * answer_variance(asked.truth, asked.lie, centre, "fleet") < QUIET * few / RARE
    return live & (_rare(asked, few) | quiet)


def _normal_form(questions: YesNo) -> tuple[YesNo, NDArray[np.bool_]]:
    """Return the questions so that truth exceeds lie and everybody has users, and where a rung says something.

    A question that holders answer less often is asked the other way round.
    """
    live = (questions.users > 0) & (questions.truth != questions.lie)
    turned = live & (questions.truth < questions.lie)
    truth = np.where(turned, 1.0 - questions.truth, questions.truth)
    lie = np.where(turned, 1.0 - questions.lie, questions.lie)
    ones = np.where(turned, questions.users - questions.ones, questions.ones)
    users = np.where(live, questions.users, 1.0)
    return YesNo(np.where(live, truth, 1.0), np.where(live, lie, 0.0), np.where(live, ones, 0.0), users), live


def _fill_rare(found: Spans, asked: YesNo, rare: NDArray[np.bool_], alpha: float, population: Population) -> None:
    """Put exact intervals where counts are rare; one table serves all counts of one law."""
    places = np.nonzero(rare)
    if not len(places[0]):
        return
    users, ones = asked.users[places], asked.ones[places]
    truth, lie, absent = asked.truth[places], asked.lie[places], users - ones
    mirrored = absent < ones
    high, low = np.where(mirrored, 1.0 - lie, truth), np.where(mirrored, 1.0 - truth, lie)
    counts = np.where(mirrored, absent, ones).astype(np.int64)
    columns = np.stack((users, high, low, mirrored))
    order = np.lexsort(columns)
    columns = columns[:, order]
    starts = np.flatnonzero(np.append(True, np.any(columns[:, 1:] != columns[:, :-1], axis=0)))
    for (n, p, q, mirror), chosen in zip(columns[:, starts].T.tolist(), np.split(order, starts[1:]), strict=True):
        at = counts[chosen]
        # In steps, so that a table serves for a while: a larger one costs more and holds the same limits.
        most = next(step for step in _STEPS_OF_TABLES if step >= at.max())
        table = exact_limits(int(n), p, q, most, alpha, population)
        middle, below, above = table.centre[at], table.down[at], table.up[at]
        where = places[0][chosen], places[1][chosen]
        found.centre[where] = 1.0 - middle if mirror else middle
        found.down[where], found.up[where] = (above, below) if mirror else (below, above)


def stratified_variance(questions: YesNo, population: Population) -> Floats:
    """Return the variance of the mean of all debiased answers, each rung at its own possible share."""
    asked, live = _normal_form(questions)
    parts = np.where(live, asked.users, 0.0)
    total = np.maximum(parts.sum(axis=0), 1.0)
    shares = (asked.ones / asked.users - asked.lie) / (asked.truth - asked.lie)
    noise = answer_variance(asked.truth, asked.lie, shares, population) / (asked.truth - asked.lie) ** 2
    own = np.sum(parts * noise, axis=0) / total**2
    return np.asarray(own + _between(shares, parts, noise) if population == "sampling" else own)


def stratified_ends(questions: YesNo, *, alpha: float, population: Population) -> tuple[Floats, Floats]:
    """Return the ends of the interval of the mean share of all who answered, whatever the rungs hold."""
    asked, live = _normal_form(questions)
    parts = np.where(live, asked.users, 0.0)
    further: Floats | float = 0.0
    if population == "sampling":
        shares = (asked.ones / asked.users - asked.lie) / (asked.truth - asked.lie)
        noise = answer_variance(asked.truth, asked.lie, shares, population) / (asked.truth - asked.lie) ** 2
        further = _between(shares, parts, noise)
    weights = parts / np.maximum(parts.sum(axis=0), 1.0)
    return weighted_ends(questions, weights, alpha=alpha, population=population, further=further)


def _between(shares: Floats, users: Floats, noise: Floats) -> Floats:
    """Return what the random sizes of rungs with different shares add to the variance of a sample's mean share.

    sum_g w_g (share_g - mean)^2 / n, less what the noise of the shares contributes to it, not below 0.
    """
    total = np.maximum(users.sum(axis=0), 1.0)
    weights = users / total
    inside = np.clip(shares, 0.0, 1.0)
    spread = np.sum(weights * (inside - np.sum(weights * inside, axis=0)) ** 2, axis=0)
    apparent = np.sum(np.where(users > 0, weights * (1.0 - weights) * noise / np.maximum(users, 1.0), 0.0), axis=0)
    return np.asarray(np.maximum(spread - apparent, 0.0) / total)


def answer_variance(truth: Floats, lie: Floats, shares: Floats, population: Population) -> Floats:
    """Return the variance of one answer (0 or 1) on a rung whose shares are these, cut to [0, 1]."""
    inside = np.minimum(np.maximum(shares, 0.0), 1.0)
    if population == "fleet":
        return np.asarray(inside * truth * (1.0 - truth) + (1.0 - inside) * lie * (1.0 - lie))
    answers = lie + (truth - lie) * inside
    return np.asarray(answers * (1.0 - answers))


def _score(asked: YesNo, estimate: Floats, z: float, population: Population) -> tuple[Floats, Floats]:
    """Return the distances down and up at which d^2 = z^2 variance(estimate -+ d), the variance of possible shares."""
    slope = asked.truth - asked.lie
    factor = (z / slope) ** 2 / asked.users
    lying, telling = asked.lie * (1.0 - asked.lie), asked.truth * (1.0 - asked.truth)
    at_zero, at_one = np.sqrt(factor * lying), np.sqrt(factor * telling)
    # Inside [0, 1] the variance is a polynomial in d: square d^2 = side tilt d + level.
    if population == "fleet":
        square, tilt = np.ones_like(factor), factor * (telling - lying)
        level = factor * (estimate * telling + (1.0 - estimate) * lying)
    else:
        answers = asked.lie + slope * estimate
        square, tilt = 1.0 + factor * slope**2, factor * slope * (1.0 - 2.0 * answers)
        level = factor * answers * (1.0 - answers)
    root = np.sqrt(np.maximum(tilt**2 + 4.0 * square * level, 0.0))
    found = []
    # Beyond 0 and 1 the variance stays what it is there; an estimate further out than that does not reach inside.
    for side, near, near_distance, far_distance in ((-1.0, 1.0, at_one, at_zero), (1.0, 0.0, at_zero, at_one)):
        distance = (side * tilt + root) / (2.0 * square)
        end = estimate + side * distance
        distance = np.where(end < 0.0 if side < 0 else end > 1.0, far_distance, distance)
        distance = np.where(side * (near - estimate) >= near_distance, near_distance, distance)
        found.append(np.where(side * (estimate - (1.0 - near)) >= 0.0, far_distance, distance))
    return found[0], found[1]


def spread_ends(estimate: Floats, noise: tuple[Floats, Floats], sampled: float, alpha: float) -> tuple[Floats, Floats]:
    """Widen ends that know only the noise of answers by the spread of `sampled` people drawn from a population.

    The spread is that of the share at the end itself, so it does not vanish at 0 or 1.
    """
    z = two_sided_z(alpha)
    found = []
    for side, end in zip((-1.0, 1.0), noise, strict=True):
        own, reach = end - estimate, end - estimate
        for _ in range(_STEPS):
            at = np.clip(estimate + reach, 0.0, 1.0)
            reach = side * np.sqrt(own**2 + z * z * at * (1.0 - at) / sampled)
        found.append(estimate + reach)
    return found[0], found[1]


def pooled_ends(
    questions: YesNo, *, estimate: Floats, deviation: Floats, alpha: float, population: Population
) -> tuple[Floats, Floats]:
    """Return the ends of the interval of one share that all rungs have in common, per value.

    Where no count is rare: estimate -+ z deviation. Where a rung that matters has rare answers, the normal law fails:
    the rungs' own intervals are combined, of the sampling law with weights that a rung's own rare count cannot move
    far; or, for a fleet whose answers hardly lie, of the fleet's law with the rungs' parts of the fleet as weights,
    which asks for nothing in common. The choice depends on the numbers of users and the share, not on which is wider.
    """
    z = two_sided_z(alpha)
    lower, upper = estimate - z * deviation, estimate + z * deviation
    asked, live = _normal_form(questions)
    users, slope = np.where(live, asked.users, 0.0), asked.truth - asked.lie
    share = _careful_share(asked, users, estimate, z)
    information = users * slope**2 / answer_variance(asked.truth, asked.lie, share, "sampling")
    weights = information / np.maximum(information.sum(axis=0), _TINY)
    failing = np.any(_rare(asked, _few(z)) & (weights > _MATTERS), axis=0)
    parts = users / np.maximum(users.sum(axis=0), 1.0)
    noise = parts**2 * answer_variance(asked.truth, asked.lie, share, "fleet") / (asked.users * slope**2)
    apart = failing & (population == "fleet") & (noise.sum(axis=0) * information.sum(axis=0) < 1.0)
    choices: tuple[tuple[NDArray[np.bool_], Population, Floats], ...] = (
        (failing & ~apart, "sampling", weights),
        (apart, "fleet", parts),
    )
    for chosen, law, weight in choices:
        if chosen.any():
            some = questions.values_at(np.flatnonzero(chosen))
            # Weighed by users every rung may have its own share; by information all have one.
            common = None if law == "fleet" else estimate[chosen]
            low, high = weighted_ends(some, weight[:, chosen], alpha=alpha, population=law, common=common)
            lower[chosen] = np.minimum(low, estimate[chosen])
            upper[chosen] = np.maximum(high, estimate[chosen])
    return lower, upper


def _careful_share(asked: YesNo, users: Floats, estimate: Floats, z: float) -> Floats:
    """Return the share that the most informative rung sees, drawn towards the middle by z^2 answers."""
    slope = asked.truth - asked.lie
    inside = np.clip(estimate, _EDGE, 1.0 - _EDGE)
    best = np.argmax(users * slope**2 / answer_variance(asked.truth, asked.lie, inside, "sampling"), axis=0)
    row = (best, np.arange(asked.values))
    drawn = (asked.ones[row] + z * z / 2.0) / (asked.users[row] + z * z)
    return np.asarray(np.clip((drawn - asked.lie[row]) / slope[row], _EDGE, 1.0 - _EDGE))
