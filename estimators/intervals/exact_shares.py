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
from scipy import special

from estimators.estimates import Population

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CANDIDATES = 300
"""Candidate shares in a table. Fewer: limits are rounded outwards by more; more: a table takes longer."""
_TABLES = 4_096
"""Tables that are kept: a window's tables are asked for at every tick until its counts change."""
_NEAR = 4_096
"""Single intervals that are kept."""
_TIE = 1e-9
_HUGE = 1e300


class ExactLimits(NamedTuple):
    """For every count 0, 1, ...: ends of the accepted shares; a centre, and the distances that other rungs are told."""

    lower: Floats
    upper: Floats
    centre: Floats
    down: Floats
    up: Floats


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
    best = np.where(noise, 0, _most_acceptable(acceptable))
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
    seen = (np.arange(most + 1) / users - lie) / (truth - lie)
    middle = shares[best] if population == "fleet" else np.clip(seen, lower, upper)
    # Where even the share 0 is accepted, fewer answers than noise alone gives may come, and at 1 likewise more: the
    # centre keeps that, and so does the distance. A distance cut at 0 or 1 would leave other rungs no room.
    zero, one = accepted[0], accepted[-1] & (shares[-1] >= 1.0)
    middle = np.where(zero, np.minimum(seen, middle), np.where(one, np.maximum(seen, middle), middle))
    excess, lack = _room(users, truth, lie, alpha)
    down = np.maximum(middle - lower, np.where(zero, excess, 0.0))
    up = np.maximum(upper - middle, np.where(one, lack, 0.0))
    return ExactLimits(lower, upper, middle, down, up)


def _room(users: int, truth: float, lie: float, alpha: float) -> tuple[float, float]:
    """Return how far above 0 an estimate may come out although nobody has the value, and below 1 although all have."""
    scale = 1.0 / (users * (truth - lie))
    many, missing = _most_of_few(users, lie, alpha / 2.0), _most_of_few(users, 1.0 - truth, alpha / 2.0)
    return (many - users * lie) * scale, (missing - users * (1.0 - truth)) * scale


def _most_of_few(users: int, chance: float, alpha: float) -> int:
    """Return the least count that a binomial one exceeds with probability at most alpha."""
    if chance <= 0.0:
        return 0
    found = math.ceil(min(max(float(special.bdtrik(1.0 - alpha, users, chance)), 0.0), users))
    while found > 0 and special.bdtrc(found - 1, users, chance) <= alpha:
        found -= 1
    while special.bdtrc(found, users, chance) > alpha:
        found += 1
    return found


@lru_cache(maxsize=_NEAR)
def exact_near(users: int, truth: float, lie: float, ones: int, alpha: float) -> tuple[float, float, float]:
    """Return the most acceptable share of a fleet whose answers hardly lie, and the distances down and up to the ends.

    The count is wrong by invented answers and by suppressed ones. Where both are few, the normal law fails although the
    count is large. Every number of devices near the count is tried with its own law.
    """
    expected = (ones - users * lie) / (truth - lie)
    middle = min(max(round(expected), 0), users)
    reach, width = _near(users, truth, lie, middle)
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
    best = int(_most_acceptable(acceptable))
    kept = np.flatnonzero(acceptable > alpha)
    first, last = (kept[0], kept[-1]) if kept.size else (best, best)
    half = 0.5 / users
    centre = devices[best] / users
    return centre, centre - devices[first] / users + half, devices[last] / users + half - centre


def _near(users: int, truth: float, lie: float, middle: int) -> tuple[int, int]:
    """Return how far counts stray from their means, eight standard deviations and more, and devices from `middle`."""
    telling, lying = truth * (1.0 - truth), lie * (1.0 - lie)
    reach = 0
    while True:
        width = math.ceil(reach / (truth - lie))
        most = (max(middle - width, 0), min(middle + width, users))
        variance = max(having * telling + (users - having) * lying for having in most)
        further = math.ceil(8.0 * (math.sqrt(variance) + 1.0) + 10.0)
        if further <= reach:
            return reach, width
        reach = further


