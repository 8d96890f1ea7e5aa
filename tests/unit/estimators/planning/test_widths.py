"""Costs are never rounded down; plans hold what they promise; shortcuts cost what they cost."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from estimators.channels.response import REAL
from estimators.papers.pitfalls import adaptive_expectation, averaging_rounds
from estimators.planning.accounting import (
    add_up,
    chain_cost,
    key_value_cost,
    windows_cost,
)
from estimators.planning.widths import (
    best_for_categories,
    binary_pooling,
    deviation,
    epsilon_needed,
    urap_responses,
    users_needed,
    users_to_alarm,
)
from tests.support.mechanism import build


def test_sums_are_rounded_up() -> None:
    costs = [0.1] * 10
    assert Fraction(add_up(costs)) >= sum((Fraction(cost) for cost in costs), Fraction(0))
    assert add_up([]) == 0.0
    assert add_up([0.7]) == 0.7
    assert add_up([1.0, math.inf]) == math.inf
    with pytest.raises(ValueError, match="cannot be negative"):
        add_up([1.0, -0.5])


def test_a_chain_costs_its_highest_released_rung() -> None:
    mechanism = build("grr", ["a", "b", "c"], (0.5, 1.0, 2.0), {})
    assert chain_cost(mechanism.epsilons, []) == 0.0
    assert chain_cost(mechanism.epsilons, [0, 2]) == mechanism.epsilons[2]
    assert windows_cost(mechanism.epsilons, [2, -1, 0]) >= mechanism.epsilons[2] + mechanism.epsilons[0]
    with pytest.raises(ValueError, match="rungs must be between 0 and 2"):
        chain_cost(mechanism.epsilons, [3])


def test_key_value_reports_pay_the_larger_of_two_comparisons() -> None:
    assert key_value_cost(0.0, 2.0) >= 2.0
    assert key_value_cost(1.0, 0.5) >= 1.0 + math.log(2 / (1 + math.exp(-0.5)))


@pytest.mark.parametrize("chances", [REAL.grr(1.0, 5), REAL.oue(1.0), REAL.sue(1.0)])
def test_the_planned_number_of_users_is_just_enough(chances: object) -> None:
    assert hasattr(chances, "truth")
    needed = users_needed(chances, 0.2, 0.01)  # type: ignore[arg-type]
    assert deviation(chances, 0.2, needed) <= 0.01 * (1 + 1e-9)  # type: ignore[arg-type]
    assert deviation(chances, 0.2, needed - 1) > 0.01  # type: ignore[arg-type]


def test_the_planned_level_is_just_enough() -> None:
    level = epsilon_needed(4, 0.3, 1_000, 0.05)
    assert level is not None
    assert deviation(REAL.grr(level, 4), 0.3, 1_000) == pytest.approx(0.05)
    assert epsilon_needed(4, 0.3, 0, 0.05) is None


def test_plans_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="must be positive"):
        users_needed(REAL.grr(1.0, 2), 0.5, 0.0)
    with pytest.raises(ValueError, match="raise epsilon"):
        users_needed(REAL.grr(0.0, 2), 0.5, 0.1)
    with pytest.raises(ValueError, match="strictly between"):
        users_to_alarm(REAL.grr(1.0, 2), 0.5, 1.0, alpha=0.01)
    assert deviation(REAL.grr(1.0, 2), 0.5, 0) == math.inf


def test_few_values_are_for_grr_and_many_for_unary_vectors() -> None:
    for epsilon in (0.5, 1.0, 3.0):
        for values in (2, 5, 20, 100):
            smaller = deviation(REAL.grr(epsilon, values), 0.0, 1) <= deviation(REAL.oue(epsilon), 0.0, 1)
            assert (best_for_categories(epsilon, values) == "grr") == smaller


def test_sensitive_bits_come_first() -> None:
    truth, lie = urap_responses(1.0, 4, 2)
    assert np.all(lie[:2] > 0)
    assert lie[2:].tolist() == [0.0, 0.0]
    assert truth[2] == pytest.approx(1 - math.exp(-0.5))


def test_an_alert_needs_fewer_users_the_farther_the_share_is() -> None:
    near = users_to_alarm(REAL.grr(1.0, 2), 0.35, 0.3, alpha=0.01)
    far = users_to_alarm(REAL.grr(1.0, 2), 0.6, 0.3, alpha=0.01)
    assert near is not None
    assert far is not None
    assert far < near
    assert users_to_alarm(REAL.grr(1.0, 2), 0.3, 0.3, alpha=0.01) is None


def test_pooling_beats_strata_when_levels_are_given_at_random() -> None:
    plan = binary_pooling([1000, 1000, 1000], [0.1, 0.5, 2.0], 0.3)
    assert plan.sampling == pytest.approx(3.56e-4, rel=0.01)
    assert plan.stratified == pytest.approx(1.16e-2, rel=0.01)
    assert plan.fleet < plan.sampling


def test_averaging_rounds_hurts_and_claims_to_help() -> None:
    found = averaging_rounds((0.5, 1.0, 2.0), 100)
    assert found.equal_claimed < found.equal_true
    assert found.weighted_claimed < found.last < found.weighted_true


def test_climbing_by_answer_biases_the_mean() -> None:
    assert adaptive_expectation(0.3, 0.5, 2.0) == pytest.approx(1.2152, abs=1e-4)
