"""One-look intervals for shares seen through several rungs.

Every rung gives an interval of its own share: exact where an answer or its absence is rare, otherwise a score interval
whose variance is taken at its own end, with shares that the channel can produce. A weighted sum of the rungs' shares
gets the ends theta -+ sqrt(sum_g (w_g d_g)^2), where d_g is the distance from the rung's centre to its end on that side
(the method of variance estimates recovery, Zou & Donner 2008): it keeps the asymmetry of rare answers, and one rung
alone keeps its own interval.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.intervals.exact_shares import exact_limits, exact_near
from estimators.intervals.one_look import two_sided_z

Floats = NDArray[np.float64]

RARE = 60
"""A count below this, of answers or of their absence, gets an exact interval. Smaller: score intervals on a lattice
miss up to 6.5 % at 25; larger: tables that change nothing take time."""

QUIET = 25.0
"""A fleet's count whose variance is below this gets an exact interval too: its errors are few whole answers."""

_MATTERS = 0.05
"""A rung with less than this part of the information cannot spoil a pooled interval."""

_EDGE = 1e-4
"""Shares for weights stay this far inside [0, 1]."""

_STEPS = 12
"""Fixed-point steps of the score interval; each gains a factor of at least five beyond RARE."""


@dataclass(frozen=True)
class Spans:
    """Per rung and value: a centre, and the distances down and up to the ends of its interval."""

    centre: Floats
    down: Floats
    up: Floats

    def weighted(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return the ends of the interval of sum_g weights[g] share[g], per value."""
        centre = np.sum(weights * self.centre, axis=0)
        down = np.sqrt(np.sum((weights * self.down) ** 2, axis=0))
        up = np.sqrt(np.sum((weights * self.up) ** 2, axis=0))
        return np.asarray(centre - down), np.asarray(centre + up)


def spans(
    truth: Floats,
    lie: Floats,
    ones: Floats,
    users: Floats,
    *,
    alpha: float,
    population: Population,
    shared: bool = True,
) -> Spans:
    """Return the intervals of every rung's share; all arrays [rung, value], truth above lie, users at least 1.

    Exact intervals share alpha between the rungs that need one (unless not `shared`): where rungs have shares of their
    own, errors that come in steps of one answer do not average out as the errors of many answers do.
    """
    z = two_sided_z(alpha)
    slope = truth - lie
    estimate = (ones / users - lie) / slope
    down = _score(estimate, truth, lie, users, z, population, side=-1.0)
    up = _score(estimate, truth, lie, users, z, population, side=+1.0)
    centre = estimate.copy()
    rare = (ones < RARE) | (users - ones < RARE)
    quiet = np.zeros_like(rare)
    if population == "fleet":
        quiet = ~rare & (users * answer_variance(truth, lie, estimate, "fleet") < QUIET)
    sharing = np.broadcast_to((rare | quiet).sum(axis=0) if shared else 1, rare.shape)
    for place in zip(*np.nonzero(quiet), strict=True):
        law = (int(users[place]), float(truth[place]), float(lie[place]), int(ones[place]))
        low, high, middle = exact_near(*law, alpha / int(sharing[place]))
        centre[place], down[place], up[place] = middle, middle - low, high - middle
    _fill_rare(Spans(centre, down, up), truth, lie, ones, users, sharing, rare, alpha, z, population)
    return Spans(centre, down, up)


def _fill_rare(
    found: Spans,
    truth: Floats,
    lie: Floats,
    ones: Floats,
    users: Floats,
    sharing: NDArray[np.int64],
    rare: NDArray[np.bool_],
    alpha: float,
    z: float,
    population: Population,
) -> None:
    """Put exact intervals where counts are rare; one table serves all counts of one law."""
    mirrored = users - ones < ones
    laws = np.stack(
        [
            users,
            np.where(mirrored, 1.0 - lie, truth),
            np.where(mirrored, 1.0 - truth, lie),
            sharing,
            mirrored,
            np.where(mirrored, users - ones, ones),
        ],
        axis=-1,
    )
    for law in np.unique(laws[rare][:, :5], axis=0):
        n, high, low, rungs, mirror = law
        chosen = rare & np.all(laws[..., :5] == law, axis=-1)
        counts = laws[..., 5][chosen].astype(np.int64)
        table = exact_limits(int(n), float(high), float(low), RARE - 1, alpha / rungs, population)
        seen = (counts / n - low) / (high - low)
        middle = (
            table.centre[counts] if population == "fleet" else np.clip(seen, table.lower[counts], table.upper[counts])
        )
        # Where even the share 0 is accepted, fewer answers than noise alone gives may come: the centre keeps that.
        middle = np.where(table.zero[counts], np.minimum(seen, middle), middle)
        below, above = middle - table.lower[counts], table.upper[counts] - middle
        noise = z * np.sqrt(low * (1.0 - low) / n) / (high - low)
        below = np.where(table.zero[counts], np.maximum(below, noise), below)
        below, above = np.maximum(below, 0.0), np.maximum(above, 0.0)
        found.centre[chosen] = 1.0 - middle if mirror else middle
        found.down[chosen], found.up[chosen] = (above, below) if mirror else (below, above)


def answer_variance(truth: Floats, lie: Floats, shares: Floats, population: Population) -> Floats:
    """Return the variance of one answer (0 or 1) on a rung whose shares are these, cut to [0, 1]."""
    inside = np.clip(shares, 0.0, 1.0)
    if population == "fleet":
        return np.asarray(inside * truth * (1.0 - truth) + (1.0 - inside) * lie * (1.0 - lie))
    answers = lie + (truth - lie) * inside
    return np.asarray(answers * (1.0 - answers))


def _score(
    estimate: Floats, truth: Floats, lie: Floats, users: Floats, z: float, population: Population, *, side: float
) -> Floats:
    """Return the distance d at which d^2 = z^2 variance(estimate + side d)."""
    scale = z / (np.sqrt(users) * (truth - lie))
    distance = scale * np.sqrt(answer_variance(truth, lie, estimate, population))
    for _ in range(_STEPS):
        distance = scale * np.sqrt(answer_variance(truth, lie, estimate + side * distance, population))
    return np.asarray(distance)


def pooled_ends(
    truth: Floats,
    lie: Floats,
    ones: Floats,
    users: Floats,
    *,
    estimate: Floats,
    deviation: Floats,
    alpha: float,
    population: Population,
) -> tuple[Floats, Floats]:
    """Return the ends of the interval of one share that all rungs have in common, arrays [rung, value].

    Where no count is rare: estimate -+ z deviation. Where a rung that matters has rare answers, the normal law fails:
    the rungs' own intervals are combined, of the sampling law with weights that a rung's own rare count cannot move
    far; or, for a fleet whose answers hardly lie, of the fleet's law with the rungs' parts of the fleet as weights,
    which asks for nothing in common. The choice depends on the numbers of users and the share, not on which is wider.
    """
    z = two_sided_z(alpha)
    lower, upper = estimate - z * deviation, estimate + z * deviation
    share = _careful_share(truth, lie, ones, users, estimate, z)
    information = users * (truth - lie) ** 2 / answer_variance(truth, lie, share, "sampling")
    weights = information / information.sum(axis=0)
    rare = (ones < RARE) | (users - ones < RARE)
    failing = np.any(rare & (weights > _MATTERS), axis=0)
    parts = users / users.sum(axis=0)
    noise = np.sum(parts**2 * answer_variance(truth, lie, share, "fleet") / (users * (truth - lie) ** 2), axis=0)
    apart = failing & (population == "fleet") & (noise < 1.0 / information.sum(axis=0))
    for chosen, law, weight in ((failing & ~apart, "sampling", weights), (apart, "fleet", parts)):
        if chosen.any():
            some = (array[:, chosen] for array in (truth, lie, ones, users))
            found = spans(*some, alpha=alpha, population=law, shared=law == "fleet")  # type: ignore[arg-type]
            low, high = found.weighted(weight[:, chosen])
            lower[chosen] = np.minimum(low, estimate[chosen])
            upper[chosen] = np.maximum(high, estimate[chosen])
    return lower, upper


def _careful_share(truth: Floats, lie: Floats, ones: Floats, users: Floats, estimate: Floats, z: float) -> Floats:
    """Return the share that the most informative rung sees, drawn towards the middle by z^2 answers."""
    slope = truth - lie
    inside = np.clip(estimate, _EDGE, 1.0 - _EDGE)
    best = np.argmax(users * slope**2 / answer_variance(truth, lie, inside, "sampling"), axis=0)
    row = (best, np.arange(ones.shape[1]))
    drawn = (ones[row] + z * z / 2.0) / (users[row] + z * z)
    return np.asarray(np.clip((drawn - lie[row]) / slope[row], _EDGE, 1.0 - _EDGE))
