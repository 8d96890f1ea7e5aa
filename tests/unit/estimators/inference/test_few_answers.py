"""Bands of dense channels that are no yes/no questions, where answers are few and the normal law is a rough guess."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from estimators.estimates import Method
from estimators.inference.pooling_dense import pool_dense
from tests.support.mechanism import build

USERS = (19, 1)


def all_counts(users: int) -> list[tuple[int, int, int]]:
    return [(a, b, users - a - b) for a in range(users + 1) for b in range(users + 1 - a)]


def chance(counts: tuple[int, ...], law: np.ndarray) -> float:
    ways = math.lgamma(sum(counts) + 1) - sum(math.lgamma(count + 1) for count in counts)
    return math.exp(ways + sum(count * math.log(part) for count, part in zip(counts, law, strict=True)))


@pytest.mark.parametrize("method", ["stratified", "mle"])
def test_twenty_answers_on_two_rungs_are_covered(method: Method) -> None:
    """Exact, over all answers that can come. Without half an answer it was .925, and .905 for the likelihood."""
    channels = build("christofides", ["yes", "no"], (1.0, 4.0), {"middle": 0.2}).chain.channels
    assert channels[0].outputs == 3
    laws = [np.array([0.5, 0.5]) @ channel.matrix for channel in channels]
    covered = 0.0
    for few, one in product(all_counts(USERS[0]), all_counts(USERS[1])):
        found = pool_dense(
            ("yes", "no"), channels, np.array([few, one]), np.array(USERS), method=method, population="sampling"
        )
        if found.lower[0] <= 0.5 <= found.upper[0]:
            covered += chance(few, laws[0]) * chance(one, laws[1])
    assert covered >= 0.935
