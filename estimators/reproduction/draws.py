"""Counts of answers as random numbers: the law of a whole fleet's tally, without drawing device by device."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.channels.response import REAL

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def people(generator: np.random.Generator, shares: Floats, users: int, runs: int) -> Counts:
    """Return the values of `users` independent people as counts, [run, value]."""
    return generator.multinomial(users, shares / shares.sum(), size=runs)


def told_symbols(generator: np.random.Generator, truth: Counts, epsilon: float, pool: int) -> Counts:
    """Return answer counts of randomized response with lies uniform on the first `pool` values, [run, value].

    Each person keeps the value with the retention probability, otherwise the answer is uniform on the pool: plain
    randomized response if the pool is all values, uRR if it is the sensitive ones.
    """
    kept = generator.binomial(truth, REAL.grr(epsilon, pool).slope)
    rest = truth.sum(axis=-1) - kept.sum(axis=-1)
    lies = generator.multinomial(rest, np.full(pool, 1.0 / pool))
    told = kept.copy()
    told[..., :pool] += lies
    return told


def told_bits(generator: np.random.Generator, truth: Counts, epsilon: float, pool: int) -> Counts:
    """Return counts of set bits of uRAP with the default theta, [run, value]; RAPPOR if the pool is all values."""
    bits = REAL.urap(epsilon)
    users = truth.sum(axis=-1, keepdims=True)
    told = np.empty_like(truth)
    own, other = truth[..., :pool], truth[..., pool:]
    told[..., :pool] = generator.binomial(own, bits.sensitive.truth)
    told[..., :pool] += generator.binomial(users - own, bits.sensitive.lie)
    told[..., pool:] = generator.binomial(other, bits.other.truth)
    return told


def told_rows(generator: np.random.Generator, truth: Counts, rows: Floats) -> Counts:
    """Return answer counts of any channel given as rows, for counts of true values [run, value]."""
    parts = [generator.multinomial(truth[..., value], row) for value, row in enumerate(rows)]
    return np.asarray(sum(parts), dtype=np.int64)
