"""Key-value reports: loss by enumeration, what is drawn once, estimators, intervals that may not exist."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from estimators.channels.channel import Channel
from estimators.estimates import Method
from estimators.estimation.key_value import LPPEstimator, rung_parameters
from estimators.exact.randomness import SeededBits
from estimators.exact.rounding import log_ratio_up
from estimators.inference import key_value
from estimators.inference.key_value import KeyValueParameters, estimate_key_values
from estimators.inference.key_value_pooling import (
    KeyValueCounts,
    homogeneity,
    likely_key_values,
    pool_key_values,
    pooled_key_values,
    stratified_key_values,
)
from estimators.inference.pooling import pool_dense
from estimators.mechanism import ParameterError
from estimators.mechanisms.key_value import LPP, PCKVUE
from estimators.papers import key_value as key_value_paper
from estimators.tally import Tally
from tests.support.mechanism import Mechanism, whole
from tests.support.simulate import simulated_tally, simulated_values
from tests.support.stats import assert_binomial, assert_law

KEYS = ["bread", "milk", "salt"]
LADDER = [0.5, 1.0, 3.0]


def vector_loss(channel: Channel, keys: int) -> float:
    """The loss of a whole vector by enumeration of all inputs and all answers, with a person without keys."""
    inputs = [tuple(0 for _ in range(keys))]
    inputs += [tuple(sign if i == key else 0 for i in range(keys)) for key in range(keys) for sign in (1, 2)]
    worst = Fraction(1)
    for answer in product(range(3), repeat=keys):
        chances = [math.prod(channel.row(x)[y] for x, y in zip(given, answer, strict=True)) for given in inputs]
        worst = max(worst, Fraction(max(chances), min(chances)))
    return log_ratio_up(worst.numerator, worst.denominator)


@pytest.mark.parametrize("keys", [1, 2, 3])
def test_the_cost_of_a_vector_is_that_of_all_its_positions(keys: int) -> None:
    mechanism = whole(PCKVUE.build(KEYS[:keys], LADDER, {}))
    for channel, cost, level in zip(mechanism.chain.channels, mechanism.epsilons, LADDER, strict=True):
        assert cost == vector_loss(channel, keys)
        assert cost <= level
        if keys > 1:
            assert cost == pytest.approx(level, rel=1e-12)


def test_rungs_have_the_best_split_of_their_level() -> None:
    lpp, pckv = LPP.build(KEYS, LADDER, {}), PCKVUE.build(KEYS, LADDER, {"padding": 2})
    for level, one, other in zip(LADDER, rung_parameters(lpp.chain), rung_parameters(pckv.chain), strict=True):
        wanted = key_value_paper.lpp_parameters(*key_value_paper.lpp_split(level))
        assert (one.p1, one.p2, one.q) == pytest.approx((wanted.p1, wanted.p2, wanted.q))
        expected = key_value_paper.pckv_parameters(*key_value_paper.pckv_allocation(level))
        assert (other.p1, other.p2, other.q) == pytest.approx((expected.p1, expected.p2, expected.q))
    assert lpp.epsilons == pytest.approx(LADDER)


def test_the_split_is_the_best_for_the_mean() -> None:
    for epsilon in (0.5, 1.0, 2.0):
        best = key_value_paper.lpp_parameters(*key_value_paper.lpp_split(epsilon))
        for value_level in np.linspace(0.05, epsilon, 25).tolist():
            key_level = epsilon - math.log(2 / (1 + math.exp(-value_level)))
            if key_level <= 0:
                continue
            assert key_value.lpp_loss(key_level, value_level) <= epsilon * (1 + 1e-12)
            other = key_value_paper.lpp_parameters(key_level, value_level)
            for share in (0.1, 0.5, 0.9):
                assert key_value_variance(share, best) <= key_value_variance(share, other) * (1 + 1e-12)


def key_value_variance(share: float, parameters: KeyValueParameters) -> float:
    return float(key_value.key_value_moments(share, 0.0, parameters)[1])


def test_key_and_sign_are_drawn_once() -> None:
    mechanism = whole(LPP.build(KEYS, LADDER, {}))
    inputs = mechanism.encode([{"bread": 1.0, "milk": -1.0}] * 300, SeededBits(1))
    assert set(inputs.tolist()) == {1, 5, 6}
    drawn = mechanism.draw(inputs, SeededBits(2)).answers
    assert np.array_equal(drawn // 3, np.broadcast_to(inputs // 3, drawn.shape))


@pytest.mark.statistical
def test_rounding_and_padding_are_fair() -> None:
    n = 20_000
    inputs = whole(LPP.build(KEYS[:1], LADDER, {})).encode([{"bread": 0.5}] * n, SeededBits(3))
    assert_binomial(int((inputs == 1).sum()), n, 0.75)
    padded = whole(PCKVUE.build(KEYS, LADDER, {"padding": 3})).encode([{"bread": 1.0, "salt": -1.0}] * n, SeededBits(4))
    assert_law(np.bincount(padded, minlength=7), [1 / 3, 1 / 3, 0, 0, 0, 0, 1 / 3])
    crowded = whole(PCKVUE.build(KEYS, LADDER, {})).encode([{"bread": 1.0, "salt": -1.0}] * n, SeededBits(5))
    assert_law(np.bincount(crowded, minlength=7), [0, 1 / 2, 0, 0, 0, 0, 1 / 2])


@pytest.mark.statistical
def test_every_position_of_a_vector_follows_its_channel() -> None:
    mechanism = whole(PCKVUE.build(KEYS, [1.0, 2.0], {}))
    inputs = np.repeat([0, 1, 4], 30_000)  # nobody's key, bread plus, milk minus
    answers = mechanism.draw(inputs, SeededBits(6)).answers
    planes = np.unpackbits(answers, axis=2, bitorder="little")[:, :, :6].reshape(2, len(inputs), 2, 3)
    symbols = planes[:, :, 0] + 2 * planes[:, :, 1]
    truth = np.zeros((len(inputs), 3), dtype=np.int64)
    truth[inputs == 1, 0] = 1
    truth[inputs == 4, 1] = 2
    for rung, channel in enumerate(mechanism.chain.channels):
        for x in range(3):
            counts = np.bincount(symbols[rung][truth == x], minlength=3)
            assert_law(counts, channel.matrix[x])
    # Positions are independent: bread and salt of people without keys.
    nobody = symbols[1][inputs == 0]
    law = np.outer(mechanism.chain.top.matrix[0], mechanism.chain.top.matrix[0]).reshape(-1)
    assert_law(np.bincount(3 * nobody[:, 0] + nobody[:, 2], minlength=9), law)


def test_a_position_with_both_signs_is_not_a_possible_answer() -> None:
    mechanism = whole(PCKVUE.build(KEYS, LADDER, {}))
    answers = np.array([[0b001001], [0b010001], [0b1000000], [0]], dtype=np.uint8)
    assert mechanism.valid(answers).tolist() == [False, True, False, True]


@pytest.mark.parametrize("build", [LPP.build, PCKVUE.build])
@pytest.mark.parametrize(
    ("person", "message"),
    [
        ({"beer": 0.5}, "one of the survey's 3 keys"),
        ({"milk": 1.5}, r"must be a number in \[-1, 1\]"),
        ({"milk": math.nan}, r"must be a number in \[-1, 1\]"),
        ({"milk": True}, r"must be a number in \[-1, 1\]"),
        ("milk", "must be a table of keys"),
    ],
)
def test_strange_tables_are_refused(build: Any, person: object, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        whole(build(KEYS, LADDER, {})).encode([{}, person], SeededBits(1))


def test_truth_adds_over_parts_of_a_fleet() -> None:
    mechanism = whole(LPP.build(KEYS, LADDER, {}))
    people = [{"bread": 0.5, "milk": -1.0}, {}, {"bread": 1.0}]
    top, bottom = mechanism.simulator.truth_parts(people[:1])
    more, rest = mechanism.simulator.truth_parts(people[1:])
    np.testing.assert_allclose((top + more)[:4] / (bottom + rest)[:4], mechanism.truth(people)[:4])
    np.testing.assert_allclose(mechanism.truth(people)[:4], [2 / 3, 0.75, 1 / 3, -1.0])
    assert math.isnan(mechanism.truth(people)[5])
    assert mechanism.labels[:2] == ("bread/share", "bread/mean")


def test_simulated_people_have_no_more_keys_than_the_padding() -> None:
    words = SeededBits(1).words(200)
    picks = np.arange(200) % 3
    for padding in (1, 2):
        people = whole(PCKVUE.build(KEYS, LADDER, {"padding": padding})).simulate(picks, words)
        assert max(len(person) for person in people) == padding
        assert all(-1.0 <= value <= 1.0 for person in people for value in person.values())


def counts_of(mechanism: Mechanism, devices: int = 6000, seed: int = 5) -> tuple[KeyValueCounts, Tally, Any]:
    values = simulated_values(mechanism, devices, seed)
    tally = simulated_tally(mechanism, values, seed)
    assert isinstance(mechanism.estimator, LPPEstimator)
    return mechanism.estimator.counts(tally), tally, values


def test_one_rung_gives_the_closed_form_and_several_the_general_least_squares() -> None:
    single = whole(LPP.build(KEYS, [2.0], {}))
    counts, _, _ = counts_of(single)
    found = pooled_key_values(counts)
    alone = estimate_key_values(counts.users[0], counts.plus[0], counts.minus[0], rung_parameters(single.chain)[0])
    np.testing.assert_allclose(found.share, alone.share)
    np.testing.assert_allclose(found.mean_variance, alone.mean_variance)
    several = whole(LPP.build(KEYS, LADDER, {}))
    counts, tally, _ = counts_of(several)
    pooled, likely = pooled_key_values(counts), likely_key_values(counts, pooled_key_values(counts))[0]
    for key in range(3):
        cells = tally.counts[:, 0, 3 * key : 3 * key + 3]
        general = pool_dense(
            ("none", "plus", "minus"), several.chain.channels, cells, cells.sum(axis=1), population="sampling"
        )
        assert general.method == "pooled"
        assert pooled.share[key] == pytest.approx(1 - general.value[0], rel=1e-5)
        assert pooled.total[key] == pytest.approx(general.value[1] - general.value[2], abs=1e-5)
        assert pooled.share_variance[key] == pytest.approx(general.variance[0], rel=1e-4)
        assert likely.share[key] == pytest.approx(pooled.share[key], abs=1e-4)
        assert likely.total_variance[key] == pytest.approx(pooled.total_variance[key], rel=1e-3)


def test_the_stratified_estimate_is_the_mean_of_all_debiased_answers() -> None:
    mechanism = whole(LPP.build(KEYS, LADDER, {}))
    counts, _, _ = counts_of(mechanism)
    found = stratified_key_values(counts)
    score = sum(counts.users[g] * counts.raw(g)[0] for g in range(3)) / counts.users.sum(axis=0)
    np.testing.assert_allclose(found.share, score)
    assert np.all(found.share_variance > pooled_key_values(counts).share_variance)


def test_rungs_that_disagree_are_not_pooled() -> None:
    mechanism = whole(LPP.build(KEYS[:1], [1.0, 3.0], {}))
    low = mechanism.draw(np.full(4000, 1), SeededBits(1)).answers[0]
    high = mechanism.draw(np.zeros(4000, dtype=np.int64), SeededBits(2)).answers[1]
    counts = np.stack([np.bincount(low, minlength=3), np.bincount(high, minlength=3)])
    tally = Tally(counts[:, None, :].astype(np.int64), np.full((2, 1), 4000, dtype=np.int64))
    found = mechanism.estimate(tally)
    assert found.homogeneity_p is not None
    assert found.homogeneity_p < 1e-6
    assert found.method == "stratified"
    assert found.lower[0] < 0.5 < found.upper[0]


@pytest.mark.statistical
def test_equal_rungs_pass_the_homogeneity_test_as_often_as_they_should() -> None:
    mechanism = whole(LPP.build(KEYS, LADDER, {}))
    passed = 0
    for seed in range(100):
        counts, _, _ = counts_of(mechanism, 2000, seed)
        p_value = homogeneity(counts, pooled_key_values(counts))
        assert p_value is not None
        passed += p_value > 0.2
    assert_binomial(passed, 100, 0.8)


def test_a_mean_without_a_bounded_interval_is_no_number() -> None:
    parameters = KeyValueParameters(0.9, 0.5, 0.95)
    faint = estimate_key_values(1000, 75, 45, parameters)
    assert faint.fieller_unbounded(1.96)
    assert np.isnan(faint.fieller_interval(1.96)[0])
    none = estimate_key_values(1000, 30, 20, parameters)
    assert none.share < 0
    assert np.isnan(none.mean)
    alone = estimate_key_values(1, 1, 0, parameters)
    assert np.isnan(alone.share)


def test_a_tally_of_few_answers_gives_null_and_not_nonsense() -> None:
    mechanism = whole(LPP.build(KEYS, [0.0, 1.0], {}))
    tally = Tally.empty(2, 1, 9)
    tally.counts[1, 0, [0, 1, 3]] = 1
    tally.users[1, 0] = 3
    tally.counts[0, 0, 8] = 5
    tally.users[0, 0] = 5
    methods: tuple[Method, ...] = ("pooled", "stratified", "mle")
    for method in methods:
        found = mechanism.estimate(tally, method=method)
        assert np.isfinite(found.value[0])
        assert np.isnan(found.value[2:]).all()
        assert found.users == 3
        assert found.notes[0] == "5 users on rungs that carry no information are left out"
        assert "2 keys have no estimate: fewer than two people were asked" in found.notes


def test_impossible_counts_are_refused() -> None:
    parameters = [KeyValueParameters(0.8, 0.8, 0.8)]
    one, two = np.array([[1]]), np.array([[2]])
    with pytest.raises(ValueError, match="rebuild it from the log"):
        KeyValueCounts.of(parameters, one, two, one, np.array([1]))


@pytest.mark.parametrize("population", ["fleet", "sampling"])
def test_the_fleet_does_not_pay_for_who_has_the_key(population: Any) -> None:
    mechanism = whole(LPP.build(KEYS, LADDER, {}))
    counts, tally, _ = counts_of(mechanism)
    found = mechanism.estimate(tally, population=population)
    estimate = pooled_key_values(counts)
    spread = estimate.share * (1 - estimate.share) / 6000 if population == "fleet" else 0.0
    np.testing.assert_allclose(found.variance[::2], estimate.share_variance - spread)
    assert np.all(np.asarray(found.simultaneous_lower)[::2] < found.lower[::2])


def test_padding_scales_shares_and_not_means() -> None:
    parameters = KeyValueParameters(0.8, 0.5, 0.9)
    counts = KeyValueCounts.of(
        [parameters], np.array([[10_000]]), np.array([[2500]]), np.array([[1500]]), np.array([10_000])
    )
    labels = ("bread/share", "bread/mean")
    once, thrice = (pool_key_values(labels, counts, scale=scale, population="sampling") for scale in (1.0, 3.0))
    np.testing.assert_allclose(thrice.value, once.value * [3.0, 1.0])
    np.testing.assert_allclose(thrice.variance, once.variance * [9.0, 1.0])


@pytest.mark.parametrize(
    ("parameters", "message"), [({"padding": 0}, "from 1 to 1000"), ({"length": 2}, "takes padding")]
)
def test_wrong_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        PCKVUE.build(KEYS, LADDER, parameters)
    with pytest.raises(ParameterError, match="takes no parameters"):
        LPP.build(KEYS, LADDER, parameters)
    with pytest.raises(ParameterError, match="at most 10000"):
        PCKVUE.build([str(i) for i in range(10_001)], LADDER, {})
