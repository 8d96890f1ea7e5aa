"""Which mechanism has the smallest error for given values, sensitive ones among them, and a level?

The error of a mechanism is the mean absolute error of a value's share when the users are drawn from the expected
shares: the expected l1 loss of its linear estimate over the number of values. Sensitive values come first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from estimators.channels.channel import Channel
from estimators.channels.decks import Deck, DeckError
from estimators.channels.response import Response
from estimators.inference.crowd_delta import failure_chance
from estimators.mechanisms.christofides import Christofides
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.three_element import DoubleDagger
from estimators.planning import losses
from estimators.planning.widths import deviation

Floats = NDArray[np.float64]

Protects = Literal["all values", "sensitive values", "one answer", "totals"]
"""all values: local privacy. sensitive values: other values may be revealed. one answer: a dealt card, seen alone.
totals: what is published of a crowd, not what a collector sees."""

MIDDLE = 0.01
"""Share of middle cards, the default of the mechanisms with cards."""
LEVELS = (0.1, 8.0)
"""Levels between which mechanisms are compared."""
COPIES = (1, 2, 4, 8, 16, 32, 64)
_HALVINGS = 40
_TWO, _THREE = ("no", "yes"), ("none", "plus", "minus")


@dataclass(frozen=True)
class Domain:
    """What is asked: expected shares, sensitive values first, how many are sensitive, and how many users answer."""

    shares: tuple[float, ...]
    sensitive: int
    users: int

    def __post_init__(self) -> None:
        if len(self.shares) < 2:
            raise ValueError(f"a question needs at least two values; got {len(self.shares)}")
        if not 1 <= self.sensitive <= len(self.shares):
            raise ValueError(f"sensitive values must be 1 to {len(self.shares)}; got {self.sensitive}")

    @property
    def size(self) -> int:
        """Number of values."""
        return len(self.shares)

    @property
    def counting(self) -> float:
        """The error of plain counting without privacy: no mechanism gets below it."""
        return float(losses.normal_mean_deviation(self.users, self.shares).sum()) / self.users / self.size


@dataclass(frozen=True)
class Contender:
    """One mechanism as a survey file names it, its parameters, and its error by level; None where it cannot be had."""

    mechanism: str
    parameters: str
    protects: Protects
    error: Callable[[float], float | None]


@dataclass(frozen=True)
class Crossing:
    """The level at which two mechanisms are equal; `above` is better at higher levels."""

    epsilon: float
    below: str
    above: str


def contenders(domain: Domain) -> tuple[Contender, ...]:
    """Return the mechanisms that can ask the question, those that protect all values first."""
    p, m, s, n = domain.shares, domain.size, domain.sensitive, domain.users

    def mean(loss: losses.L1Loss) -> float:
        return loss.approximate / m

    found = [
        Contender("grr", "", "all values", lambda level: mean(losses.l1_urr(p, m, level, n))),
        Contender("sue", "", "all values", lambda level: mean(losses.l1_urap(p, m, level, n))),
        Contender("oue", "", "all values", lambda level: mean(losses.l1_urap(p, m, level, n, theta=0.5))),
    ]
    if m == 2:
        found.append(Contender("christofides", f"middle = {MIDDLE:g}", "all values", lambda e: _drawn(domain, e)))
    if m == 3:
        found.append(Contender("rr3_ddagger", "", "all values", lambda level: _three_elements(domain, level)))
    protects: Protects = "sensitive values" if s < m else "all values"
    if s < m:
        found.append(Contender("urr", "", protects, lambda level: mean(losses.l1_urr(p, s, level, n))))
        found.append(Contender("urap", "", protects, lambda level: mean(losses.l1_urap(p, s, level, n))))
    found.append(Contender("urap", "best theta", protects, lambda level: _best_urap(domain, level)))
    if m == 2:
        named = f"middle = {MIDDLE:g}"
        found.append(Contender("improved_christofides", named, "one answer", lambda level: _dealt(domain, level)))
    found.append(Contender("k_randomization", "copies = 1", "totals", lambda level: copies_error(domain, level, 1)))
    return tuple(found)


def name_of(contender: Contender) -> str:
    """Return a mechanism with its parameters, as tables and pictures name it."""
    return f"{contender.mechanism}, {contender.parameters}" if contender.parameters else contender.mechanism


def best_theta(domain: Domain, level: float) -> float:
    """Return the theta of uRAP with the smallest error."""
    return losses.best_theta(domain.shares, domain.sensitive, level, domain.users)


def theta_error(domain: Domain, level: float, theta: float) -> float:
    """Return the error of uRAP with this theta."""
    return losses.l1_urap(domain.shares, domain.sensitive, level, domain.users, theta=theta).approximate / domain.size


def _best_urap(domain: Domain, level: float) -> float:
    return theta_error(domain, level, best_theta(domain, level))


def _mean_deviation(variances: Sequence[float] | Floats) -> float:
    """Return the mean absolute error of values with these variances, by the normal law."""
    return math.sqrt(2 / math.pi) * float(np.mean(np.sqrt(variances)))


def _channel_error(domain: Domain, channel: Channel) -> float:
    return _mean_deviation(channel.variances(domain.shares, domain.users, population="sampling"))


def _drawn(domain: Domain, level: float) -> float:
    """Return the error of cards drawn with replacement."""
    return _channel_error(domain, Christofides(_TWO, [level], middle=MIDDLE).chain.channels[0])


def _three_elements(domain: Domain, level: float) -> float:
    return _channel_error(domain, DoubleDagger(_THREE, [level]).chain.channels[0])


def _dealt(domain: Domain, level: float) -> float | None:
    """Return the error of one deck with a card for every user, or None where so few cards cannot give the level."""
    try:
        deck = Deck.for_epsilon(domain.users, level, middle=MIDDLE)
    except DeckError:
        return None
    share = domain.shares[0]
    # Of a deck that is dealt out; then the users are drawn from the population.
    return _mean_deviation([deck.variance(share, domain.users) + share * (1 - share) / domain.users])


@dataclass(frozen=True)
class Copies:
    """K-randomization with k copies: its error, what one record loses to a collector, and how often totals fail."""

    copies: int
    error: float
    local_epsilon: float
    delta: float


def with_copies(domain: Domain, level: float, copies: int) -> Copies:
    """Return what k copies of every record give when the published totals have this level."""
    mechanism = _crowd(domain, level, copies)
    return Copies(copies, copies_error(domain, level, copies), mechanism.epsilons[0], failure_chance(mechanism))


def copies_error(domain: Domain, level: float, copies: int) -> float:
    """Return the error of k-randomization, the users being the smallest crowd."""
    flip = _crowd(domain, level, copies).flip
    noise = deviation(Response.of(1 - flip, flip), 0.0, domain.users * copies) ** 2
    return _mean_deviation([noise + share * (1 - share) / domain.users for share in domain.shares])


def _crowd(domain: Domain, level: float, copies: int) -> KRandomization:
    # A question with two values is one bit.
    labels = domain.size if domain.size > 2 else 1
    return KRandomization([str(i) for i in range(labels)], level, least_records=max(domain.users, 2), copies=copies)


def crossings(compared: Sequence[Contender], points: int = 80) -> list[Crossing]:
    """Return the levels at which two of these mechanisms change places, lowest first.

    Between two points of a grid of levels a pair is taken to cross at most once.
    """
    grid = np.geomspace(*LEVELS, points)
    errors = [[contender.error(float(level)) for level in grid] for contender in compared]
    found = []
    for (one, first), (other, second) in combinations(zip(compared, errors, strict=True), 2):
        for (i, j), (a, b) in zip(pairwise(range(points)), pairwise(zip(first, second, strict=True)), strict=True):
            if None not in (*a, *b) and (_gap(a) < 0) != (_gap(b) < 0):
                better = one if _gap(b) < 0 else other
                level = _root(one, other, float(grid[i]), float(grid[j]))
                worse = other if better is one else one
                found.append(Crossing(level, name_of(worse), name_of(better)))
    return sorted(found, key=lambda crossing: crossing.epsilon)


def _gap(pair: tuple[float | None, float | None]) -> float:
    """Return by how much the first is worse; what differs by rounding alone is equal."""
    first, second = pair
    assert first is not None
    assert second is not None
    return 0.0 if math.isclose(first, second, rel_tol=1e-9) else first - second


def _root(one: Contender, other: Contender, low: float, high: float) -> float:
    at_low = _gap((one.error(low), other.error(low))) < 0
    for _ in range(_HALVINGS):
        middle = math.sqrt(low * high)
        same = (_gap((one.error(middle), other.error(middle))) < 0) == at_low
        low, high = (middle, high) if same else (low, middle)
    return high


@dataclass(frozen=True)
class Compared:
    """One mechanism at the level asked for. error: None where it cannot be had at this level with so few users."""

    mechanism: str
    parameters: str
    protects: Protects
    error: float | None


@dataclass(frozen=True)
class Comparison:
    """The mechanisms for a question at one level.

    best: of those that protect all values. best_sensitive: of those that protect the sensitive values at least.
    theta: the best one of uRAP. gain: by which part it is better than the paper's. copies: k-randomization by k.
    """

    epsilon: float
    counting: float
    rows: tuple[Compared, ...]
    best: str
    best_sensitive: str
    theta: float
    theta_gain: float
    copies: tuple[Copies, ...]
    crossings: tuple[Crossing, ...]


def compare(domain: Domain, epsilon: float) -> Comparison:
    """Compare the mechanisms that can ask a question at one level, and find where they change places."""
    compared = contenders(domain)
    rows = [Compared(c.mechanism, c.parameters, c.protects, c.error(epsilon)) for c in compared]
    named = [(name_of(c), row) for c, row in zip(compared, rows, strict=True)]

    def best(*kinds: Protects) -> str:
        able = [(row.error, name) for name, row in named if row.protects in kinds and row.error is not None]
        return min(able)[1]

    theta = best_theta(domain, epsilon)
    default = losses.l1_urap(domain.shares, domain.sensitive, epsilon, domain.users).approximate / domain.size
    return Comparison(
        epsilon=epsilon,
        counting=domain.counting,
        rows=tuple(rows),
        best=best("all values"),
        best_sensitive=best("all values", "sensitive values"),
        theta=theta,
        # The best theta may be the paper's, found up to the last digits.
        theta_gain=max(1 - theta_error(domain, epsilon, theta) / default, 0.0),
        copies=tuple(with_copies(domain, epsilon, copies) for copies in COPIES),
        crossings=tuple(crossings([c for c in compared if c.protects in ("all values", "sensitive values")])),
    )
