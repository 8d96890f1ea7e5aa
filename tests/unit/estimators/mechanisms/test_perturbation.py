"""A column of values becomes chains of answers, from a list, numpy or pandas."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.mechanism import ParameterError
from estimators.mechanisms.perturbation import perturb
from estimators.mechanisms.registry import build
from estimators.simulation.simulator import simulator_of
from estimators.simulation.tallies import tally_of
from tests.support.checks import Example
from tests.support.examples import EXAMPLES

VALUES = ("a", "b", "c")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_mechanism_goes_from_a_column_to_estimates(example: Example) -> None:
    specification = build(example.name, example.values, example.ladder, **example.parameters)
    simulator = simulator_of(specification)
    picks = np.arange(600, dtype=np.int64) % simulator.kinds
    people = simulator.simulate(picks, SeededBits(1, "values").words(600))
    drawn = perturb(specification, people, SeededBits(1))
    assert drawn.answers.shape[:2] == (specification.rungs, 600 * specification.copies)
    estimates = estimator_of(specification).estimate(tally_of(specification, drawn))
    assert estimates.labels == specification.labels
    assert np.isfinite(estimates.value).any()


def test_lists_arrays_and_columns_give_the_same_answers() -> None:
    specification = build("oue", VALUES, [0.5, 1.0])
    column = pd.Series(["a", "c", "c", "b"] * 50, index=range(7, 207))
    forms = [column.tolist(), column, column.to_numpy(), column.astype("category"), np.array(column.tolist())]
    first, *others = [perturb(specification, form, SeededBits(1)).answers for form in forms]
    assert all(np.array_equal(first, other) for other in others)


def test_numbers_of_a_column_are_taken_as_they_are() -> None:
    specification = build("mean", ["age"], 8.0, low=0.0, high=100.0)
    for column in (pd.Series([20, 60] * 5_000), np.array([20.0, 60.0] * 5_000)):
        tally = tally_of(specification, perturb(specification, column, SeededBits(1)))
        estimates = estimator_of(specification).estimate(tally, alpha=1e-6)
        assert estimates.lower[0] < 40 < estimates.upper[0]


def test_without_a_source_the_draws_are_secure_and_differ() -> None:
    specification = build("grr", VALUES, 0.5)
    first, second = (perturb(specification, ["a"] * 1_000).answers for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("missing", [None, math.nan, pd.NA, "d", 1])
def test_what_is_not_a_value_is_refused(missing: object) -> None:
    with pytest.raises(ParameterError, match="must be one of"):
        perturb(build("grr", VALUES, 1.0), ["a", missing])


@pytest.mark.parametrize(
    ("arguments", "parameters", "message"),
    [
        (("gr", VALUES, 1.0), {}, "name: must be one of grr, .*; got 'gr'"),
        (("grr", ["a", 1], 1.0), {}, "values: labels are texts; .*; got 1"),
        (("grr", ["a", "b", "a"], 1.0), {}, "values: every value occurs once"),
        (("grr", VALUES, [2.0, 1.0]), {}, "must not fall"),
        (("grr", VALUES, 1.0), {"values": 3}, "values: grr takes no parameters; .*; got 3"),
    ],
)
def test_a_mechanism_that_cannot_be_is_refused_with_a_remedy(
    arguments: tuple[str, list[str], float], parameters: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(*arguments, **parameters)


def test_one_level_is_a_ladder_of_one_rung() -> None:
    assert build("grr", VALUES, 1).ladder == (1.0,)
    assert build("grr", VALUES, np.array([0.5, 1.0])).ladder == (0.5, 1.0)  # type: ignore[arg-type]  # arrays serve


def test_a_rung_that_does_not_exist_is_refused() -> None:
    specification = build("grr", VALUES, [0.5, 1.0])
    drawn = perturb(specification, ["a"] * 10, SeededBits(1))
    assert tally_of(specification, drawn).users.tolist() == [[0], [10]]
    assert tally_of(specification, drawn, 0).users.tolist() == [[10], [0]]
    mixed = np.arange(10) % 2
    assert tally_of(specification, drawn, mixed).users.tolist() == [[5], [5]]
    with pytest.raises(IndexError):
        tally_of(specification, drawn, 2)
