"""Trial fleets: planned intervals are those of the estimator at expected answers."""

import numpy as np
import pytest

from estimators.estimation.registry import estimator_of
from estimators.mechanism import Specification
from estimators.mechanisms.registry import build, specification_class
from estimators.planning.fleets import MOST_USERS, TrialFleet, fewest
from estimators.simulation.tallies import chains_of, expected_cells, tally_of, trial_values

LADDER = [0.5, 1.0, 2.0]
SPECIFICATIONS: dict[str, Specification] = {
    "grr": specification_class("grr").build(["a", "b", "c"], LADDER, {}),
    "christofides": specification_class("christofides").build(["no", "yes"], LADDER, {}),
    "oue": specification_class("oue").build(list("abcde"), LADDER, {}),
    "urr": specification_class("urr").build(list("abcde"), LADDER, {"sensitive": ["d", "a"]}),
    "urap": specification_class("urap").build(list("abcde"), LADDER, {"sensitive": ["d", "a"]}),
    "mean": specification_class("mean").build([], LADDER, {"low": -10.0, "high": 30.0}),
    "lpp": specification_class("lpp").build(["a", "b"], LADDER, {}),
    "rappor": specification_class("rappor").build(list("abc"), LADDER, {}),
    "decks": specification_class("improved_christofides").build(["no", "yes"], [1.0], {}),
}


@pytest.mark.parametrize("name", ["grr", "christofides", "oue", "urr", "urap", "mean"])
def test_expected_answers_are_the_mean_of_drawn_ones(name: str) -> None:
    """20,000 drawn answers lie within seven standard errors of a share, at most 0.025; seeds are fixed."""
    specification = SPECIFICATIONS[name]
    shares = None if name == "mean" else np.linspace(1, 3, len(specification.labels))
    values = trial_values(specification, shares=None if shares is None else (shares / shares.sum()).tolist())
    expected = expected_cells(specification, values)
    assert expected is not None
    drawn = chains_of(specification, values)
    for rung in range(specification.rungs):
        tally = tally_of(specification, drawn, np.full(len(values), rung))
        assert np.abs(tally.counts[rung, 0] / len(values) - expected[rung]).max() < 0.025


@pytest.mark.parametrize("name", [name for name in SPECIFICATIONS if name != "decks"])
def test_tallies_have_as_many_users_as_asked_for_on_each_rung(name: str) -> None:
    specification = SPECIFICATIONS[name]
    parts = [0.25, 0.25, 0.5]
    tally = TrialFleet.of(specification).tally(4_000, parts)
    assert tally.users.sum(axis=1) == pytest.approx([1_000, 1_000, 2_000], abs=specification.groups)
    if specification.answer.kind == "index":
        assert np.array_equal(tally.counts.sum(axis=2), tally.users)
    else:
        assert (tally.counts <= tally.users[:, :, None]).all()


@pytest.mark.parametrize("name", list(SPECIFICATIONS))
def test_four_times_the_users_halve_the_width(name: str) -> None:
    fleet = TrialFleet.of(SPECIFICATIONS[name])
    top = np.eye(SPECIFICATIONS[name].rungs)[-1]
    few, many = (
        fleet.planned(users, top, method="pooled", population="fleet", alpha=0.05).typical for users in (10_000, 40_000)
    )
    assert few / many == pytest.approx(2.0, rel=0.05)


def test_planned_ends_surround_the_expected_shares() -> None:
    specification = SPECIFICATIONS["grr"]
    fleet = TrialFleet.of(specification, [0.5, 0.3, 0.2])
    assert fleet.truth == pytest.approx([0.5, 0.3, 0.2], abs=1e-4)
    planned = fleet.planned(5_000, [0, 0, 1], method="stratified", population="fleet", alpha=0.05)
    tally = fleet.tally(5_000, [0, 0, 1])
    found = estimator_of(specification).estimate(tally, method="stratified")
    assert found.value == pytest.approx(fleet.truth, abs=1e-3)
    assert planned.half_widths == pytest.approx((found.upper - found.lower) / 2)
    assert planned.below.min() > 0


def test_the_fewest_users_are_found_from_below_and_from_above() -> None:
    for near in (1, 999, 1_000, 1_001, 10**9):
        assert fewest(lambda users: users >= 1_000, near=near) in (1_000, 1_001)
    assert fewest(lambda users: users > 0, near=500) == 1
    assert fewest(lambda users: users < 0) is None
    assert fewest(lambda users: users >= MOST_USERS) == MOST_USERS


def test_a_typical_width_is_that_of_one_kind_of_quantity() -> None:
    mechanism = build("lpp", ["bread", "milk", "rice"], (1.0,))
    assert mechanism.leading.tolist() == [True, False] * 3
    planned = TrialFleet.of(mechanism).planned(10_000, [1.0], method="pooled", population="fleet", alpha=0.05)
    shares, means = planned.half_widths[::2], planned.half_widths[1::2]
    assert planned.typical == pytest.approx(float(np.median(shares)))
    assert planned.typical < 0.5 * means.min(), "a mean of a value is no share of devices"
    number = build("mean", ["hours"], (1.0,), low=0.0, high=24.0, moments=2)
    assert number.leading.tolist() == [True, False], "hours and squares of hours"
