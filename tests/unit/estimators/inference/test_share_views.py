"""Views of an estimate: distributions, labelled, with an honest word on how far from the truth they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from estimators.estimates import Floats, View
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.inference.em_bits import reports_mle
from estimators.inference.likelihood_distance import likelihood_distance
from estimators.mechanism import Specification
from estimators.mechanisms.perturbation import perturb
from estimators.mechanisms.registry import build
from estimators.simulation.tallies import tally_of
from tests.support.examples import EXAMPLES
from tests.support.mechanism import whole
from tests.support.paths import ROOT
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


def test_the_simulated_distance_of_the_likelihood_is_near_the_real_one() -> None:
    values, users = 50, 5_000
    specification = build("sue", [str(i) for i in range(values)], (0.5, 1.0))
    one_hot = specification.one_hot
    assert one_hot is not None
    weights = 1.0 / np.arange(1, values + 1)
    rng, real = np.random.default_rng(4), []
    rungs = np.repeat([0, 1], [users // 10, users - users // 10])
    for seed in range(WINDOWS):
        own = rng.choice(values, size=users, p=weights / weights.sum())
        drawn = perturb(specification, [str(value) for value in own], SeededBits(seed, "likelihood"))
        answers = drawn.answers[rungs, np.arange(users)]
        found = reports_mle(one_hot.channels, answers, rungs, sensitive=one_hot.shielded)
        assert found is not None
        real.append(np.abs(found.shares[one_hot.places] - np.bincount(own, minlength=values) / users).sum() / 2)
    told: list[float] = []
    counts = np.bincount(rungs).tolist()
    said = likelihood_distance(one_hot, counts, weights / weights.sum(), told=told.append)
    assert said == pytest.approx(np.mean(real), abs=0.06)
    assert told == sorted(told)
    assert likelihood_distance(one_hot, counts, weights / weights.sum()) == said, "always the same draws"
    assert likelihood_distance(one_hot, [0, 1_000_000], weights / weights.sum()) is None, "that would take too long"


@pytest.mark.parametrize(("row", "power"), [("1 / rank", 1.0), ("1 / rank^1.5", 1.5)])
def test_the_distances_in_the_docs_are_those_that_are_measured(row: str, power: float) -> None:
    values, users = 50, 5_000
    labels = [str(i) for i in range(values)]
    specification = build("sue", labels, (1.0,))
    one_hot, estimator = specification.one_hot, estimator_of(specification)
    assert one_hot is not None
    weights = np.arange(1.0, values + 1) ** -power
    rng = np.random.default_rng(6)
    found: dict[str, list[float]] = {}
    for seed in range(2 * WINDOWS):
        own = rng.choice(values, size=users, p=weights / weights.sum())
        truth = np.bincount(own, minlength=values) / users
        drawn = perturb(specification, [labels[i] for i in own], SeededBits(seed, "measured"))
        tally = tally_of(specification, drawn)
        estimate = estimator.estimate(tally)
        maximum = reports_mle(one_hot.channels, drawn.answers[0], np.zeros(users, np.int64), sensitive=one_hot.shielded)
        assert maximum is not None
        seen = {"estimate": estimate.value, "mle": estimator.estimate(tally, method="mle").value}
        seen |= {view.name: view.shares for view in estimator.views(tally, estimate)}
        seen["likelihood"] = maximum.shares[one_hot.places]
        for name, shares in seen.items():
            found.setdefault(name, []).append(float(np.abs(shares - truth).sum() / 2))
    text = (ROOT / "docs" / "dashboard.md").read_text()
    [said] = [line.split("|")[2:-1] for line in text.splitlines() if line.startswith(f"| {row} |")]
    order = ("estimate", "mle", "threshold", "simplex", "likelihood")
    # The distance of the estimate scatters by about .06 from window to window, and by .017 in the mean of twelve.
    for name, number in zip(order, said, strict=True):
        assert np.mean(found[name]) == pytest.approx(float(number), abs=0.05), name


def test_an_estimate_inside_the_simplex_and_an_incomplete_one_have_no_views() -> None:
    specification = build("grr", ["a", "b", "c"], (1.0,))
    estimator = estimator_of(specification)
    tally = simulated_tally(whole(specification), ["a", "b", "c"] * 50, 1)
    assert estimator.views(tally, estimator.estimate(tally, method="mle")) == ()
    found = estimator.estimate(tally)
    assert estimator.views(tally, replace(found, value=np.array([0.5, np.nan, 0.5]))) == ()
