"""Verdicts are computed from the number, the printed number and the correction; nothing else decides."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from estimators.reproduction.laboratory import Laboratory
from estimators.reproduction.results import Correction, Published, Verdict, judge
from streams.reproduction.datasets import PackagedData

ENTRY = Published("x", "Table 9", "a number", [1.0, 2.0], 0.005, "printed", erratum="pan-4", right=[1.0, 2.5])


def verdicts(ours: list[float], entry: Published = ENTRY, error: float = 0.0) -> list[Verdict]:
    notebook = Laboratory({"x": entry}, PackagedData()).notebook()
    notebook.hold("x", ours, error=error)
    return [line.verdict for line in notebook.result().lines]


def test_a_number_is_reproduced_within_its_printed_digits() -> None:
    assert verdicts([1.0049, 1.9951]) == [Verdict.REPRODUCED] * 2
    assert verdicts([1.0051, 1.9949]) == [Verdict.DIFFERS] * 2


def test_a_number_is_explained_only_if_it_is_what_the_correction_says() -> None:
    assert verdicts([1.0, 2.5]) == [Verdict.REPRODUCED, Verdict.EXPLAINED]
    assert verdicts([1.0, 2.4]) == [Verdict.REPRODUCED, Verdict.DIFFERS]


def test_a_simulated_number_may_be_five_standard_errors_away() -> None:
    assert verdicts([1.05, 2.05], error=0.01) == [Verdict.REPRODUCED] * 2
    assert verdicts([1.06, 2.06], error=0.01) == [Verdict.DIFFERS] * 2


def test_a_recomputation_agrees_but_reproduces_nothing() -> None:
    assert verdicts([1.0, 2.0], replace(ENTRY, kind="recomputed")) == [Verdict.AGREES] * 2


def test_a_claim_is_true_or_false() -> None:
    assert judge(True, True, 0.0) is Verdict.REPRODUCED
    assert judge(False, True, 0.0) is Verdict.DIFFERS
    assert judge(False, True, 0.0, right=Correction(False, 0.0)) is Verdict.EXPLAINED
    assert judge(math.inf, math.inf, 0.0) is Verdict.REPRODUCED


def test_numbers_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        verdicts([1.0])


def test_generators_depend_on_seed_and_name_alone() -> None:
    first, other = (Laboratory({}, PackagedData(), seed=seed) for seed in (1, 2))
    first.generator("b").random(5)
    draws = [laboratory.generator(name).random() for laboratory in (first, other) for name in ("a", "b")]
    assert len(set(draws)) == 4
    assert draws[0] == Laboratory({}, PackagedData(), seed=1).generator("a").random()
    assert np.isfinite(draws).all()
