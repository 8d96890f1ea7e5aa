"""Crowd guarantees against brute force over all outcomes."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from estimators.channels import crowd
from estimators.inference import crowd_delta as deltas
from estimators.papers import crowd as crowd_paper


def total_law(bits: list[int], flip: float) -> np.ndarray:
    """Law of the number of ones when each of these bits is flipped with probability `flip`."""
    law = np.zeros(len(bits) + 1)
    for flips in product((0, 1), repeat=len(bits)):
        chance = math.prod(flip if f else 1 - flip for f in flips)
        law[sum(b ^ f for b, f in zip(bits, flips, strict=True))] += chance
    return law


@pytest.mark.parametrize(("records", "copies", "flip", "ratio"), [(4, 2, 0.2, 2.0), (5, 1, 0.1, 1.5), (3, 3, 0.3, 1.2)])
def test_delta_is_the_worst_hockey_stick_over_all_other_records(
    records: int, copies: int, flip: float, ratio: float
) -> None:
    worst = 0.0
    for others in range(records):
        rest = [1] * (copies * others) + [0] * (copies * (records - 1 - others))
        zeros = total_law(rest + [0] * copies, flip)
        one = total_law(rest + [1] * copies, flip)
        worst = max(worst, np.maximum(zeros - ratio * one, 0).sum(), np.maximum(one - ratio * zeros, 0).sum())
    assert deltas.crowd_delta(records, flip, ratio, copies=copies).delta == pytest.approx(worst, rel=1e-10)


@pytest.mark.parametrize(("records", "copies", "labels"), [(3, 1, 2), (2, 2, 3), (4, 1, 1)])
def test_delta_of_several_totals_covers_the_exact_one_and_hardly_exceeds_it(
    records: int, copies: int, labels: int
) -> None:
    flip, ratio = 0.25, 1.5
    worst = 0.0
    for others in range(records):
        rest = [1] * (copies * others) + [0] * (copies * (records - 1 - others))
        zeros = total_law(rest + [0] * copies, flip)
        one = total_law(rest + [1] * copies, flip)
        first = second = 0.0
        for totals in product(range(len(zeros)), repeat=labels):
            p, q = math.prod(zeros[s] for s in totals), math.prod(one[s] for s in totals)
            first, second = first + max(p - ratio * q, 0), second + max(q - ratio * p, 0)
        worst = max(worst, first, second)
    found = deltas.totals_delta(records, flip, ratio, labels=labels, copies=copies).delta
    assert worst <= found + 1e-12
    assert found == pytest.approx(worst, abs=1e-6)


def test_tails_that_are_cut_off_count_as_failure() -> None:
    """With a range of one standard deviation most mass is cut off; the chance must not come out smaller for it."""
    records, flip, ratio = 3_000, 0.3, 1.2
    whole = deltas._delta_given(1_000, records, flip, ratio, 1).delta
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deltas, "_TAIL_SIGMAS", -0.5)
        counts, law, tails = deltas.cut_binomial(records, flip)
        cut = deltas._delta_given(1_000, records, flip, ratio, 1).delta
    assert tails > 1e-3
    assert law.sum() + tails == pytest.approx(1.0, abs=1e-12)
    assert len(counts) < records
    assert whole <= cut


@pytest.mark.parametrize(("records", "bits", "flip", "ratio"), [(3, 2, 0.25, 1.5), (2, 3, 0.3, 2.0), (6, 1, 0.2, 1.3)])
def test_delta_of_vectors_covers_the_exact_one_and_hardly_exceeds_it(
    records: int, bits: int, flip: float, ratio: float
) -> None:
    vectors = list(product((0, 1), repeat=bits))
    empty = {v: math.prod(flip if b else 1 - flip for b in v) for v in vectors}
    full = {v: math.prod(1 - flip if b else flip for b in v) for v in vectors}
    zeros_over_one = one_over_zeros = 0.0
    for outcome in product(vectors, repeat=records):
        zeros = math.prod(empty[v] for v in outcome)
        # Nobody knows which of the shuffled vectors is the full one's.
        one = zeros * sum(full[v] / empty[v] for v in outcome) / records
        zeros_over_one += max(zeros - ratio * one, 0)
        one_over_zeros += max(one - ratio * zeros, 0)
    found = deltas.vector_delta(records, flip, ratio, bits=bits)
    assert zeros_over_one <= found.zeros_over_one + 1e-12
    assert one_over_zeros <= found.one_over_zeros + 1e-12
    assert found.zeros_over_one == pytest.approx(zeros_over_one, abs=2e-5)
    assert found.one_over_zeros == pytest.approx(one_over_zeros, abs=2e-5)


def test_copies_that_cannot_be_linked_fail_less_often_than_one_long_vector() -> None:
    records, copies, bits, flip, ratio = 2, 2, 2, 0.3, 1.5
    vectors = list(product((0, 1), repeat=bits))
    empty = {v: math.prod(flip if b else 1 - flip for b in v) for v in vectors}
    full = {v: math.prod(1 - flip if b else flip for b in v) for v in vectors}
    laws: dict[tuple[tuple[int, ...], ...], tuple[float, float]] = {}
    for outcome in product(vectors, repeat=records * copies):
        zeros = math.prod(empty[v] for v in outcome)
        one = math.prod(full[v] for v in outcome[:copies]) * math.prod(empty[v] for v in outcome[copies:])
        shuffled = tuple(sorted(outcome))
        before = laws.get(shuffled, (0.0, 0.0))
        laws[shuffled] = before[0] + zeros, before[1] + one
    exact = max(
        sum(max(zeros - ratio * one, 0) for zeros, one in laws.values()),
        sum(max(one - ratio * zeros, 0) for zeros, one in laws.values()),
    )
    bound = deltas.vector_delta(records, flip, ratio, bits=copies * bits).delta
    assert exact < bound < 3 * exact


def test_a_vector_of_one_bit_is_a_bit() -> None:
    flip = crowd.flip_probability(1000, 2.0)
    vector, bit = deltas.vector_delta(1000, flip, 2.0, bits=1), crowd_paper.first_record_delta(1000, flip, 2.0)
    assert vector.zeros_over_one == pytest.approx(bit.zeros_over_one, rel=1e-3)


def test_a_large_crowd_is_searched_where_the_worst_case_is() -> None:
    flip = crowd.flip_probability(600, 2.0, copies=2)
    everywhere = deltas.crowd_delta(600, flip, 2.0, copies=2)
    searched = deltas.crowd_delta(600, flip, 2.0, copies=2, exhaustive_records=10)
    assert searched.delta == pytest.approx(everywhere.delta, rel=1e-4)


def test_more_copies_make_the_rule_less_safe_and_the_record_pays_more() -> None:
    one, many = (crowd.flip_probability(1000, 2.0, copies=k) for k in (1, 16))
    assert (
        crowd_paper.first_record_delta(1000, many, 2.0, copies=16).delta
        > 3 * crowd_paper.first_record_delta(1000, one, 2.0).delta
    )
    assert crowd_paper.local_epsilon(many, copies=16) == pytest.approx(25.736, abs=1e-3)


@pytest.mark.parametrize("flip", [0.0, 0.5, 0.7, -1.0])
def test_a_flip_that_hides_nothing_or_everything_is_refused(flip: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1/2"):
        crowd_paper.local_epsilon(flip)


def test_a_ratio_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="must exceed 1"):
        crowd.flip_probability(1000, 1.0)
    with pytest.raises(ValueError, match="must be positive"):
        crowd.flip_probability(0, 2.0)
