"""Exact intervals for the share behind one rung's count, where normal approximations fail.

On one rung a value is named by some of `users` devices: with probability `truth` by those who have it, `lie` by the
others. Under `sampling` the count is binomial with probability lie + (truth - lie) share. Under `fleet` it is the sum
of two binomials, of the k devices that have the value and of the others, and the share is k / users. Both laws have
one parameter, so Blaker's construction applies: a share is accepted if the outcomes that are at most as likely in
their own tail as the observed one have more than alpha together. It is exact (coverage at least 1 - alpha) and
narrower than two one-sided tests.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from estimators.estimates import Population

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CANDIDATES = 300
"""Candidate shares in a table. Fewer: limits are rounded outwards by more; more: a table takes longer."""
_TABLES = 512
"""Tables that are kept: a window's tables are asked for at every tick until its counts change."""
_NEAR = 4_096
"""Single intervals that are kept."""
_TIE = 1e-9


class ExactLimits(NamedTuple):
    """For every count 0, 1, ...: ends of the accepted shares, the most acceptable one, whether 0 and 1 are accepted."""

    lower: Floats
    upper: Floats
    centre: Floats
    zero: NDArray[np.bool_]
    one: NDArray[np.bool_]
    excess: float
    """How far above 0 the estimate may come out, at this level, although nobody has the value."""
    lack: float
    """How far below 1, although everybody has it."""


@lru_cache(maxsize=_TABLES)
def exact_limits(users: int, truth: float, lie: float, most: int, alpha: float, population: Population) -> ExactLimits:
    """Return the accepted shares of the counts 0 ... most among `users` answers, at level 1 - alpha.

    Ends are rounded outwards. Under `fleet` they reach half a device beyond the accepted numbers of devices, so that
    no interval has width zero.
    """
    most = min(most, users)
    # Beyond this mean no count up to `most` is accepted: Chernoff's bound of its lower tail is below alpha. Counts are
    # told up to where the upper tail of that mean is as small.
    reach = math.sqrt(-2.0 * math.log(alpha / 4.0))
    mean = most + reach * math.sqrt(most + 1.0) + reach**2
    counts = min(users, math.ceil(mean + reach * math.sqrt(mean) + reach**2))
    highest = min(1.0, max(mean / users - lie, 0.0) / (truth - lie) + 1.0 / users)
    if population == "fleet":
        devices = _spread(math.ceil(highest * users))
        shares = devices / users
        law = _sum_of_binomials(devices, users, truth, lie, counts)
    else:
        shares = np.linspace(0.0, 1.0, _CANDIDATES) ** 2 * highest
        law = _binomial(np.arange(counts + 1), np.array(float(users)), lie + (truth - lie) * shares[:, None])
    acceptable = _acceptability(law)[:, : most + 1]
    # Fewer answers than noise alone gives are explained best by the share 0, however badly.
    noise = np.arange(most + 1) <= users * lie
    best = np.where(noise, 0, np.argmax(acceptable, axis=0))
    accepted = acceptable > alpha
    accepted[best, np.arange(most + 1)] = True
    first = np.argmax(accepted, axis=0)
    last = len(shares) - 1 - np.argmax(accepted[::-1], axis=0)
    before, after = np.maximum(first - 1, 0), np.minimum(last + 1, len(shares) - 1)
    lower, upper = shares[before], shares[after]
    if population == "fleet":
        # Neighbouring numbers of devices need no rounding: there is no share between them.
        half = 0.5 / users
        lower = np.where((shares[first] - lower) * users <= 1.0 + _TIE, shares[first], lower) - half
        upper = np.where((upper - shares[last]) * users <= 1.0 + _TIE, shares[last], upper) + half
    many, few = stats.binom.isf(alpha / 2.0, users, lie), stats.binom.ppf(alpha / 2.0, users, truth)
    scale = 1.0 / (users * (truth - lie))
    excess, lack = float(many - users * lie) * scale, float(users * truth - few) * scale
    return ExactLimits(lower, upper, shares[best], accepted[0], accepted[-1] & (shares[-1] >= 1.0), excess, lack)


