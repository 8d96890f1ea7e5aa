"""Every experiment, as quickly as it goes: no number differs; and simulations notice a wrong formula."""

from __future__ import annotations

import math

import numpy as np
import pytest

from estimators.reproduction import sensitive_sets
from estimators.reproduction.laboratory import Laboratory
from estimators.reproduction.registry import EXPERIMENTS
from estimators.reproduction.results import Verdict
from streams.reproduction.datasets import PackagedData
from streams.reproduction.published import load_published


@pytest.fixture(scope="module")
def laboratory() -> Laboratory:
    return Laboratory(load_published(), PackagedData(), quick=True)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_number_differs(laboratory: Laboratory, name: str) -> None:
    result = EXPERIMENTS[name].perform(laboratory)
    differing = [line for line in result.lines if line.verdict is Verdict.DIFFERS]
    assert not differing
    assert result.lines
    assert result.charts
    assert not any("left out" in note for note in result.notes), "a data set is missing: run `make setup`"


def test_names_begin_with_the_paper_and_are_in_order() -> None:
    papers = list(dict.fromkeys(name.partition("-")[0] for name in EXPERIMENTS))
    assert papers == ["pan", "kr", "sun", "mw", "mk", "new"]


def test_a_simulation_notices_a_wrong_formula(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    right = sensitive_sets.expected_squared
    monkeypatch.setattr(sensitive_sets, "expected_squared", lambda *given: 1.5 * right(*given))
    result = EXPERIMENTS["mk-fig-11"].perform(laboratory)
    assert result.count(Verdict.DIFFERS) > len(result.lines) / 2


def test_zipf_is_the_stand_in_of_the_recomputed_numbers() -> None:
    assert float(sensitive_sets.CHECK_INS.shares[:15].sum()) == pytest.approx(0.008265, abs=5e-7)
    assert float(sensitive_sets.CENSUS.shares[:76].sum()) == pytest.approx(0.250564, abs=5e-7)
    assert math.isclose(float(np.sum(sensitive_sets.zipf(12_800))), 1)
