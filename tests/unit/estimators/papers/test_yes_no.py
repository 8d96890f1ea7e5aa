"""Closed forms of yes-or-no surveys against enumeration, each other, and the printed tables."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from estimators.channels import decks, rows
from estimators.channels.decks import Deck
from estimators.papers import yes_no
from estimators.tally import Tally
from tests.support.mechanism import build


def enumerated(rows: rows.Rows, answers: list[float], ones: int, total: int) -> tuple[float, float]:
    """Mean and variance of the sum of answers[y] over a fixed population, by the law of each person."""
    means = [sum(p * a for p, a in zip(row, answers, strict=True)) for row in rows]
    squares = [sum(p * a * a for p, a in zip(row, answers, strict=True)) for row in rows]
    people = [total - ones, ones]
    mean = sum(n * m for n, m in zip(people, means, strict=True))
    return mean, sum(n * (s - m * m) for n, m, s in zip(people, means, squares, strict=True))


@pytest.mark.parametrize("ones", [0, 3, 10])
def test_shares_are_unbiased_and_scatter_as_stated(ones: int) -> None:
    total, pi = 10, ones / 10
    rows = yes_no.warner_rows(0.3)
    mean, variance = enumerated(rows, [0.0, 1.0], ones, total)
    assert (mean / total - 0.7) / (2 * 0.3 - 1) == pytest.approx(pi)
    assert variance / (total * (2 * 0.3 - 1)) ** 2 == pytest.approx(yes_no.warner_variance(total, 0.3))
    rows = yes_no.simmons_rows(0.6, 0.3)
    mean, variance = enumerated(rows, [0.0, 1.0], ones, total)
    assert (mean / total - 0.4 * 0.3) / 0.6 == pytest.approx(pi)
    assert variance / (total * 0.6) ** 2 == pytest.approx(yes_no.simmons_variance(pi, total, 0.6, 0.3))
    cards = decks.describe_cards([0.3, 0.05, 0.05, 0.2, 0.4])
    mean, variance = enumerated(cards.rows, [1.0, 2.0, 3.0, 4.0, 5.0], ones, total)
    assert (mean / total - cards.mean) / cards.delta == pytest.approx(pi)
    assert variance / (total * cards.delta) ** 2 == pytest.approx(yes_no.christofides_variance(total, cards))


def test_an_attribute_in_place_of_a_coin_gives_answers_away() -> None:
    # Pr(no | yes, attribute yes) is 0 and Pr(no | no, attribute yes) is p.
    assert rows.loss_of_rows(((0.6, 0.4), (0.0, 1.0))) == math.inf


@pytest.mark.parametrize(("total", "epsilon", "middle"), [(100, 1.0, 0.5), (9, 0.5, 0.36), (1000, 0.3, 0.01)])
def test_variances_cross_where_the_formulas_say(total: int, epsilon: float, middle: float) -> None:
    found = yes_no.crossings(total, epsilon, middle)
    for pi in (found.warner_low, found.warner_high):
        dealt = yes_no.dealt_card_variance(pi, total, epsilon, middle)
        assert dealt == pytest.approx(yes_no.best_warner_variance(total, epsilon))
        assert yes_no.dealt_minus_warner(pi, total, epsilon, middle) == pytest.approx(0.0, abs=1e-12)
    for pi in (found.drawn_low, found.drawn_high):
        assert yes_no.dealt_to_drawn_ratio(pi, total) == pytest.approx(1.0)
    for pi in np.linspace(0.01, 0.99, 23).tolist():
        gap = yes_no.dealt_card_variance(pi, total, epsilon, middle) - yes_no.best_warner_variance(total, epsilon)
        assert yes_no.dealt_minus_warner(pi, total, epsilon, middle) == pytest.approx(gap)
        ratio = yes_no.dealt_card_variance(pi, total, epsilon, middle)
        ratio /= yes_no.three_card_variance(total, epsilon, middle)
        assert yes_no.dealt_to_drawn_ratio(pi, total) == pytest.approx(ratio)


def test_sample_sizes_are_the_smallest_that_suffice() -> None:
    pi, variance, epsilon, middle = 0.1, 0.003, 0.7, 0.05
    found = yes_no.sample_sizes(pi, variance, epsilon, middle)
    cases: list[tuple[int, Callable[[int], float]]] = [
        (found.warner, lambda n: yes_no.best_warner_variance(n, epsilon)),
        (found.drawn_cards, lambda n: yes_no.three_card_variance(n, epsilon, middle)),
        (found.dealt_cards, lambda n: yes_no.dealt_card_variance(pi, n, epsilon, middle)),
    ]
    for size, of in cases:
        assert of(size) <= variance < of(size - 1)


@pytest.mark.parametrize(
    ("low", "epsilon", "warner", "drawn", "dealt"),
    [
        (22, 0.241, 0.1711, 0.3447, 0.1254),
        (19, 0.490, 0.0409, 0.0843, 0.0307),
        (13, 1.046, 0.00835, 0.0192, 0.00698),
        (10, 1.386, 0.00444, 0.01139, 0.00414),
        (5, 2.197, 0.00141, 0.00531, 0.00193),
    ],
)
def test_the_figures_of_the_paper_with_whole_cards(
    low: int, epsilon: float, warner: float, drawn: float, dealt: float
) -> None:
    # Figure 1: 100 people, 10 of them in the group, half of the cards in the middle.
    deck = Deck((low, 50, 50 - low))
    assert deck.single_answer_epsilon == pytest.approx(epsilon, abs=6e-4)
    assert yes_no.best_warner_variance(100, deck.single_answer_epsilon) == pytest.approx(warner, rel=6e-3)
    assert yes_no.christofides_variance(100, deck.cards) == pytest.approx(drawn, rel=6e-3)
    assert deck.variance(0.1, 100) == pytest.approx(dealt, rel=6e-3)


def test_a_single_rung_gives_the_closed_forms() -> None:
    def estimate(name: str, counts: list[int], parameters: dict[str, object]) -> tuple[float, float, float]:
        mechanism = build(name, ["no", "yes"], [1.2], parameters)
        tally = Tally(np.array([[counts]], dtype=np.int64), np.array([[sum(counts)]], dtype=np.int64))
        found = mechanism.estimate(tally, method="stratified")
        return float(found.value[1]), float(found.variance[1]), mechanism.epsilons[0]

    value, variance, epsilon = estimate("warner", [600, 400], {})
    p = 1 - yes_no.warner_probability(epsilon)
    assert value == pytest.approx(yes_no.warner_share(400, 1000, p))
    assert variance == pytest.approx(yes_no.warner_variance(1000, p))
    value, variance, epsilon = estimate("simmons", [600, 400], {"coin": 0.3})
    p = yes_no.simmons_probability(epsilon, 0.3)
    assert value == pytest.approx(yes_no.simmons_share(400, 1000, p, 0.3))
    assert variance == pytest.approx(yes_no.simmons_variance(value, 1000, p, 0.3))
    value, variance, epsilon = estimate("christofides", [300, 200, 500], {"middle": 0.2})
    cards = decks.describe_cards(yes_no.three_cards(epsilon, 0.2))
    assert value == pytest.approx(yes_no.christofides_share([300, 200, 500], cards))
    assert variance == pytest.approx(yes_no.christofides_variance(1000, cards), rel=1e-2)
