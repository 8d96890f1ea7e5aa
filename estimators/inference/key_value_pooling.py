"""Key-value reports on mixed rungs: shares of keys and means of their values, with intervals.

For every key there are three answers per rung. What is estimated is the pair (f, s): the share of people with the
key, and the mean of the value over all people (0 without the key). The mean among people with the key is s / f.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from estimators.estimates import Derived, Estimates, Method, Population
from estimators.inference.em import dense_mle
from estimators.inference.key_value import (
    KeyValueEstimate,
    KeyValueParameters,
    estimate_key_values,
    key_value_moments,
)
from estimators.inference.key_value_graph import EDGE_WEIGHT, Graph, Loads
from estimators.inference.key_value_intervals import MeanTails, SignCounts, share_ends
from estimators.inference.pooling_result import (
    SCORING_STEPS,
    SCORING_TOLERANCE,
    Combined,
    choose_method,
    finish,
    no_estimate,
    uninformative_notes,
)
from estimators.intervals.one_look import check_alpha
from estimators.intervals.remembered import remembered
from estimators.intervals.rung_shares import stratified_variance

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

# How far inside its range a pilot is kept: at the edge the covariance of a rung may be singular.
_EDGE = 1e-4
# Fewer answers than this on a rung say too little for the normal law of the homogeneity test.
_TESTABLE = 25
# Results that are kept for other methods of the same window.
_KEPT = 4


@dataclass(frozen=True)
class KeyValueCounts:
    """What the rungs that carry information have seen; users, plus and minus are [rung, key]."""

    parameters: tuple[KeyValueParameters, ...]
    users: Floats
    plus: Floats
    minus: Floats
    fleet: int
    """People on those rungs, whichever key they were asked about."""
    uninformative: int
    """People on rungs that carry no information."""

    @classmethod
    def of(
        cls, parameters: Sequence[KeyValueParameters], users: Counts, plus: Counts, minus: Counts, fleet: Counts
    ) -> KeyValueCounts:
        """Leave out empty rungs and rungs that tell nothing; fleet is [rung]."""
        if np.any(plus < 0) or np.any(minus < 0) or np.any(plus + minus > users):
            raise ValueError("a tally with impossible counts took back more than was added; rebuild it from the log")
        telling = np.array([p.presence > 0.0 and p.sign > 0.0 for p in parameters])
        used = np.flatnonzero(telling & (fleet > 0))
        return cls(
            tuple(parameters[int(g)] for g in used),
            users[used].astype(np.float64),
            plus[used].astype(np.float64),
            minus[used].astype(np.float64),
            int(fleet[used].sum()),
            int(fleet[~telling].sum()),
        )

    @property
    def signs(self) -> SignCounts:
        """The counts alone."""
        return SignCounts(self.parameters, self.users, self.plus, self.minus)

    def rung(self, g: int) -> KeyValueEstimate:
        """Return the estimates of one rung."""
        return estimate_key_values(self.users[g], self.plus[g], self.minus[g], self.parameters[g])

    def raw(self, g: int) -> tuple[Floats, Floats]:
        """Return unbiased (f, s) of one rung; NaN without users."""
        n = np.where(self.users[g] > 0, self.users[g], np.nan)
        own = self.parameters[g]
        rate, difference = (self.plus[g] + self.minus[g]) / n, (self.plus[g] - self.minus[g]) / n
        return np.asarray((rate - (1.0 - own.p1)) / own.presence), np.asarray(difference / own.sign)


def stratified_key_values(counts: KeyValueCounts) -> KeyValueEstimate:
    """Return the mean of all debiased answers per key: unbiased whatever the rungs hold."""
    total = np.where(counts.users.sum(axis=0) >= 2, counts.users.sum(axis=0), np.nan)
    sums = [np.zeros_like(total) for _ in range(5)]
    for g, own in enumerate(counts.parameters):
        weight = counts.users[g] / total
        share, mean = counts.raw(g)
        estimate = counts.rung(g)
        # One answer says nothing about its own spread: take the largest possible one.
        lone = counts.users[g] < 2
        parts = (
            weight * share,
            weight * mean,
            weight**2 * np.where(lone, 0.25 / own.presence**2, estimate.share_variance),
            weight**2 * np.where(lone, 1.0 / own.sign**2, estimate.total_variance),
            weight**2 * np.where(lone, 0.0, estimate.covariance),
        )
        for i, part in enumerate(parts):
            sums[i] = sums[i] + np.where(counts.users[g] > 0, part, 0.0)
    return KeyValueEstimate(*(np.where(np.isnan(total), np.nan, part) for part in sums))


@remembered(_KEPT)
def pooled_key_values(counts: KeyValueCounts) -> KeyValueEstimate:
    """Return generalised least squares over the rungs, iterated: best when rungs do not depend on the values."""
    current = stratified_key_values(counts)
    if len(counts.parameters) == 1:
        return current
    share, total = current.share, current.total
    known = ~np.isnan(share)
    observed = [counts.raw(g) for g in range(len(counts.parameters))]
    inverse = (current.share_variance, current.total_variance, current.covariance)
    for _ in range(SCORING_STEPS):
        pilot_share, pilot_total = _inside(share, total)
        a = b = c = first = second = np.zeros_like(share)
        for g, own in enumerate(counts.parameters):
            p, r, q = _precision(pilot_share, pilot_total, own, counts.users[g])
            f, s = (np.where(counts.users[g] > 0, part, 0.0) for part in observed[g])
            a, b, c = a + p, b + r, c + q
            first, second = first + p * f + r * s, second + r * f + q * s
        determinant = np.where(known, a * c - b * b, np.nan)
        inverse = (c / determinant, a / determinant, -b / determinant)
        new_share = inverse[0] * first + inverse[2] * second
        new_total = inverse[2] * first + inverse[1] * second
        settled = np.abs(new_share - share) <= SCORING_TOLERANCE * np.sqrt(inverse[0])
        settled &= np.abs(new_total - total) <= SCORING_TOLERANCE * np.sqrt(inverse[1])
        share, total = new_share, new_total
        if np.all(settled[known]):
            break
    return KeyValueEstimate(share, total, *inverse)


def likely_key_values(counts: KeyValueCounts, near: KeyValueEstimate) -> tuple[KeyValueEstimate, tuple[str, ...]]:
    """Return maximum likelihood per key inside the possible range, begun at `near`, and why the searches ended.

    Variances are NaN where the maximum lies on the edge: the usual formula does not hold there.
    """
    keys = counts.users.shape[1]
    share, total = np.full(keys, np.nan), np.full(keys, np.nan)
    stops: dict[str, int] = {}
    for key in np.flatnonzero(counts.users.sum(axis=0) >= 2):
        used = np.flatnonzero(counts.users[:, key] > 0)
        matrices = np.stack([counts.parameters[int(g)].rows for g in used])
        up, down = counts.plus[used, key], counts.minus[used, key]
        pair = near.share[key], near.total[key]
        start = np.array([1.0 - pair[0], (pair[0] + pair[1]) / 2.0, (pair[0] - pair[1]) / 2.0])
        maximum = dense_mle(matrices, np.stack([counts.users[used, key] - up - down, up, down], axis=1), start)
        share[key] = maximum.shares[1] + maximum.shares[2]
        total[key] = maximum.shares[1] - maximum.shares[2]
        stops[maximum.stopped] = stops.get(maximum.stopped, 0) + 1
    a = b = c = np.zeros(keys)
    for own, users in zip(counts.parameters, counts.users, strict=True):
        p, r, q = _precision(*_inside(share, total), own, users)
        a, b, c = a + p, b + r, c + q
    inner = (share < 1.0 - _EDGE) & (np.abs(total) < share * (1.0 - _EDGE)) & (share > _EDGE)
    determinant = np.where(inner, a * c - b * b, np.nan)
    notes = tuple(f"likelihood search ended: {reason} ({number} keys)" for reason, number in stops.items())
    return KeyValueEstimate(share, total, c / determinant, a / determinant, -b / determinant), notes


def homogeneity(counts: KeyValueCounts, common: KeyValueEstimate) -> float | None:
    """Return the p-value of the test that all rungs see the same shares and means; None with nothing to test."""
    testable = counts.users >= _TESTABLE
    testable &= testable.sum(axis=0) >= 2
    freedom = 2 * int(testable.sum() - testable.any(axis=0).sum())
    if freedom == 0:
        return None
    pilot = _inside(common.share, common.total)
    parts = [
        (*_precision(*pilot, own, np.where(used, users, 0.0)), *(np.where(used, raw, 0.0) for raw in counts.raw(g)))
        for g, (own, users, used) in enumerate(zip(counts.parameters, counts.users, testable, strict=True))
    ]
    tested = testable.any(axis=0)
    p, r, q, f, s = (np.array(column)[:, tested] for column in zip(*parts, strict=True))
    a, b, c = p.sum(axis=0), r.sum(axis=0), q.sum(axis=0)
    first, second = (p * f + r * s).sum(axis=0), (r * f + q * s).sum(axis=0)
    determinant = a * c - b * b
    df, ds = f - (c * first - b * second) / determinant, s - (a * second - b * first) / determinant
    statistic = float((p * df * df + 2.0 * r * df * ds + q * ds * ds).sum())
    return float(special.chdtrc(freedom, statistic))


def pool_key_values(
    labels: Sequence[str],
    counts: KeyValueCounts,
    *,
    scale: float = 1.0,
    method: Method = "pooled",
    population: Population = "fleet",
    alpha: float = 0.05,
    together: bool = False,
) -> Estimates:
    """Return estimates for labels share, mean, share, mean, ... of all keys, and averages of the graph that they form.

    scale multiplies shares (pad-and-sample: the padding length). together: everybody answers about all keys. For the
    fleet, the spread of who has the key is taken out of the share's variance; the mean keeps it (its part cannot be
    known), which is on the safe side.
    """
    check_alpha(alpha)
    labels, notes = tuple(labels), uninformative_notes(counts.uninformative)
    if not counts.parameters:
        return no_estimate(labels, method, population, alpha, notes)
    pooled = pooled_key_values(counts)
    p_value = homogeneity(counts, pooled) if len(counts.parameters) > 1 else None
    chosen, notes = choose_method(method, p_value, len(counts.parameters), notes)
    apart = chosen == "stratified"
    estimate = stratified_key_values(counts) if apart else pooled
    variance = _share_variance(counts, estimate, scale, population, apart=apart)
    share, mean = estimate.share, estimate.mean
    if chosen == "mle":
        # The graph stays that of the linear estimate, which has no bias.
        likely, reasons = likely_key_values(counts, pooled)
        share, mean = likely.share, likely.mean
        notes = (*notes, *reasons)
    signs, weights = counts.signs, _part_of_users(counts) if apart else _part_of_information(counts, estimate)
    means = _mean_tails(counts, estimate, apart)

    def ends(error: float) -> tuple[Floats, Floats]:
        shares = share_ends(signs, weights, estimate.share, variance, error, apart=apart)
        return _around(scale, share, mean, shares, means.ends(error))

    # A mean that could be anything is not estimable: its value would only mislead, its band says so.
    lost, unknown = _anything(*means.ends(alpha)), np.isnan(share)
    found = Combined(
        _interleave(scale * share, np.where(lost, np.nan, mean)),
        _interleave(scale**2 * variance, np.where(lost, np.nan, estimate.mean_variance)),
        ends,
    ).without(_interleave(unknown, unknown))
    graph = Graph(signs, _loads(counts, estimate, apart), estimate, counts.fleet, scale, apart, together)
    derived = graph.derived(population, alpha)
    finished = finish(
        labels,
        found,
        users=counts.fleet,
        method=chosen,
        population=population,
        alpha=alpha,
        homogeneity_p=p_value,
        notes=(*notes, *_missing(unknown, lost, derived)),
    )
    return replace(finished, derived=derived)


@remembered(_KEPT)
def _mean_tails(counts: KeyValueCounts, estimate: KeyValueEstimate, apart: bool) -> MeanTails:
    return MeanTails.of(counts.signs, estimate, partial(stratified_loads if apart else pooled_loads, counts))


def _loads(counts: KeyValueCounts, estimate: KeyValueEstimate, apart: bool) -> Loads:
    """Return what every rung's own share and total weigh in the estimates."""
    if apart or len(counts.parameters) == 1:
        return Loads.of_parts(_part_of_users(counts))
    pilot = _inside(estimate.share, estimate.total)
    parts = [_precision(*pilot, own, users) for own, users in zip(counts.parameters, counts.users, strict=True)]
    p, r, q = (np.array(column) for column in zip(*parts, strict=True))
    a, b, c = p.sum(axis=0), r.sum(axis=0), q.sum(axis=0)
    determinant = a * c - b * b
    return Loads(*(part / determinant for part in (c * p - b * r, c * r - b * q, a * r - b * p, a * q - b * r)))


