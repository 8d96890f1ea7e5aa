"""Bands that break their promise are reported: a calibration that passes everything would be worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from estimators.estimates import Estimates, Method, Population
from estimators.tally import Tally
from tests.calibration.cells import Layout, Setting, whole_numbers
from tests.calibration.judge import SHORT, Hits
from tests.calibration.run import Outcome, run_setting
from tests.calibration.wald import wald_band
from tests.calibration.worlds import worlds

LEVEL = 1e-9


def setting(
    name: str, size: int, ladder: tuple[float, ...], people: str, layout: Layout, users: int, population: Population
) -> Setting:
    world = next(w for w in worlds([name], sizes=[size]) if w.ladder == ladder and w.people.name == people)
    return Setting(world, layout, users, population)


def outcome_of(where: Setting, estimate: Callable[..., Estimates], method: Method) -> Outcome:
    return next(o for o in run_setting(where, 3, LEVEL, SHORT, estimate) if o.method == method)


def plain(where: Setting) -> Callable[..., Estimates]:
    """Estimates whose bands take observed counts as chances."""
    estimator = where.world.mechanism.estimator

    def estimate(tally: Tally, *, method: Method, population: Population, alpha: float) -> Estimates:
        questions = estimator.yes_no(tally)
        assert questions is not None
        found = estimator.estimate(tally, method=method, population=population, alpha=alpha)
        stratified = method == "stratified"
        lower, upper = wald_band(questions, stratified=stratified, population=population, alpha=alpha)
        many = wald_band(questions, stratified=stratified, population=population, alpha=alpha / len(lower))
        return replace(found, lower=lower, upper=upper, simultaneous_lower=many[0], simultaneous_upper=many[1])

    return estimate


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("name", "size", "ladder", "layout", "users", "population", "method"),
    [
        ("grr", 50, (1.0, 4.0), "laggards", 10_000, "fleet", "stratified"),
        ("grr", 50, (1.0, 4.0), "mixed", 100, "fleet", "stratified"),
        ("grr", 2, (0.1, 6.0), "early", 2_000, "fleet", "pooled"),
        ("grr", 2, (0.1, 6.0), "top rung", 20, "sampling", "pooled"),
        ("urap", 5, (1.0, 4.0), "top rung", 100, "fleet", "pooled"),
    ],
)
def test_observed_counts_as_chances_are_noticed(
    name: str,
    size: int,
    ladder: tuple[float, ...],
    layout: Layout,
    users: int,
    population: Population,
    method: Method,
) -> None:
    where = setting(name, size, ladder, "uneven", layout, users, population)
    assert outcome_of(where, plain(where), method).below(LEVEL)


@pytest.mark.statistical
def test_a_band_of_width_zero_is_noticed_even_where_it_holds_the_truth() -> None:
    where = setting("grr", 2, (0.1, 6.0), "single", "top rung", 1_000, "fleet")
    _, truth = where.people(np.random.default_rng(0))

    def exact(tally: Tally, **given: Any) -> Estimates:
        return replace(where.world.mechanism.estimate(tally, **given), lower=truth, upper=truth)

    outcome = outcome_of(where, exact, "pooled")
    assert outcome.worst[1].hits.rate == 1.0
    assert outcome.below(LEVEL)


@pytest.mark.statistical
def test_an_undefined_band_without_a_note_is_noticed_and_one_with_a_note_is_not() -> None:
    where = setting("grr", 2, (0.1, 6.0), "uneven", "top rung", 1_000, "fleet")
    nothing = np.full(2, np.nan)

    def undefined(*notes: str) -> Callable[..., Estimates]:
        def estimate(tally: Tally, **given: Any) -> Estimates:
            found = where.world.mechanism.estimate(tally, **given)
            return replace(
                found,
                lower=nothing,
                upper=nothing,
                simultaneous_lower=nothing,
                simultaneous_upper=nothing,
                notes=notes,
            )

        return estimate

    assert outcome_of(where, undefined(), "pooled").below(LEVEL)
    assert not outcome_of(where, undefined("too few users"), "pooled").below(LEVEL)


@pytest.mark.statistical
def test_a_pooled_band_is_noticed_where_rungs_lean_with_the_value() -> None:
    where = setting("grr", 5, (1.0, 4.0), "equal", "lean", 1_000, "fleet")
    mechanism = where.world.mechanism

    def pooled(tally: Tally, *, method: Method, population: Population, alpha: float) -> Estimates:
        assert method == "stratified"
        # Maximum likelihood assumes equal shares on all rungs, as pooling does, and is not replaced where they differ.
        return mechanism.estimate(tally, method="mle", population=population, alpha=alpha)

    assert outcome_of(where, pooled, "stratified").below(LEVEL)


@pytest.mark.statistical
def test_right_bands_are_not_reported() -> None:
    where = setting("grr", 5, (0.5, 1.0, 2.0), "equal", "mixed", 10_000, "fleet")
    for outcome in run_setting(where, 3, LEVEL, SHORT):
        assert not outcome.below(LEVEL), outcome
        assert not outcome.above, outcome


def test_verdicts_are_exact_tails() -> None:
    assert Hits(100, 80).significantly_below(0.935, 1e-3)
    assert not Hits(100, 90).significantly_below(0.935, 1e-3)
    assert Hits(10_000, 10_000).significantly_above(0.985, 1e-9)
    assert not Hits(100, 100).significantly_above(0.985, 1e-3)
    assert not Hits(0, 0).significantly_below(0.935, 1e-3)


def test_whole_numbers_keep_the_total_and_the_order() -> None:
    assert whole_numbers(np.array([0.9, 0.02, 0.02, 0.06, 0.0]), 20).tolist() == [18, 1, 0, 1, 0]
    assert whole_numbers(np.full(3, 1 / 3), 100).sum() == 100