def _spread(highest: int) -> Ints:
    """Return whole numbers from 0 to `highest`: all, or as many as a table has candidates, denser near 0."""
    if highest < _CANDIDATES:
        return np.arange(highest + 1)
    return np.unique(np.rint(np.linspace(0.0, 1.0, _CANDIDATES) ** 2 * highest).astype(np.int64))


def _binomial(counts: Ints | Floats, trials: Floats, chance: Floats) -> Floats:
    """Return binomial probabilities of whole numbers; arrays broadcast; 0 where there are more counts than trials."""
    possible = counts <= trials
    rest = np.where(possible, trials - counts, 0.0)
    log_ways = special.gammaln(trials + 1.0) - special.gammaln(counts + 1.0) - _log_factorial(rest)
    with np.errstate(divide="ignore"):
        # Of a chance of 0 or 1, 0 ln 0 = 0, and anything else is impossible.
        log_chance, log_rest = np.maximum(np.log(chance), -_HUGE), np.maximum(np.log1p(-chance), -_HUGE)
    logs = log_ways + counts * log_chance + rest * log_rest
    return np.where(possible, np.exp(logs), 0.0)


def _log_factorial(numbers: Floats) -> Floats:
    """Return ln n! of whole numbers; of a large array by a table where that is shorter."""
    low, high = int(numbers.min()), int(numbers.max())
    if high - low >= numbers.size:
        return np.asarray(special.gammaln(numbers + 1.0))
    table = special.gammaln(np.arange(low + 1.0, high + 2.0))
    return np.asarray(table[(numbers - low).astype(np.int64)])


def _sum_of_binomials(devices: Ints, users: int, truth: float, lie: float, most: int) -> Floats:
    """Return Pr(count) [number of devices with the value, count 0 ... most]."""
    counts = np.arange(most + 1)
    having = _binomial(counts, devices[:, None].astype(np.float64), np.array(truth))
    others = _binomial(counts, (users - devices[:, None]).astype(np.float64), np.array(lie))
    size = 2 * (most + 1)
    product = np.fft.rfft(having, size, axis=1) * np.fft.rfft(others, size, axis=1)
    return np.asarray(np.maximum(np.fft.irfft(product, size, axis=1)[:, : most + 1], 0.0))


def _most_acceptable(acceptable: Floats) -> Ints:
    """Return the first of the most acceptable candidates; rounding does not choose among equals."""
    return np.asarray(np.argmax(acceptable >= acceptable.max(axis=0) * (1.0 - _TIE), axis=0))


def _acceptability(law: Floats) -> Floats:
    """Return for every candidate and count the probability of outcomes at most as likely in their own tail."""
    below = np.minimum(np.cumsum(law, axis=1), 1.0)
    above = np.minimum(1.0 - below + law, 1.0)
    tail = np.minimum(below, above)
    rows, columns = law.shape
    order = np.argsort(tail, axis=1, kind="stable") + columns * np.arange(rows)[:, None]
    ranked = tail.ravel()[order]
    together = np.cumsum(law.ravel()[order], axis=1)
    # What lies beyond the last count is more extreme than all of the upper side: it belongs to every sum.
    beyond = np.maximum(1.0 - below[:, -1:], 0.0)
    # Equal tails count together: every one of them gets the sum up to the last.
    ends = np.ones(law.shape, dtype=np.bool_)
    ends[:, :-1] = ranked[:, 1:] > ranked[:, :-1] * (1.0 + _TIE)
    if not ends.all():
        last = np.where(ends, np.arange(columns), columns)
        last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
        together = together.ravel()[last + columns * np.arange(rows)[:, None]]
    found = np.empty_like(law)
    found.ravel()[order] = together + beyond
    return found