def _missing(unknown: NDArray[np.bool_], lost: NDArray[np.bool_], derived: Sequence[Derived]) -> Iterator[str]:
    """Yield notes about keys without an estimate and means that could be anything."""
    if any(one.name == EDGE_WEIGHT and np.isnan(one.value) for one in derived):
        yield f"the {EDGE_WEIGHT} is not estimable: too few people have any key"
    if np.any(unknown):
        yield f"{int(np.sum(unknown))} keys have no estimate: fewer than two people were asked"
    if np.any(lost):
        yield f"{int(np.sum(lost))} means are not estimable: too few people have the key"


def _anything(lower: Floats, upper: Floats) -> NDArray[np.bool_]:
    return np.asarray((lower <= -1.0) & (upper >= 1.0))


def _share_variance(
    counts: KeyValueCounts, estimate: KeyValueEstimate, scale: float, population: Population, *, apart: bool
) -> Floats:
    """Return the variance of the shares; for a fleet without the spread of who has the key.

    Rungs that differ: how many of each are asked about a key is random, and their shares differ.
    """
    found = stratified_variance(counts.signs.presence, "sampling") if apart else estimate.share_variance
    found = np.where(np.isfinite(estimate.share), found, np.nan)
    if population == "sampling":
        return found
    inside = np.clip(scale * estimate.share, 0.0, 1.0)
    spread = inside * (1.0 - inside) / (scale**2 * max(counts.fleet, 1))
    return np.asarray(np.maximum(found - spread, 0.0))


