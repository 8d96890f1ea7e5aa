"""Dealt decks: variances and privacy by enumeration of every deal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import combinations, permutations, product

import numpy as np
import pytest

from estimators.channels.decks import Dealer, Deck, DeckError, plan_deck, shuffled
from estimators.exact.randomness import SeededBits
from estimators.inference.decks import estimate_blocks, exact_interval, score_interval, shift_tails
from estimators.mechanism import ParameterError
from estimators.mechanisms.improved_christofides import ImprovedChristofides
from estimators.papers.decks import shift_law, uninformed_log_ratio
from estimators.papers.yes_no import christofides_variance
from tests.support.mechanism import whole
from tests.support.stats import assert_law

SMALL = (Deck((1, 1, 2)), Deck((2, 3)), Deck((1, 0, 2)), Deck((1, 1, 0, 2)), Deck((2, 1, 3)))


def deals(deck: Deck, people: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Every hand that `people` can get from a shuffled deck, with its probability."""
    faces = [face for face, count in enumerate(deck.counts, 1) for _ in range(count)]
    hands = Counter(permutations(faces, people))
    total = sum(hands.values())
    return ((hand, Fraction(number, total)) for hand, number in hands.items())


def answers_of(deck: Deck, hand: Sequence[int], values: Sequence[int]) -> tuple[int, ...]:
    return tuple(deck.faces + 1 - card if value else card for card, value in zip(hand, values, strict=True))


def counts_of(deck: Deck, answers: Sequence[int]) -> list[int]:
    return [answers.count(face) for face in range(1, deck.faces + 1)]


@pytest.mark.parametrize("deck", SMALL, ids=str)
def test_mean_and_variance_equal_the_enumeration_of_all_deals(deck: Deck) -> None:
    for people in (deck.size, deck.size - 1, 2):
        for ones in range(people + 1):
            values = [1] * ones + [0] * (people - ones)
            estimates = [(deck.share(counts_of(deck, answers_of(deck, h, values))), p) for h, p in deals(deck, people)]
            mean = sum(float(p) * e for e, p in estimates)
            variance = sum(float(p) * (e - ones / people) ** 2 for e, p in estimates)
            assert math.isclose(mean, ones / people, abs_tol=1e-12)
            assert math.isclose(variance, deck.variance(ones / people, people), abs_tol=1e-12)


@pytest.mark.parametrize("deck", [Deck((1, 1, 2)), Deck((1, 3)), Deck((1, 2, 2)), Deck((1, 1, 3))], ids=str)
def test_a_collector_who_knows_the_others_reads_all_but_holders_of_the_middle_card(deck: Deck) -> None:
    people = deck.size
    for others in product((0, 1), repeat=people - 1):
        laws: list[Counter[tuple[int, ...]]] = []
        for own in (0, 1):
            law: Counter[tuple[int, ...]] = Counter()
            for hand, chance in deals(deck, people):
                law[answers_of(deck, hand, (own, *others))] += chance  # type: ignore[assignment]  # fractions count
            laws.append(law)
        told = sum(p for answers, p in laws[0].items() if answers not in laws[1])
        assert float(told) == pytest.approx(deck.informed_delta)
        # Where both values are possible they are equally likely: delta is the same at every epsilon.
        assert all(laws[1][answers] == p for answers, p in laws[0].items() if answers in laws[1])
    assert deck.informed_epsilon(people) == math.inf


@pytest.mark.parametrize("deck", [Deck((2, 1, 3)), Deck((3, 4)), Deck((1, 2, 2, 3))], ids=str)
def test_known_cards_of_others_sharpen_one_answer_as_the_formula_says(deck: Deck) -> None:
    faces = [face for face, count in enumerate(deck.counts, 1) for _ in range(count)]
    for known in range(3):
        worst = 1.0
        for seen in set(combinations(faces, known)):
            left = [deck.counts[face - 1] - seen.count(face) for face in range(1, deck.faces + 1)]
            for a, b in zip(left, reversed(left), strict=True):
                worst = max(worst, a / b if b else (math.inf if a else 1.0))
        assert deck.collusion_epsilon(known) == pytest.approx(math.log(worst))


def test_a_larger_deck_protects_against_an_informed_collector_at_a_price() -> None:
    deck = Deck((40, 0, 50))
    assert deck.informed_epsilon(3) == pytest.approx(math.log(50 / 38))
    assert deck.informed_epsilon(41) == math.inf
    assert deck.single_answer_epsilon < deck.informed_epsilon(3)


