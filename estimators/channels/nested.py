"""Retention channels whose protected values become fewer from rung to rung: uRR with a sensitive set that shrinks.

Every rung keeps the value or draws from its own protected values, which come first in the order of answers, those that
stay protected longest before all others. The kernel to a lower rung must draw the values that are protected there
only more often than the others, so its replacement law has steps (retention-replacement with two laws:
K = r I + 1 ((1 - s1) pi1 - r (1 - s2) pi2)', which is possible whenever the pool grows and the level falls).
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from estimators.channels.channel import Channel, ChannelError, Floats, Indices, RetentionChannel
from estimators.channels.moments import retention_covariance, retention_variances
from estimators.channels.response import Response
from estimators.estimates import Population
from estimators.exact.randomness import Bits, below
from estimators.exact.rounding import GRID, exp_decimal, log_ratio_up


@dataclass(frozen=True, eq=True)
class NestedChannel(Channel):
    """Keep the value, or replace it: Pr(y | x) = (keep [y = x] + bases[y]) / denominator.

    steps: (number of values, base) for the first values, the next ones and so on; values after the last step are never
    drawn. The family is closed under products.
    """

    size: int
    keep: int
    steps: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if not 0 < self.pool <= self.size or any(count < 1 or base < 0 for count, base in self.steps):
            raise ChannelError(f"steps must cover 1 to {self.size} values with bases that are not negative")
        if self.keep < 0 or self.denominator <= 0:
            raise ChannelError(f"keep must not be negative, and something must be possible; got {self.keep}")

    @property
    def inputs(self) -> int:
        """Number of true values."""
        return self.size

    @property
    def outputs(self) -> int:
        """Number of answers."""
        return self.size

    @property
    def pool(self) -> int:
        """Number of values that an answer may falsely name: the protected ones."""
        return sum(count for count, _ in self.steps)

    @cached_property
    def denominator(self) -> int:
        """What keep and bases are divided by."""
        return self.keep + sum(count * base for count, base in self.steps)

    @cached_property
    def bases(self) -> tuple[int, ...]:
        """Numerators of drawing each value."""
        drawn = [base for count, base in self.steps for _ in range(count)]
        return (*drawn, *(0,) * (self.size - len(drawn)))

    def row(self, value: int) -> tuple[int, ...]:
        """Return the numerators of Pr(answer | value)."""
        return tuple(base + self.keep * (y == value) for y, base in enumerate(self.bases))

    def entry(self, value: int, answer: int) -> int:
        """Return the numerator of Pr(answer | value)."""
        return self.bases[answer] + self.keep * (answer == value)

    @property
    def pool_epsilon(self) -> float:
        """Exact loss over the protected answers, rounded up."""
        least = min(base for _, base in self.steps)
        return 0.0 if self.keep == 0 else log_ratio_up(self.keep + least, least)

    @property
    def truth(self) -> float:
        """Pr(answer = value) for a protected value, the least of them."""
        return (self.keep + min(base for _, base in self.steps)) / self.denominator

    @property
    def retention(self) -> float:
        """Pr(the value is kept)."""
        return self.keep / self.denominator

    @cached_property
    def response(self) -> Response[Floats]:
        """Pr(y | y) and Pr(y | x) for every answer y, as floats without cancellation."""
        whole = self.denominator
        lie = np.array([base / whole for base in self.bases])
        truth = np.array([(self.keep + base) / whole for base in self.bases])
        miss = np.array([(whole - self.keep - base) / whole for base in self.bases])
        return Response(truth, lie, np.asarray(self.retention), miss)

    def unbias(self, counts: ArrayLike, users: int) -> Floats:
        """Return unbiased shares in O(size): take away what is drawn, divide by the retention."""
        shares = np.asarray(counts, dtype=np.float64) / users
        return np.asarray((shares - self.response.lie) / self.retention)

    def covariance(self, shares: ArrayLike, users: int, *, population: Population = "fleet") -> Floats:
        """Return the covariance of `unbias`, in closed form."""
        return retention_covariance(shares, users, self.response, population=population)

    def variances(self, shares: ArrayLike, users: int, *, population: Population = "fleet") -> Floats:
        """Return the diagonal of `covariance` in O(size)."""
        return retention_variances(shares, users, self.response, population=population)

    def then(self, kernel: Channel) -> Channel:
        """Return the exact product; it stays in the family when the kernel is of it."""
        if isinstance(kernel, NestedChannel) and kernel.size == self.size:
            return self.followed_by(kernel)
        return super().then(kernel)

    def followed_by(self, kernel: NestedChannel) -> NestedChannel:
        """Return the exact product with a kernel of the same family."""
        steps = [
            (count, kernel.keep * mine + self.denominator * theirs)
            for count, mine, theirs in _common(self.steps, kernel.steps)
        ]
        keep = self.keep * kernel.keep
        common = math.gcd(keep, *(base for _, base in steps))
        return NestedChannel(self.size, keep // common, tuple((count, base // common) for count, base in steps))

    def kernel_to(self, epsilon: float, pool: int) -> NestedChannel:
        """Return the kernel that takes this channel's answers to `epsilon` or less over the first `pool` values.

        Keeping is rounded down and drawing up, so that the product never costs more.
        """
        if pool < self.pool:
            raise ChannelError(f"protected values may become fewer from rung to rung, never more; got {pool}")
        growth = Fraction(exp_decimal(epsilon))
        base = 1 / (pool + growth - 1)
        kept = (growth - 1) * base * self.denominator / self.keep
        if kept >= 1:
            kept = Fraction(1)  # the level above was rounded down to the grid
        grown = [(count, base - kept * Fraction(own, self.denominator)) for count, own in self._padded(pool)]
        drawn = tuple((count, max(math.ceil(extra * GRID), 0)) for count, extra in grown)
        keep = min(math.floor(kept * GRID), GRID - sum(count * extra for count, extra in drawn))
        kernel = NestedChannel(self.size, max(keep, 0), drawn)
        if self.followed_by(kernel).pool_epsilon > epsilon:
            raise ChannelError(f"level {epsilon!r} is too close to the level above it; leave one of the two out")
        return kernel

    def _padded(self, pool: int) -> tuple[tuple[int, int], ...]:
        return (*self.steps, (pool - self.pool, 0)) if pool > self.pool else self.steps

    def sample(self, values: Indices, bits: Bits) -> Indices:
        """Draw one answer per value with one word each: below `keep` the value stays, above it the word is a lie."""
        if self.denominator > GRID:
            raise ChannelError("this channel is a product; draw from the top channel and its kernels instead")
        words = below(self.denominator, len(values), bits)
        answers = values.copy()
        first, edge = 0, self.keep
        for count, base in self.steps:
            if base:
                # The last word that still names one of these values: the number after it may not fit a word.
                inside = (words >= np.uint64(edge)) & (words <= np.uint64(edge + count * base - 1))
                lies = (words[inside] - np.uint64(edge)) // np.uint64(base)
                answers[inside] = first + lies.astype(np.int64)
            first, edge = first + count, edge + count * base
        return answers

    def canonical(self) -> dict[str, Any]:
        """Return size, keep and steps."""
        return {
            "kind": "nested",
            "size": self.size,
            "keep": str(self.keep),
            "steps": [[count, str(base)] for count, base in self.steps],
        }


def _common(left: tuple[tuple[int, int], ...], right: tuple[tuple[int, int], ...]) -> list[tuple[int, int, int]]:
    """Return (number of values, base of the left, base of the right) over the steps of both; 0 after the last one."""
    edges = sorted({*itertools.accumulate(c for c, _ in left), *itertools.accumulate(c for c, _ in right)})
    found = []
    for start, end in itertools.pairwise((0, *edges)):
        found.append((end - start, _base_at(left, start), _base_at(right, start)))
    return found


def _base_at(steps: tuple[tuple[int, int], ...], place: int) -> int:
    for count, base in steps:
        if place < count:
            return base
        place -= count
    return 0


Retaining = RetentionChannel | NestedChannel
"""Channels that keep the value or draw another one: what estimates of one symbol need of them is the same."""