def _around(
    scale: float,
    share: Floats,
    mean: Floats,
    share_limits: tuple[Floats, Floats],
    mean_limits: tuple[Floats, Floats],
) -> tuple[Floats, Floats]:
    """Return the ends of shares and means in turn, none of which leaves its value outside."""
    return (
        _interleave(scale * np.fmin(share_limits[0], share), np.fmin(mean_limits[0], mean)),
        _interleave(scale * np.fmax(share_limits[1], share), np.fmax(mean_limits[1], mean)),
    )


def stratified_loads(counts: KeyValueCounts, share: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return what every rung's own share and total weigh in s - m f, [rung, candidate, key]: its part of the users."""
    parts = _part_of_users(counts)[:, None, :] + 0.0 * share
    return -mean * parts, parts


def pooled_loads(counts: KeyValueCounts, share: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return the same with rungs weighed by their information, if these were the common shares and means."""
    pilot = _inside(share, share * mean)
    parts = [_precision(*pilot, own, users) for own, users in zip(counts.parameters, counts.users, strict=True)]
    p, r, q = (np.array(column) for column in zip(*parts, strict=True))
    a, b, c = p.sum(axis=0), r.sum(axis=0), q.sum(axis=0)
    # Nobody asked: nothing to weigh.
    determinant = np.where(a > 0, a * c - b * b, 1.0)
    of_share, of_total = (-mean * c - b) / determinant, (mean * b + a) / determinant
    return of_share * p + of_total * r, of_share * r + of_total * q


def _part_of_users(counts: KeyValueCounts) -> Floats:
    return np.asarray(counts.users / np.maximum(counts.users.sum(axis=0), 1.0))


def _part_of_information(counts: KeyValueCounts, estimate: KeyValueEstimate) -> Floats:
    """Return each rung's part of the information about the share of a key."""
    share = np.where(np.isfinite(estimate.share), np.clip(estimate.share, _EDGE, 1.0 - _EDGE), 0.5)
    rows = [
        users / key_value_moments(share, np.zeros_like(share), own)[0]
        for own, users in zip(counts.parameters, counts.users, strict=True)
    ]
    return np.asarray(np.array(rows) / np.maximum(np.sum(rows, axis=0), np.finfo(float).tiny))


def _inside(share: Floats, total: Floats) -> tuple[Floats, Floats]:
    """Return a pilot inside the possible range, for covariances only."""
    f = np.clip(share, _EDGE, 1.0 - _EDGE)
    reach = f * (1.0 - _EDGE)
    return f, np.clip(total, -reach, reach)


def _precision(
    share: Floats, total: Floats, parameters: KeyValueParameters, users: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return the inverse covariance of one rung's (f, s): its diagonal and, in the middle, the off-diagonal."""
    v, w, c = key_value_moments(share, total, parameters)
    determinant = v * w - c * c
    return users * w / determinant, -users * c / determinant, users * v / determinant


def _interleave(shares: Any, means: Any) -> Any:
    return np.stack([shares, means], axis=1).reshape(-1)