@pytest.mark.parametrize("deck", [Deck((2, 1, 3)), Deck((3, 4)), Deck((1, 2, 3))], ids=str)
def test_the_law_of_low_answers_equals_enumeration(deck: Deck) -> None:
    for ones in range(deck.size + 1):
        values = [1] * ones + [0] * (deck.size - ones)
        law: Counter[int] = Counter()
        for hand, chance in deals(deck, deck.size):
            low = counts_of(deck, answers_of(deck, hand, values))[0]
            law[low - deck.counts[0]] += chance  # type: ignore[assignment]  # fractions count
        assert dict(law) == {shift: p for shift, p in shift_law(deck, ones).items() if p}
        for shift in range(-deck.size, deck.size + 1):
            below, above = shift_tails(deck, shift)
            assert below[ones] == pytest.approx(float(sum(p for s, p in law.items() if s <= shift)))
            assert above[ones] == pytest.approx(float(sum(p for s, p in law.items() if s >= shift)))


@pytest.mark.parametrize("deck", [Deck((12, 2, 16)), Deck((5, 10)), Deck((7, 6, 7 + 5))], ids=str)
def test_exact_intervals_cover_for_every_number_of_yes(deck: Deck) -> None:
    alpha = 0.1
    low = deck.counts[0]
    spans = {shift: exact_interval(deck, low + shift, alpha) for shift in range(-deck.size, deck.size + 1)}
    for ones in range(deck.size + 1):
        share = ones / deck.size
        held = sum(p for shift, p in shift_law(deck, ones).items() if spans[shift][0] <= share <= spans[shift][1])
        assert float(held) >= 1 - alpha


def test_score_intervals_have_a_width_where_nobody_says_yes() -> None:
    deck = Deck((380, 10, 610))
    terms = deck.variance_terms(1000)
    lower, upper = score_interval(0.0, *terms, 1.96)
    assert lower == 0.0
    assert 0.0 < upper < 0.1
    assert (0.0 - upper) ** 2 == pytest.approx(1.96**2 * deck.variance(upper, 1000))
    assert score_interval(-5.0, *terms, 1.96) == (0.0, 0.0)


def test_all_answers_leave_a_doubt_that_no_epsilon_bounds() -> None:
    deck = Deck((7, 1, 12))
    nominal = deck.single_answer_epsilon
    found = [abs(uninformed_log_ratio(deck, low, 19 - low, 1, 0.1)) for low in range(7, 13)]
    assert max(found) > 2 * nominal
    even = Deck((8, 0, 12))
    assert uninformed_log_ratio(even, 9, 11, 1, 0.5) == pytest.approx(even.single_answer_epsilon)
    with pytest.raises(DeckError, match="cannot come from this deck"):
        uninformed_log_ratio(deck, 10, 10, 1, 0.1)


def test_an_integer_deck_never_costs_more_than_asked_for() -> None:
    for size in (20, 57, 1000, 12_345):
        for epsilon in (0.3, 1.0, 2.5):
            for middle in (0.0, 0.01, 0.36):
                plan = plan_deck(size, epsilon, middle=middle)
                assert sum(plan.counts) == size
                assert plan.cards.epsilon <= epsilon
                low, blank, high = plan.counts
                sharper = Deck((low - 1, blank, high + 1)) if low > 1 else None
                assert sharper is None or sharper.single_answer_epsilon > epsilon


def test_decks_that_cannot_work_are_refused_with_the_reason() -> None:
    with pytest.raises(DeckError, match="use larger blocks or a larger epsilon"):
        Deck.for_epsilon(5, 0.1)
    with pytest.raises(DeckError, match="no share can be estimated"):
        Deck((3, 4, 3))
    with pytest.raises(DeckError, match="at least two faces"):
        Deck((3,))
    with pytest.raises(DeckError, match=r"must be in \[0, 1\)"):
        plan_deck(100, 1.0, middle=1.0)
    with pytest.raises(DeckError, match=r"epsilon must be in \(0, 40\]"):
        plan_deck(100, 0.0)
    with pytest.raises(DeckError, match="can be dealt"):
        Deck((1, 2)).variance_terms(4)
    with pytest.raises(DeckError, match="two or three faces"):
        shift_law(Deck((1, 1, 0, 2)), 1)


def test_the_dealer_hands_out_every_card_once() -> None:
    deck = Deck((3, 1, 6))
    dealer = Dealer(deck, 3, SeededBits(1))
    blocks, faces = (
        np.concatenate(parts) for parts in zip(dealer.deal(4), dealer.deal(21), dealer.deal(5), strict=True)
    )
    for block in range(3):
        assert tuple(np.bincount(faces[blocks == block], minlength=4)[1:]) == deck.counts
    with pytest.raises(DeckError, match="plan more or larger blocks"):
        dealer.deal(1)


@pytest.mark.statistical
def test_every_order_of_a_deck_is_equally_likely() -> None:
    deck, bits = Deck((1, 1, 2)), SeededBits(3)
    seen = Counter(tuple(shuffled(deck, bits).tolist()) for _ in range(20_000))
    assert len(seen) == 12
    assert_law(list(seen.values()), [1 / 12] * 12)


