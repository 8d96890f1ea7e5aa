"""Views of an estimate: distributions, labelled, with an honest word on how far from the truth they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from estimators.estimates import Floats, View
from estimators.estimation.registry import estimator_of
from estimators.mechanism import Specification
from estimators.mechanisms.registry import build
from tests.support.examples import EXAMPLES
from tests.support.mechanism import whole
from tests.support.simulate import simulated_tally, simulated_values

WINDOWS = 6


def seen(specification: Specification, values: Sequence[object], seed: int) -> tuple[Floats, tuple[View, ...]]:
    estimator = estimator_of(specification)
    tally = simulated_tally(whole(specification), values, seed)
    found = estimator.estimate(tally, method="stratified")
    return found.value, estimator.views(tally, found)


def test_a_view_is_a_distribution_and_only_shares_that_sum_to_one_have_any() -> None:
    for example in EXAMPLES:
        specification = example.build().specification
        _, views = seen(specification, simulated_values(example.build(), 400, 1), 1)
        assert bool(views) == (example.name not in {"lpp", "pckv_ue", "mean", "rappor", "k_randomization"}), example
        for view in views:
            assert view.shares.sum() == pytest.approx(1.0)
            assert view.shares.min() >= 0
            assert (view.kept is None) == (view.name != "threshold")


def test_the_simulated_distances_are_near_the_real_ones_and_say_which_view_is_closer() -> None:
    values, users = 50, 5_000
    specification = build("sue", [str(i) for i in range(values)], (1.0,))
    weights = 1.0 / np.arange(1, values + 1)
    rng = np.random.default_rng(3)
    real: dict[str, list[float]] = {"": [], "simplex": [], "threshold": []}
    said: dict[str, list[float]] = {"": [], "simplex": [], "threshold": []}
    for seed in range(WINDOWS):
        own = rng.choice(values, size=users, p=weights / weights.sum())
        truth = np.bincount(own, minlength=values) / users
        estimate, views = seen(specification, [str(value) for value in own], seed)
        real[""].append(np.abs(estimate - truth).sum() / 2)
        said[""].append(views[0].unbiased_distance or 0.0)
        for view in views:
            real[view.name].append(np.abs(view.shares - truth).sum() / 2)
            said[view.name].append(view.distance or 0.0)
    for name in real:
        assert np.mean(said[name]) == pytest.approx(np.mean(real[name]), abs=0.06), name
    assert max(np.mean(real[name]) for name in ("simplex", "threshold")) < 0.75 * np.mean(real[""])


def test_an_estimate_inside_the_simplex_and_an_incomplete_one_have_no_views() -> None:
    specification = build("grr", ["a", "b", "c"], (1.0,))
    estimator = estimator_of(specification)
    tally = simulated_tally(whole(specification), ["a", "b", "c"] * 50, 1)
    assert estimator.views(tally, estimator.estimate(tally, method="mle")) == ()
    found = estimator.estimate(tally)
    assert estimator.views(tally, replace(found, value=np.array([0.5, np.nan, 0.5]))) == ()
