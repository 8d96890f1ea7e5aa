"""Lying devices: no answer moves an estimate further than its score, and the loudest answer does move it that far."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.channels.response import REAL
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.unary import OUE, SUE
from estimators.planning.poisoning import Influence, furthest_shift, influence
from estimators.simulation.tallies import trial_tally
from estimators.tally import Tally
from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.support.mechanism import whole

LABELS = ["a", "b", "c", "d"]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize(
    ("mechanism", "chances"),
    [
        (GRR, lambda epsilon: REAL.grr(epsilon, 4)),
        (OUE, REAL.oue),
        (SUE, REAL.sue),
    ],
    ids=["grr", "oue", "sue"],
)
def test_scores_are_those_of_the_inverted_channel(mechanism, chances, epsilon: float) -> None:  # type: ignore[no-untyped-def]
    known = chances(epsilon)
    found = influence(mechanism.build(LABELS, [epsilon], {}), 0)
    assert found.highest == pytest.approx([(1 - known.lie) / known.slope] * 4, rel=1e-6)
    assert found.lowest == pytest.approx([-known.lie / known.slope] * 4, rel=1e-6)
    assert found.loudest == pytest.approx((1 - known.lie) / known.slope, rel=1e-6)


def test_the_more_private_the_level_the_louder_each_liar() -> None:
    mechanism = GRR(LABELS, [0.5, 1.0, 2.0])
    assert influence(mechanism, 0).loudest > influence(mechanism, 1).loudest > influence(mechanism, 2).loudest > 1


def test_liars_move_an_estimate_exactly_as_far_as_the_formula_says() -> None:
    mechanism, attackers = whole(GRR(LABELS, [1.0])), 500
    honest = trial_tally(mechanism.specification, 0)
    lies = Tally.empty(1, 1, 4)
    lies.counts[0, 0, 2], lies.users[0, 0] = attackers, attackers
    before, after = mechanism.estimate(honest).value, mechanism.estimate(honest + lies).value
    down, up = influence(mechanism.specification, 0).shift(before, attackers, honest.total_users + attackers)
    assert after[2] - before[2] == pytest.approx(up[2], rel=1e-9)
    assert after[0] - before[0] == pytest.approx(down[0], rel=1e-9)


def test_few_liars_ahead_of_the_others_move_a_pooled_estimate_no_further_than_said() -> None:
    mechanism = whole(GRR(LABELS, [0.5, 2.0]))
    honest = trial_tally(mechanism.specification, 0)
    before = mechanism.estimate(honest).value
    told = influence(mechanism.specification, 0, attackers_rung=1)
    for attackers in (1, 5, 20, 200, 2_000):
        lies = Tally.empty(2, 1, 4)
        lies.counts[1, 0, 2], lies.users[1, 0] = attackers, attackers
        moved = (mechanism.estimate(honest + lies).value - before)[2]
        _, up = told.shift(before, attackers, honest.total_users + attackers)
        assert 0 < moved <= up[2] * (1 + 1e-9)
        if attackers == 1:
            assert moved == pytest.approx(up[2], rel=1e-9)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_no_answer_of_any_mechanism_is_louder_than_said(example: Example) -> None:
    mechanism = example.build()
    rung = mechanism.rungs - 1
    told = influence(mechanism.specification, rung)
    assert math.isfinite(told.loudest)
    assert told.loudest > 0
    honest, rng = trial_tally(mechanism.specification, rung), np.random.default_rng(1)
    before = mechanism.estimate(honest).value
    for _ in range(40):
        lie = Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells)
        group = int(rng.integers(min(mechanism.groups, 4)))
        if mechanism.answer.kind == "index":
            cells = [int(rng.integers(mechanism.answer.size))]
            if not mechanism.valid(np.array(cells))[0]:
                continue
        else:
            ones = rng.random(mechanism.answer.size) < rng.choice([0.05, 0.5, 0.95])
            if not mechanism.valid(np.packbits(ones[None, :], axis=1, bitorder="little"))[0]:
                continue
            cells = np.flatnonzero(ones).tolist()
        lie.users[rung, group], lie.counts[rung, group, cells] = 1, 1
        after = mechanism.estimate(honest + lie).value
        score = (honest.total_users + 1) * after - honest.total_users * before
        slack = 1e-3 * (1 + told.loudest)
        assert (np.isnan(score) | (score <= told.highest + slack)).all()
        assert (np.isnan(score) | (score >= told.lowest - slack)).all()


def test_more_liars_than_devices_are_refused() -> None:
    told = Influence(("a",), np.array([2.0]), np.array([-1.0]), np.array([True]))
    with pytest.raises(ValueError, match="got 11 of 10"):
        told.shift(0.5, 11, 10)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_one_honest_device_can_be_planned_for(example: Example) -> None:
    mechanism = example.build().specification
    shift = furthest_shift(mechanism, 0, attackers_rung=0, users=1, attackers=1)
    assert math.isnan(shift) or shift >= 0
