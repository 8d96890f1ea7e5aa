"""Bands that break their promise are reported: a calibration that passes everything would be worth nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from estimators.estimates import Estimates, Method, Population
from estimators.inference.summed_shares import SummedBands
from estimators.mechanisms.registry import names, specification_class
from estimators.tally import Tally
from tests.calibration.cells import Layout, Setting, whole_numbers
from tests.calibration.judge import LEAST, SHORT, Hits, Stage, Stages, power
from tests.calibration.run import Outcome, run_setting
from tests.calibration.suite import Findings
from tests.calibration.wald import wald_band
from tests.calibration.worlds import VARIANTS, example_of, worlds

LEVEL = 1e-9


def setting(
    name: str, size: int, ladder: tuple[float, ...], people: str, layout: Layout, users: int, population: Population
) -> Setting:
    world = next(w for w in worlds([name], sizes=[size]) if w.ladder == ladder and w.people.name == people)
    return Setting(world, layout, users, population)


def outcome_of(where: Setting, estimate: Callable[..., Estimates], method: Method, stages: Stages = SHORT) -> Outcome:
    return next(o for o in run_setting(where, 3, LEVEL, stages, estimate) if o.method == method)


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
@pytest.mark.parametrize("number", ["edges", "weight", "mean edge weight"])
def test_a_derived_number_with_too_narrow_a_band_is_noticed(number: str) -> None:
    where = setting("lpp", 2, (0.1, 6.0), "means", "top rung", 1_000, "sampling")
    estimator = where.world.mechanism.estimator

    def narrow(tally: Tally, **asked: Any) -> Estimates:
        found = estimator.estimate(tally, **asked)
        derived = tuple(
            replace(
                one, lower=one.value + 0.5 * (one.lower - one.value), upper=one.value + 0.5 * (one.upper - one.value)
            )
            if one.name == number
            else one
            for one in found.derived
        )
        return replace(found, derived=derived)

    assert not outcome_of(where, estimator.estimate, "pooled").below(LEVEL)
    found = outcome_of(where, narrow, "pooled")
    assert found.below(LEVEL)
    assert found.worst[0] == number


@pytest.mark.statistical
def test_a_sum_of_shares_with_the_variances_of_its_parts_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    where = setting("urr", 5, (1.0, 4.0), "uneven", "top rung", 100, "sampling")
    estimator = where.world.mechanism.estimator

    def added_up(_tally: Tally, sums: list[tuple[int, ...]], found: Estimates) -> SummedBands:
        value, variance = (np.array([part[list(one)].sum() for one in sums]) for part in (found.value, found.variance))
        reach = 1.96 * np.sqrt(variance)
        return SummedBands(value, variance, value - reach, value + reach)

    assert not outcome_of(where, estimator.estimate, "pooled").below(LEVEL)
    monkeypatch.setattr(estimator, "sums", added_up)
    assert outcome_of(where, estimator.estimate, "pooled").below(LEVEL)


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
def test_an_undefined_band_needs_a_note_that_explains_it_and_answers_that_are_rare() -> None:
    nothing = np.full(2, np.nan)

    def undefined(where: Setting, *notes: str) -> Callable[..., Estimates]:
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

    rare = setting("grr", 2, (0.1, 6.0), "single", "top rung", 20, "fleet")
    told, untold = "no estimate: too few users", "another note"
    assert outcome_of(rare, undefined(rare, untold), "pooled").below(LEVEL)
    assert not outcome_of(rare, undefined(rare, told), "pooled").below(LEVEL)
    many = setting("grr", 2, (0.1, 6.0), "uneven", "top rung", 1_000, "fleet")
    assert outcome_of(many, undefined(many, told), "pooled").below(LEVEL), "with so many answers a band is possible"


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


@pytest.mark.statistical
def test_bands_of_twice_the_width_are_above_and_not_below() -> None:
    where = setting("grr", 2, (0.1, 6.0), "uneven", "top rung", 1_000, "fleet")

    def wide(tally: Tally, **given: Any) -> Estimates:
        found = where.world.mechanism.estimate(tally, **given)
        half = (found.upper - found.lower) / 2.0
        return replace(found, lower=found.lower - half, upper=found.upper + half)

    outcome = outcome_of(where, wide, "pooled", (Stage(800),))
    assert outcome.above
    assert not outcome.below(LEVEL)


def test_what_no_cell_can_show_is_noticed_over_all_cells_of_a_method() -> None:
    cells = [Outcome("grr", f"grr m=2, mixed, n={n}, fleet", "pooled", 0, screened=Hits(64, 58)) for n in range(200)]
    assert not any(cell.screened.significantly_below(LEAST, 1e-8) for cell in cells)
    findings = Findings("long", 1, 10, 1e-8, cells)
    assert [line.split(":")[0] for line in findings.failures()] == [
        "all cells of grr, pooled together",
        "all cells of grr, pooled, mixed together",
        "all cells of grr, pooled, fleet together",
    ]


def test_every_mechanism_with_parameters_is_tried_with_others_than_its_examples() -> None:
    for name in names():
        given, taken = set(example_of(name).parameters), set(specification_class(name).parameters)
        assert taken <= given or name in VARIANTS, f"{name} takes {taken - given}: add a variant"


@pytest.mark.parametrize("coverage", [0.7, 0.9, 0.935])
def test_the_stated_power_is_that_of_the_verdicts(coverage: float) -> None:
    """4,000 simulated cells; the share of reported ones differs from the statement by six deviations at most."""
    stages, level, rng = (Stage(50, 0.9), Stage(300)), 1e-3, np.random.default_rng(1)
    reported = 0
    for _ in range(4_000):
        first, more = (Hits(n, int(rng.binomial(n, coverage))) for n in (50, 250))
        low = first.significantly_below(LEAST, level)
        reported += low or (first.rate < 0.9 and (first + more).significantly_below(LEAST, level))
    stated = power(coverage, stages, level)
    assert abs(reported / 4_000 - stated) < 6 * math.sqrt(max(stated * (1 - stated), 1e-4) / 4_000)


def test_verdicts_are_exact_tails() -> None:
    assert Hits(100, 80).significantly_below(0.935, 1e-3)
    assert not Hits(100, 90).significantly_below(0.935, 1e-3)
    assert Hits(10_000, 10_000).significantly_above(0.985, 1e-9)
    assert not Hits(100, 100).significantly_above(0.985, 1e-3)
    assert not Hits(0, 0).significantly_below(0.935, 1e-3)


def test_whole_numbers_keep_the_total_and_the_order() -> None:
    assert whole_numbers(np.array([0.9, 0.02, 0.02, 0.06, 0.0]), 20).tolist() == [18, 1, 0, 1, 0]
    assert whole_numbers(np.full(3, 1 / 3), 100).sum() == 100


@pytest.mark.statistical
def test_a_mean_of_which_nobody_in_the_fleet_can_tell_is_not_asked_for() -> None:
    # Of 20 people 2 % are nobody: the mean of such a key is no number, and its band is neither right nor missing.
    where = setting("pckv_ue", 5, (0.5, 1.0, 2.0), "rare keys", "top rung", 20, "fleet")
    _, truth = where.people(np.random.default_rng(0))
    unknown = {name for name, places in where.world.classes.items() if np.all(np.isnan(truth[places]))}
    outcome = outcome_of(where, where.world.mechanism.estimator.estimate, "pooled", (Stage(24),))
    assert unknown
    assert {name for name, part in outcome.classes.items() if part.windows == 0} == unknown
    assert not outcome.silent(LEVEL)