def test_blocks_add_their_variances_and_an_overfull_block_counts_as_several_decks() -> None:
    deck = Deck((38, 1, 61))
    answers = [45, 1, 54]
    one = estimate_blocks(("no", "yes"), deck, np.array([answers]), np.array([100]))
    four = estimate_blocks(("no", "yes"), deck, np.array([answers] * 4), np.array([100] * 4))
    heap = estimate_blocks(("no", "yes"), deck, np.array([[4 * a for a in answers]]), np.array([400]))
    assert one.value[1] == four.value[1] == heap.value[1] == pytest.approx(deck.share(answers))
    assert four.variance[1] == pytest.approx(heap.variance[1])
    assert four.variance[1] < 0.3 * one.variance[1] + 1e-3
    assert heap.notes == ("1 blocks hold more answers than cards: taken as several decks each",)
    half = estimate_blocks(("no", "yes"), deck, np.array([[22, 1, 27]]), np.array([50]))
    middle = float(half.lower[1] + half.upper[1]) / 2
    assert half.variance[1] == pytest.approx(deck.variance(middle, 50))
    sampled = estimate_blocks(("no", "yes"), deck, np.array([answers] * 4), np.array([100] * 4), population="sampling")
    assert sampled.variance[1] > four.variance[1]
    assert christofides_variance(400, deck.cards) > 0


def test_a_person_answers_with_the_card_that_the_dealer_gave() -> None:
    improved = ImprovedChristofides.build(["no", "yes"], [1.0], {"block": 10, "blocks": 4})
    mechanism = whole(improved)
    dealt = [{"value": "yes", "block": 3, "card": 1}, {"value": "no", "block": 2, "card": 3}]
    drawn = mechanism.draw(mechanism.encode(dealt, SeededBits(1)), SeededBits(1))
    assert drawn.answers.tolist() == [[2, 2]]
    assert drawn.groups.tolist() == [3, 2]
    assert mechanism.truth(dealt).tolist() == [0.5, 0.5]
    assert mechanism.epsilons == (math.inf,)
    assert not mechanism.guarantee.local
    table = {attacker.sees: attacker for attacker in improved.attackers(known_cards=(1, 3, 100))}
    informed = table["all answers and all other people's values"]
    assert (informed.epsilon, informed.delta) == (0.0, mechanism.deck.informed_delta)
    assert table["one answer and the cards of 100 other people"].epsilon == math.inf
    assert table["one answer and the cards of 3 other people"].epsilon == mechanism.deck.collusion_epsilon(3)
    assert table["the published counts alone"].learns == "whether the number of yes is odd"
    single = mechanism.deck.single_answer_epsilon
    assert table["one answer and the composition of the deck"].learns == f"epsilon {single:.4g}"
    assert table["one answer and the composition of the deck"].epsilon == single


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("yes", "one person cannot deal a deck"),
        ({"value": "yes", "block": 4, "card": 1}, "must be a block from 0 to 3"),
        ({"value": "yes", "block": 0, "card": 4}, "must be a face of the deck"),
        ({"value": "maybe", "block": 0, "card": 1}, "must be one of the survey's 2 values"),
        ({"value": "yes", "card": 1}, "must have the entries value, block and card"),
    ],
)
def test_values_without_a_proper_card_are_refused(value: object, message: str) -> None:
    mechanism = whole(ImprovedChristofides.build(["no", "yes"], [1.0], {"block": 10, "blocks": 4}))
    with pytest.raises(ParameterError, match=message):
        mechanism.encode([value], SeededBits(1))


@pytest.mark.parametrize(
    ("ladder", "parameters", "message"),
    [
        ([0.5, 1.0], {}, "One level only"),
        ([0.01], {"block": 20}, "use larger blocks"),
        ([1.0], {"cards": [1, 9]}, "costs 2.197"),
        ([1.0], {"cards": [4, 6], "block": 10}, "the cards already say it"),
        ([1.0], {"cards": [5, 5]}, "balanced deck"),
        ([1.0], {"cards": [0, 5]}, "gives the answer away"),
        ([1.0], {"blocks": 0}, "whole number from 1 to 65536"),
    ],
)
def test_surveys_with_impossible_decks_are_refused(
    ladder: list[float], parameters: dict[str, object], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        ImprovedChristofides.build(["no", "yes"], ladder, parameters)


def test_more_people_than_cards_are_refused() -> None:
    mechanism = whole(ImprovedChristofides.build(["no", "yes"], [1.0], {"block": 10, "blocks": 4}))
    with pytest.raises(ParameterError, match="plan more or larger blocks"):
        mechanism.encode(["yes"] * 41, SeededBits(1))
