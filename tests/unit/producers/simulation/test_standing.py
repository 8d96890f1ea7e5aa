"""Simulated people with standing values: their answers stay until their value changes, whoever takes part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from estimators.simulation.simulator import simulator_of
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.simulation.standing import PERIOD, spans_of
from producers.survey.survey import load_survey
from tests.support.paths import ROOT
from tests.support.surveys import survey

DEVICES = 400


@pytest.mark.parametrize("name", ["", "oue", "mean", "k_randomization", "rappor"])
def test_answers_are_repeated_until_the_value_changes(name: str) -> None:
    asked = load_survey(ROOT / "deploy" / "surveys" / f"{name}.toml") if name else survey()
    asked = replace(asked, standing=True)
    shares = falling_shares(simulator_of(asked.mechanism).kinds)
    plan = Plan(asked, DEVICES, scenario_named("standing"), 3, shares, 0)
    step, copies = asked.windows.step_ms, asked.mechanism.copies
    before, after = BlockWindow(plan, 0, 0), BlockWindow(plan, step, 0)
    moved = spans_of(asked.id, 3, 0, DEVICES, 0) != spans_of(asked.id, 3, 0, DEVICES, 1)
    same = np.array([now == then for now, then in zip(after.values, before.values, strict=True)])
    assert 0 < moved.sum() < 3 * DEVICES / PERIOD
    assert same[~moved].all()
    assert not same.all()
    rows = np.repeat(same, copies)
    assert np.array_equal(before.answers[:, rows], after.answers[:, rows])
    assert np.array_equal(before.groups[rows], after.groups[rows])
    assert not np.array_equal(before.answers, after.answers)
    assert not (before.tokens == after.tokens).all(axis=1).any(), "tokens are those of the window"
    later = BlockWindow(plan, 7 * PERIOD * step, 0)
    back = np.array([now == then for now, then in zip(later.values, before.values, strict=True)])
    assert back.any()
    rows = np.repeat(back, copies)
    if name in ("", "oue", "rappor"):  # where a kind of value is one value
        assert np.array_equal(before.answers[:, rows], later.answers[:, rows]), "it is the same value"
    churning = replace(plan, scenario=scenario_named("churn"))
    some = BlockWindow(churning, step, 0)
    assert 0 < some.size < DEVICES
    assert BlockWindow(plan, step, 0).answers.tobytes() == after.answers.tobytes()
