"""Defaults that are the best choice, and say why: theta of uRAP, decks of cards."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from estimators.channels.response import EXACT
from estimators.mechanisms.theta import best_thetas, mean_error
from estimators.planning.losses import best_theta, l1_urap
from tests.support.mechanism import Mechanism
from tests.support.mechanism import build as built


def build(name: str, values: list[str], ladder: Sequence[float], **parameters: Any) -> Mechanism:
    return built(name, values, ladder, parameters)


LEVELS = (0.1, 0.5, 1.0, 2.0, 4.0, 8.0)


@pytest.mark.parametrize(("sensitive", "values"), [(1, 2), (1, 50), (5, 50), (50, 50), (76, 400)])
@pytest.mark.parametrize("epsilon", LEVELS)
def test_the_default_theta_is_the_best_one_for_even_shares(sensitive: int, values: int, epsilon: float) -> None:
    """It has no larger expected error than what a search over all thetas finds, and none larger than the paper's."""
    (theta,) = best_thetas([epsilon], sensitive, values)
    even, users = np.full(values, 1 / values), 10_000

    def loss(chosen: float | None) -> float:
        return l1_urap(even, sensitive, epsilon, users, theta=chosen).approximate

    assert loss(float(theta)) <= loss(best_theta(even, sensitive, epsilon, users)) * (1 + 1e-5)
    assert loss(float(theta)) <= loss(None)
    unit = math.sqrt(2 / (users * math.pi)) * values
    assert mean_error(epsilon, theta, sensitive, values) * unit == pytest.approx(loss(float(theta)), rel=1e-9)


@pytest.mark.parametrize("sensitive", [1, 3, 30])
def test_every_ladder_is_possible_with_the_best_thetas(sensitive: int) -> None:
    labels = [str(i) for i in range(30)]
    for ladder in ((0.001, 0.1, 1.0, 20.0), (1.0, 1.0001, 1.001, 1.01), (0.999, 1.0), (4.0, 8.0, 12.0)):
        mechanism = build("urap", labels, ladder, sensitive=labels[:sensitive])
        assert all(cost <= level for cost, level in zip(mechanism.epsilons, ladder, strict=True))
        assert list(mechanism.thetas) == sorted(mechanism.thetas)


def test_the_theta_of_the_paper_and_any_other_can_be_asked_for() -> None:
    ask: dict[str, Any] = {"sensitive": ["a"]}
    papers = build("urap", ["a", "b"], [0.5, 2.0], theta="symmetric", **ask)
    assert papers.thetas == tuple(EXACT.sue(level).truth for level in (0.5, 2.0))
    assert papers.choices() == build("urap", ["a", "b"], [0.5], theta=0.5, **ask).choices() == ()
    (why,) = build("urap", ["a", "b"], [0.5, 2.0], **ask).choices()
    assert "smallest if all values are equally frequent" in why


def test_the_default_deck_is_the_one_with_the_smallest_variance() -> None:
    best = build("christofides", ["no", "yes"], [1.0])
    assert "no middle card" in best.choices()[0]
    warner = math.e / (math.e - 1) ** 2
    spread = {
        middle: build("christofides", ["no", "yes"], [1.0], middle=middle).chain.top.variances([0.7, 0.3], 1)[1]
        for middle in (0.0, 0.01, 0.1, 0.5)
    }
    assert best.chain.top.variances([0.7, 0.3], 1)[1] == pytest.approx(spread[0.0]) == pytest.approx(warner)
    assert list(spread.values()) == sorted(spread.values())
    assert build("christofides", ["no", "yes"], [1.0], middle=0.0).choices() == ()


def test_a_dealt_deck_has_middle_cards_and_says_why() -> None:
    dealt = build("improved_christofides", ["no", "yes"], [1.0])
    assert "whether the number of yes is odd" in dealt.choices()[0]
    assert dealt.cards[1] == 10
    assert build("improved_christofides", ["no", "yes"], [1.0], middle=0.01).choices() == ()
