"""Channels: exact row-stochastic matrices from true value to answer.

Every probability is an integer over one denominator. The device compares random words with those integers, the
accountant computes epsilon from them, the server inverts them: no probability is derived twice. The product of
two channels is exact too, so the channel of a lower rung is a rational number, not a rounding of one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from estimators.channels.moments import dense_covariance, retention_covariance, retention_variances
from estimators.channels.response import Response
from estimators.estimates import Population
from estimators.exact.randomness import Bits, below
from estimators.exact.rounding import GRID, exp_decimal, log_ratio_up, scaled_ceil, scaled_floor

Indices = NDArray[np.int64]
Floats = NDArray[np.float64]

MAX_EPSILON = 40.0
"""Beyond this a 2**64 grid cannot tell a lie from 'never': such a channel would claim privacy that it does not have."""


class ChannelError(ValueError):
    """A channel cannot be built from these numbers; the message says what to do."""


@dataclass(frozen=True)
class UtilityOptimized:
    """Answers in `protected` cost at most epsilon; every other one gives away a value that is not sensitive."""

    sensitive: frozenset[int]
    protected: frozenset[int]
    epsilon: float


class Channel(ABC):
    """A row-stochastic matrix with integer numerators over one denominator; rows are true values, columns answers."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """Number of true values."""

    @property
    @abstractmethod
    def outputs(self) -> int:
        """Number of answers."""

    @property
    @abstractmethod
    def denominator(self) -> int:
        """What every numerator is divided by."""

    @abstractmethod
    def row(self, value: int) -> tuple[int, ...]:
        """Return the numerators of Pr(answer | value), one per answer."""

    def entry(self, value: int, answer: int) -> int:
        """Return the numerator of Pr(answer | value)."""
        return self.row(value)[answer]

    @abstractmethod
    def sample(self, values: Indices, bits: Bits) -> Indices:
        """Draw one answer per value. Only channels on the 2**64 grid can be drawn from."""

    @abstractmethod
    def canonical(self) -> dict[str, Any]:
        """Return everything that decoding depends on, as JSON-able data with integers as decimal strings."""

    @property
    def epsilon(self) -> float:
        """Exact local privacy loss max_y ln(max_x Q(y|x) / min_x Q(y|x)), rounded up."""
        columns = list(zip(*(self.row(value) for value in range(self.inputs)), strict=True))
        return max(log_ratio_up(max(column), min(column)) for column in columns if max(column) > 0)

    @cached_property
    def matrix(self) -> Floats:
        """The channel as floats, shape (inputs, outputs)."""
        denominator = self.denominator
        return np.array([[entry / denominator for entry in self.row(x)] for x in range(self.inputs)], dtype=np.float64)

    @cached_property
    def inverse(self) -> Floats:
        """The matrix that takes answer shares to unbiased value shares (row vectors), shape (outputs, inputs).

        The pseudo-inverse where there are more answers than values. Refused where the answers do not determine the
        shares.
        """
        if np.linalg.matrix_rank(self.matrix) < self.inputs:
            raise ChannelError("the answers of this channel do not determine the shares of the values; raise epsilon")
        square = self.inputs == self.outputs
        return np.asarray(np.linalg.inv(self.matrix) if square else np.linalg.pinv(self.matrix))

    def unbias(self, counts: ArrayLike, users: int) -> Floats:
        """Return unbiased shares of the values from the counts of the answers; they sum to 1 and may leave [0, 1]."""
        return np.asarray(np.asarray(counts, dtype=np.float64) / users @ self.inverse)

    def covariance(self, shares: ArrayLike, users: int, *, population: Population = "fleet") -> Floats:
        """Return the covariance of `unbias` for `users` people with these true shares, shape (inputs, inputs)."""
        return dense_covariance(self.matrix, self.inverse, shares, users, population=population)

    def variances(self, shares: ArrayLike, users: int, *, population: Population = "fleet") -> Floats:
        """Return the diagonal of `covariance`."""
        return np.asarray(np.diagonal(self.covariance(shares, users, population=population)))

    def utility_optimized(self, sensitive: Collection[int]) -> UtilityOptimized:
        """Return the guarantee of Murakami & Kawamoto for these sensitive values, with the largest protected set.

        An answer outside the protected set may come from one value only, which must not be sensitive.
        """
        columns = list(zip(*(self.row(value) for value in range(self.inputs)), strict=True))
        sources = [[x for x, entry in enumerate(column) if entry] for column in columns]
        revealing = {y for y, xs in enumerate(sources) if len(xs) == 1 and xs[0] not in sensitive and self.inputs > 1}
        protected = tuple(y for y in range(self.outputs) if y not in revealing)
        worst = [log_ratio_up(max(columns[y]), min(columns[y])) for y in protected if max(columns[y]) > 0]
        return UtilityOptimized(frozenset(sensitive), frozenset(protected), max(worst, default=0.0))

    def then(self, kernel: Channel) -> Channel:
        """Return the exact product: this channel followed by `kernel`."""
        if self.outputs != kernel.inputs:
            raise ChannelError(f"cannot follow {self.outputs} answers by a kernel on {kernel.inputs} inputs")
        kernel_rows = [kernel.row(y) for y in range(kernel.inputs)]
        rows = [
            tuple(sum(a * kernel_rows[y][z] for y, a in enumerate(self.row(x))) for z in range(kernel.outputs))
            for x in range(self.inputs)
        ]
        return DenseChannel(tuple(rows))


@dataclass(frozen=True, eq=True)
class DenseChannel(Channel):
    """Any small channel, given by its integer rows; all rows have the same sum, which is the denominator."""

    rows: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        if not self.rows or not self.rows[0]:
            raise ChannelError("a channel needs at least one value and one answer")
        if any(len(row) != len(self.rows[0]) for row in self.rows):
            raise ChannelError("all rows of a channel need the same number of answers")
        if any(entry < 0 for row in self.rows for entry in row):
            raise ChannelError("probabilities cannot be negative")
        if len({sum(row) for row in self.rows}) != 1 or sum(self.rows[0]) == 0:
            raise ChannelError("all rows of a channel must sum to the same positive denominator")

    @property
    def inputs(self) -> int:
        """Number of true values."""
        return len(self.rows)

    @property
    def outputs(self) -> int:
        """Number of answers."""
        return len(self.rows[0])

    @property
    def denominator(self) -> int:
        """Sum of every row."""
        return sum(self.rows[0])

    def row(self, value: int) -> tuple[int, ...]:
        """Return the numerators of Pr(answer | value)."""
        return self.rows[value]

    @cached_property
    def _last_words(self) -> NDArray[np.uint64]:
        if self.denominator > GRID:
            raise ChannelError("this channel is a product; draw from the top channel and its kernels instead")
        edges = [np.cumsum(np.array(row, dtype=object)) for row in self.rows]
        return np.array([[max(int(edge) - 1, 0) for edge in row] for row in edges], dtype=np.uint64)

    def sample(self, values: Indices, bits: Bits) -> Indices:
        """Draw one answer per value: the first answer whose cumulative threshold exceeds the word."""
        last_words = self._last_words
        first = np.array([next(i for i, entry in enumerate(row) if entry) for row in self.rows], dtype=np.int64)
        words = below(self.denominator, len(values), bits)
        answers = (words[:, None] > last_words[values]).sum(axis=1).astype(np.int64)
        return np.asarray(np.maximum(answers, first[values]), dtype=np.int64)

    def canonical(self) -> dict[str, Any]:
        """Return the integer rows."""
        return {"kind": "dense", "rows": [[str(entry) for entry in row] for row in self.rows]}


@dataclass(frozen=True, eq=True)
class RetentionChannel(Channel):
    """Keep the value, or replace it by a uniform draw from the first `pool` values.

    Pr(y | x) = (keep * [y = x] + base * [y < pool]) / denominator, with keep + pool * base = denominator. With
    pool = size it is generalised randomized response; with a smaller pool of sensitive values it is the
    utility-optimised response of Murakami & Kawamoto. The family is closed under products, which makes chains of any
    length O(1) to describe.

    >>> grr = RetentionChannel.for_epsilon(1.0, 4)
    >>> grr.epsilon <= 1.0 and grr.denominator == 2**64
    True
    """

    size: int
    pool: int
    keep: int
    base: int

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ChannelError(f"a channel needs at least one value; got {self.size}")
        if not 0 <= self.pool <= self.size:
            raise ChannelError(f"the pool must hold 0 to {self.size} values; got {self.pool}")
        if self.keep < 0 or self.base < 0 or self.denominator <= 0:
            raise ChannelError(f"keep and base must be non-negative, not both zero; got {self.keep} and {self.base}")

    @classmethod
    def for_epsilon(cls, epsilon: float, size: int, *, pool: int | None = None) -> RetentionChannel:
        """Build the sharpest channel on the 2**64 grid whose exact epsilon is at most `epsilon`, in [0, 40]."""
        pool = size if pool is None else pool
        if not 0.0 <= epsilon <= MAX_EPSILON:
            raise ChannelError(f"epsilon must be in [0, {MAX_EPSILON:g}]; got {epsilon!r}; choose a smaller level")
        if pool == 0 or size == 1:
            return cls(size, pool, GRID, 0)
        if epsilon == 0.0:
            return cls(size, pool, 0, GRID // pool)
        base = scaled_ceil(1, exp_decimal(epsilon) + pool - 1)
        keep = GRID - pool * base
        return cls(size, pool, keep, base) if keep > 0 else cls(size, pool, 0, GRID // pool)

    def kernel_to(self, epsilon: float) -> RetentionChannel:
        """Return the sharpest kernel on the grid that takes this channel's answers to level `epsilon` or below.

        The product self.then(kernel) is the channel of the lower rung, exactly.
        """
        if epsilon > self.pool_epsilon:
            # The level above was rounded down to the grid; a level between the two is this channel itself.
            return RetentionChannel(self.size, self.pool, GRID, 0)
        if self.pool == 0 or self.size == 1:
            return RetentionChannel(self.size, self.pool, GRID, 0)
        if epsilon <= 0.0:
            return RetentionChannel(self.size, self.pool, 0, GRID // self.pool)
        lift = exp_decimal(epsilon) - 1
        keep = scaled_floor(lift * self.denominator, (lift + self.pool) * self.keep)
        base = -(-(GRID - keep) // self.pool)
        keep = GRID - self.pool * base
        if keep <= 0:
            return RetentionChannel(self.size, self.pool, 0, GRID // self.pool)
        return RetentionChannel(self.size, self.pool, keep, base)

    @property
    def inputs(self) -> int:
        """Number of true values."""
        return self.size

    @property
    def outputs(self) -> int:
        """Number of answers."""
        return self.size

    @property
    def denominator(self) -> int:
        """What keep and base are divided by."""
        return self.keep + self.pool * self.base

    def row(self, value: int) -> tuple[int, ...]:
        """Return the numerators of Pr(answer | value)."""
        return tuple(self.entry(value, y) for y in range(self.size))

    def entry(self, value: int, answer: int) -> int:
        """Return the numerator of Pr(answer | value)."""
        return self.keep * (answer == value) + self.base * (answer < self.pool)

    @property
    def pool_epsilon(self) -> float:
        """Exact loss over answers inside the pool, rounded up: the epsilon of the utility-optimised guarantee."""
        if self.size == 1 or self.pool == 0 or self.keep == 0:
            return 0.0
        return log_ratio_up(self.keep + self.base, self.base)

    @property
    def epsilon(self) -> float:
        """Exact local privacy loss, rounded up: infinite where an answer outside the pool gives its value away."""
        return math.inf if self.pool < self.size and self.keep > 0 and self.size > 1 else self.pool_epsilon

    @property
    def truth(self) -> float:
        """Pr(answer = value) for a value inside the pool."""
        return (self.keep + self.base) / self.denominator

    @property
    def lie(self) -> float:
        """Pr(answer = y) for a value other than y, y inside the pool."""
        return self.base / self.denominator

    @property
    def retention(self) -> float:
        """Pr(the value is kept) = truth - lie."""
        return self.keep / self.denominator

    def unbias(self, counts: ArrayLike, users: int) -> Floats:
        """Return unbiased shares in O(size): take away what the pool adds, divide by the retention."""
        self._check_informative()
        shares = np.asarray(counts, dtype=np.float64) / users
        shares[: self.pool] -= self.lie
        return np.asarray(shares / self.retention)

    def covariance(self, shares: ArrayLike, users: int, *, population: Population = "fleet") -> Floats:
        """Return the covariance of `unbias`, in closed form."""
        self._check_informative()
        return retention_covariance(shares, users, self.response, population=population)

    def variances(self, shares: ArrayLike, users: int, *, population: Population = "fleet") -> Floats:
        """Return the diagonal of `covariance` in O(size)."""
        self._check_informative()
        return retention_variances(shares, users, self.response, population=population)

    @cached_property
    def response(self) -> Response[Floats]:
        """Pr(y | y) and Pr(y | x) for every answer y, as floats without cancellation; the slope is the retention."""
        inside = np.arange(self.size) < self.pool
        whole = self.denominator
        lie = np.where(inside, self.base / whole, 0.0)
        truth = np.where(inside, (self.keep + self.base) / whole, self.keep / whole)
        other = np.where(inside, (self.pool - 1) * self.base / whole, self.pool * self.base / whole)
        return Response(truth, lie, np.asarray(self.retention), other)

    def _check_informative(self) -> None:
        if self.keep == 0 and self.size > 1:
            raise ChannelError("a channel with epsilon 0 tells nothing; leave its answers out")

    def then(self, kernel: Channel) -> Channel:
        """Return the exact product; it stays in the family when the kernel has the same pool."""
        if not isinstance(kernel, RetentionChannel) or (kernel.size, kernel.pool) != (self.size, self.pool):
            return super().then(kernel)
        keep = self.keep * kernel.keep
        base = self.base * kernel.denominator + self.keep * kernel.base
        common = math.gcd(keep, base)
        return RetentionChannel(self.size, self.pool, keep // common, base // common)

    def sample(self, values: Indices, bits: Bits) -> Indices:
        """Draw one answer per value with one word each: below `keep` the value stays, above it the word is a lie."""
        if self.denominator > GRID:
            raise ChannelError("this channel is a product; draw from the top channel and its kernels instead")
        if self.base == 0:
            return values.copy()
        words = below(self.denominator, len(values), bits)
        replaced = words >= np.uint64(self.keep)
        lies = (words - np.uint64(self.keep)) // np.uint64(self.base)
        return np.where(replaced, lies.astype(np.int64), values)

    def canonical(self) -> dict[str, Any]:
        """Return size, pool and the two integers."""
        return {
            "kind": "retention",
            "size": self.size,
            "pool": self.pool,
            "keep": str(self.keep),
            "base": str(self.base),
        }


def identity(size: int) -> RetentionChannel:
    """Return the channel that always tells the truth (also the kernel between two equal rungs)."""
    return RetentionChannel(size, size, GRID, 0)


def binary(p: int, q: int, denominator: int = GRID) -> DenseChannel:
    """Return the bit channel with Pr(1|1) = p/denominator and Pr(1|0) = q/denominator."""
    return DenseChannel(((denominator - q, q), (denominator - p, p)))


def from_numerators(rows: Sequence[Sequence[int]]) -> DenseChannel:
    """Return a dense channel from rows of integers."""
    return DenseChannel(tuple(tuple(int(entry) for entry in row) for row in rows))


def one_against_rest(channels: Sequence[Channel]) -> tuple[Floats, Floats] | None:
    """Return Pr(v | v) and Pr(v | not v), arrays [rung, value], if answer v is equally likely under all other values.

    None if it is not: then an answer is no yes/no question about one value.
    """
    if channels[0].inputs != channels[0].outputs or channels[0].inputs < 2:
        return None
    matrices = np.stack([channel.matrix for channel in channels])
    size = matrices.shape[1]
    others = matrices.transpose(0, 2, 1)[:, ~np.eye(size, dtype=np.bool_)].reshape(len(channels), size, size - 1)
    if not np.allclose(others, others[:, :, :1], rtol=1e-12, atol=0.0):
        return None
    return np.diagonal(matrices, axis1=1, axis2=2), others[:, :, 0]
