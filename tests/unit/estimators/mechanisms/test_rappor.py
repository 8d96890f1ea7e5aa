"""RAPPOR, means and k-randomization: filters, decoding without noise, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from estimators.channels.bits import unpack
from estimators.channels.bloom import design_matrix, fill_chance, packed_filter, positions
from estimators.estimates import Estimates, Population
from estimators.exact.randomness import SeededBits
from estimators.inference.bloom_decoding import holm, significant
from estimators.inference.crowd_delta import failure_chance
from estimators.mechanism import ParameterError
from estimators.mechanisms.k_randomization import KRandomization
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.rappor import RAPPOR
from estimators.tally import Tally
from tests.support.mechanism import whole
from tests.support.simulate import simulated_tally

STRINGS = tuple(f"site-{i}" for i in range(12))


def test_filters_are_fixed_for_ever() -> None:
    # Changing the hash would make stored answers undecodable; these positions are part of the format.
    assert positions("thaw", 0, bits=128, hashes=2) == (49, 86)
    assert positions("thaw", 1, bits=128, hashes=2) == (85, 122)
    assert positions("größe", 65535, bits=32, hashes=8) == (1, 4, 5, 12, 14, 19, 20)


def test_packed_filters_and_the_design_agree() -> None:
    design = design_matrix(STRINGS, 3, bits=20, hashes=2)
    packed = np.frombuffer(packed_filter(STRINGS[4], 2, 20, 2), dtype=np.uint8)
    assert unpack(packed[None], 20)[0].tolist() == design[2, :, 4].tolist()
    assert fill_chance(20, 2) == pytest.approx(1 - (19 / 20) ** 2)


def perfect_tally(rappor: RAPPOR, shares: np.ndarray[Any, Any], users: int) -> Tally:
    """Return what a fleet with these shares in every cohort would give on average at the top rung."""
    tally = Tally.empty(rappor.rungs, rappor.groups, rappor.bits)
    top = rappor.chain.channels[-1]
    design = design_matrix(rappor.labels, rappor.groups, bits=rappor.bits, hashes=rappor.hashes)
    ones = top.zeros[0] + (top.ones[0] - top.zeros[0]) * (design @ shares)
    tally.users[-1] = users
    tally.counts[-1] = np.rint(users * ones)
    return tally


def test_average_counts_decode_to_the_shares() -> None:
    rappor = RAPPOR(STRINGS, (2.0, 6.0), bits=32, cohorts=4, open_list=False)
    shares = np.arange(1, 13) / 78
    found = whole(rappor).estimate(perfect_tally(rappor, shares, 10**9))
    assert found.value == pytest.approx(shares, abs=1e-6)


@pytest.mark.parametrize("population", ["fleet", "sampling"])
def test_an_end_of_a_band_lies_as_far_as_if_it_were_true(population: Population) -> None:
    # A band with the variance of its own middle lies too low, since a low share seems sure.
    rappor = RAPPOR(STRINGS[:3], (12.0,), bits=32, cohorts=2, hashes=1, open_list=False)
    shares = np.array([0.1, 0.3, 0.5])

    def estimate(true: np.ndarray[Any, Any]) -> Estimates:
        return whole(rappor).estimate(perfect_tally(rappor, true, 400), population=population, alpha=0.05)

    band = estimate(shares)
    ends = (band.lower[0], band.upper[0])
    assert 0.0 < ends[0] < ends[1]
    for end in ends:
        moved = estimate(np.array([end, *shares[1:]]))
        # Counts are whole.
        assert abs(end - band.value[0]) == pytest.approx(1.96 * np.sqrt(moved.variance[0]), rel=0.02)
    if population == "sampling":
        assert ends[1] - band.value[0] > 1.08 * (band.value[0] - ends[0])


def test_more_strings_than_equations_are_picked_by_regression() -> None:
    many = tuple(f"site-{i}" for i in range(200))
    rappor = whole(RAPPOR(many, (10.0,), bits=32, cohorts=3))
    values = ["site-3"] * 8000 + ["site-77"] * 6000 + ["site-150"] * 6000
    found = rappor.estimate(simulated_tally(rappor, values, 5))
    assert any("picked by regression" in note for note in found.notes)
    assert [many[i] for i in np.flatnonzero(significant(found))] == ["site-3", "site-77", "site-150"]


def test_strings_outside_the_list_do_not_pass_for_known_ones() -> None:
    rappor = whole(RAPPOR(STRINGS, (8.0,), bits=64, cohorts=8))
    values = [f"unknown-{i}" for i in range(20_000)] + ["site-2"] * 20_000
    found = rappor.estimate(simulated_tally(rappor, values, 5))
    assert np.flatnonzero(significant(found)).tolist() == [2]
    assert found.value[2] == pytest.approx(0.5, abs=0.05)
    left = found.unexplained
    assert left is not None
    assert left.share == pytest.approx(1 - found.value.sum())
    assert left.lower < 0.5 < left.upper
    assert left.variance > 0


def test_without_an_open_list_nothing_is_left_over() -> None:
    rappor = whole(RAPPOR(STRINGS, (2.0,), bits=64, cohorts=2, open_list=False))
    assert rappor.estimate(simulated_tally(rappor, ["site-1"] * 200, 5)).unexplained is None


def test_the_non_negative_view_says_so_and_stays_non_negative() -> None:
    rappor = whole(RAPPOR(STRINGS, (2.0,), bits=64, cohorts=2))
    found = rappor.estimate(simulated_tally(rappor, ["site-1"] * 2000, 5), method="mle")
    assert (found.value >= 0).all()
    assert any("non-negative" in note for note in found.notes)


def test_nobody_gives_no_estimate() -> None:
    rappor = whole(RAPPOR(STRINGS, (2.0,), bits=16, cohorts=2))
    found = rappor.estimate(Tally.empty(1, 2, 16))
    assert np.isnan(found.value).all()
    assert found.users == 0


def test_an_empty_string_is_refused() -> None:
    with pytest.raises(ParameterError, match="not empty"):
        whole(RAPPOR(STRINGS, (2.0,))).encode([""], SeededBits(1))


def test_holm_steps_down() -> None:
    assert holm(np.array([0.04, 0.001, 0.02, 0.9]), 0.05).tolist() == [False, True, False, False]
    assert holm(np.array([0.01, 0.012, 0.02, 0.04]), 0.05).tolist() == [True, True, True, True]


def test_a_mean_is_clipped_to_its_range_and_a_hole_is_refused() -> None:
    mean = whole(Mean("age", (1.0,), low=0.0, high=100.0))
    assert mean.encode([-5.0, 250], SeededBits(1)).tolist() == [0, 1]
    assert mean.truth([-5.0, 250, 50]) == pytest.approx(50)
    for hole in (float("nan"), None, "12", True):
        with pytest.raises(ParameterError, match="must be a number"):
            mean.encode([hole], SeededBits(1))
    with pytest.raises(ParameterError, match="exceed low"):
        Mean("age", (1.0,), low=1.0, high=1.0)


def test_the_unit_of_a_mean_is_told_and_not_part_of_what_is_decoded() -> None:
    plain, named = (Mean.build(["age"], (1.0,), {"low": 0, "high": 9} | more) for more in ({}, {"unit": "years"}))
    assert [mean.quantities[0].unit for mean in (plain, named)] == ["", "years"]
    assert plain.canonical() == named.canonical()
    with pytest.raises(ParameterError, match="24 characters"):
        Mean.build(["age"], (1.0,), {"low": 0, "high": 9, "unit": "x" * 25})


def test_one_end_is_as_private_as_the_other() -> None:
    mean = Mean("age", (0.5, 1.0), low=-3.0, high=5.0)
    assert all(cost <= level for cost, level in zip(mean.epsilons, (0.5, 1.0), strict=True))


def test_a_crowd_states_its_failure_chance_and_charges_the_record() -> None:
    single = KRandomization(("ill",), 0.6931471805599453, least_records=1000)
    assert single.epsilons[0] == pytest.approx(3.3926, abs=1e-3)
    assert failure_chance(single) == pytest.approx(3.4728e-5, rel=1e-3)
    assert 0 < failure_chance(KRandomization(("a", "b"), 1.0, least_records=100, copies=3)) < 1
    assert not single.guarantee.local


def test_a_window_that_is_too_small_is_pointed_out() -> None:
    crowd = whole(KRandomization(("ill",), 1.0, least_records=1000))
    values = [True] * 100 + [False] * 100
    assert "fewer than the 1000 promised" in crowd.estimate(simulated_tally(crowd, values, 1)).notes[0]
    assert crowd.truth([["ill"], []]).tolist() == [0.5]
    for wrong in ("ill", 3, ["well"]):
        with pytest.raises(ParameterError):
            crowd.encode([wrong], SeededBits(1))


@pytest.mark.parametrize("open_list", [True, False])
def test_a_simulated_fleet_holds_strings_that_no_candidate_explains_where_people_may(open_list: bool) -> None:
    rappor = whole(RAPPOR((*STRINGS, "another string 0"), (4.0,), bits=64, cohorts=8, open_list=open_list))
    picks, words = np.arange(20_000) % len(rappor.labels), SeededBits(2).words(20_000)
    values = list(rappor.simulator.populate(picks, words))
    outside = [value for value in values if value not in rappor.labels]
    truth = rappor.truth(values)
    assert 1 - truth.sum() == pytest.approx(len(outside) / len(values))
    found = rappor.estimate(simulated_tally(rappor, values, 2))
    if not open_list:
        assert outside == []
        assert found.unexplained is None
        return
    # One in 16: outside these bounds once in 10^14 fleets.
    assert 1_000 < len(outside) < 1_500
    assert len(set(outside)) > 500
    assert found.unexplained is not None
    assert found.unexplained.lower > 0, "seen in spite of the noise"
    assert found.unexplained.lower < len(outside) / len(values) < found.unexplained.upper