@lru_cache(maxsize=_NEAR)
def exact_near(users: int, truth: float, lie: float, ones: int, alpha: float) -> tuple[float, float, float]:
    """Return the most acceptable share of a fleet whose answers hardly lie, and the distances down and up to the ends.

    The count is wrong by invented answers and by suppressed ones. Where both are few, the normal law fails although the
    count is large. Every number of devices near the count is tried with its own law.
    """
    spread = math.sqrt(users * max(truth * (1.0 - truth), lie * (1.0 - lie)))
    reach = math.ceil(8.0 * (spread + 1.0) + 10.0)
    expected = (ones - users * lie) / (truth - lie)
    middle = min(max(round(expected), 0), users)
    width = math.ceil(reach / (truth - lie))
    devices = np.arange(max(middle - width, 0), min(middle + width, users) + 1)
    # Each binomial is told from `reach` below its mean on, so that the laws of large fleets stay short.
    having, others = devices[:, None].astype(np.float64), (users - devices[:, None]).astype(np.float64)
    start_having = np.maximum(np.floor(having * truth) - reach, 0.0)
    start_others = np.maximum(np.floor(others * lie) - reach, 0.0)
    steps = np.arange(2 * reach + 1)
    size = 4 * reach + 2
    first_law = np.fft.rfft(_binomial(start_having + steps, having, np.array(truth)), size, axis=1)
    second_law = np.fft.rfft(_binomial(start_others + steps, others, np.array(lie)), size, axis=1)
    acceptability = _acceptability(np.maximum(np.fft.irfft(first_law * second_law, size, axis=1), 0.0))
    seen = ones - (start_having + start_others)[:, 0].astype(np.int64)
    told = np.take_along_axis(acceptability, np.clip(seen, 0, size - 1)[:, None], axis=1)[:, 0]
    acceptable = np.where((seen >= 0) & (seen < size), told, 0.0)
    best = int(np.argmax(acceptable))
    kept = np.flatnonzero(acceptable > alpha)
    first, last = (kept[0], kept[-1]) if kept.size else (best, best)
    half = 0.5 / users
    centre = devices[best] / users
    return centre, centre - devices[first] / users + half, devices[last] / users + half - centre


def _spread(highest: int) -> Ints:
    """Return whole numbers from 0 to `highest`: all, or as many as a table has candidates, denser near 0."""
    if highest < _CANDIDATES:
        return np.arange(highest + 1)
    return np.unique(np.rint(np.linspace(0.0, 1.0, _CANDIDATES) ** 2 * highest).astype(np.int64))


def _binomial(counts: Ints | Floats, trials: Floats, chance: Floats) -> Floats:
    """Return binomial probabilities; arrays broadcast; 0 where there are more counts than trials."""
    possible = counts <= trials
    rest = np.where(possible, trials - counts, 0.0)
    log_ways = special.gammaln(trials + 1.0) - special.gammaln(counts + 1.0) - special.gammaln(rest + 1.0)
    logs = log_ways + special.xlogy(counts, chance) + special.xlog1py(rest, -chance)
    return np.where(possible, np.exp(logs), 0.0)


def _sum_of_binomials(devices: Ints, users: int, truth: float, lie: float, most: int) -> Floats:
    """Return Pr(count) [number of devices with the value, count 0 ... most]."""
    counts = np.arange(most + 1)
    having = _binomial(counts, devices[:, None].astype(np.float64), np.array(truth))
    others = _binomial(counts, (users - devices[:, None]).astype(np.float64), np.array(lie))
    size = 2 * (most + 1)
    product = np.fft.rfft(having, size, axis=1) * np.fft.rfft(others, size, axis=1)
    return np.asarray(np.maximum(np.fft.irfft(product, size, axis=1)[:, : most + 1], 0.0))


def _acceptability(law: Floats) -> Floats:
    """Return for every candidate and count the probability of outcomes at most as likely in their own tail."""
    below = np.minimum(np.cumsum(law, axis=1), 1.0)
    above = np.minimum(1.0 - below + law, 1.0)
    tail = np.minimum(below, above)
    order = np.argsort(tail, axis=1, kind="stable")
    ranked = np.take_along_axis(tail, order, axis=1)
    together = np.cumsum(np.take_along_axis(law, order, axis=1), axis=1)
    # What lies beyond the last count is more extreme than all of the upper side: it belongs to every sum.
    beyond = np.maximum(1.0 - below[:, -1:], 0.0)
    # Equal tails count together: every one of them gets the sum up to the last.
    ends = np.ones(law.shape, dtype=np.bool_)
    ends[:, :-1] = ranked[:, 1:] > ranked[:, :-1] * (1.0 + _TIE)
    last = np.where(ends, np.arange(law.shape[1]), law.shape[1])
    together = np.take_along_axis(together, np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1], axis=1)
    found = np.empty_like(law)
    np.put_along_axis(found, order, together + beyond, axis=1)
    return found
