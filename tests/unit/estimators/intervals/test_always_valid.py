"""Bounds for every look: exact cases, monotone rejection, and agreement with the mechanisms they serve."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from estimators.channels.channel import RetentionChannel, binary
from estimators.channels.response import REAL
from estimators.intervals.always_valid import YesNo, confidence_interval, confidence_sequence, log_e
from estimators.intervals.checkpoints import Checkpoint, advance, bounds_now, checkpoint_alpha, reference_information
from estimators.papers.gradual_release import kernel
from tests.support.mechanism import Mechanism, build
from tests.support.simulate import simulated_tally, simulated_values

OFFERED = [
    ("grr", ["a", "b", "c"], {}),
    ("warner", ["no", "yes"], {}),
    ("simmons", ["no", "yes"], {}),
    ("sue", ["a", "b", "c"], {}),
    ("oue", ["a", "b", "c"], {}),
    ("urr", ["a", "b", "c"], {"sensitive": ["c"]}),
    ("urap", ["a", "b", "c"], {"sensitive": ["c"]}),
    ("mean", ["age"], {"low": 10.0, "high": 30.0}),
]


def one_rung(ones: float, users: float, epsilon: float = 1.0) -> YesNo:
    chance = REAL.grr(epsilon, 2)
    return YesNo.of([chance.truth], [chance.lie], [ones], [users])


def test_nobody_has_said_anything() -> None:
    tally = one_rung(0, 0)
    assert log_e(tally, 0.2) == pytest.approx([0.0])
    lower, upper = confidence_interval(tally, 0.05)
    assert (lower[0], upper[0]) == (0.0, 1.0)


def test_the_e_value_has_mean_one_under_the_threshold() -> None:
    # All outcomes of three users, two rungs: the mean of e over the law at share c is one, whatever the rungs.
    share = 0.3
    low, high = REAL.grr(0.5, 2), REAL.grr(2.0, 2)
    total = 0.0
    for answers in product((0, 1), repeat=3):
        on_low, on_high = answers[0] + answers[1], answers[2]
        chance = math.prod(
            who.answer(share) if answer else 1 - who.answer(share)
            for who, answer in zip((low, low, high), answers, strict=True)
        )
        tally = YesNo.of([low.truth, high.truth], [low.lie, high.lie], [on_low, on_high], [2, 1])
        total += chance * math.exp(log_e(tally, share)[0])
    assert total == pytest.approx(1.0, rel=1e-12)


def test_climbing_a_rung_keeps_the_e_process_a_martingale() -> None:
    # Given the answer on the low rung, the mean of the ratio after climbing is the ratio before: K does not know pi.
    share = 0.3
    low, high = REAL.grr(0.5, 2), REAL.grr(2.0, 2)
    down = kernel(0.5, 2.0, 2)
    for before in (0, 1):
        weights = []
        for after in (0, 1):
            law = high.answer(share) if after else 1 - high.answer(share)
            weights.append(law * down.probability(before, after))
        law_before = low.answer(share) if before else 1 - low.answer(share)
        assert sum(weights) == pytest.approx(law_before)
        climbed = sum(
            weight * math.exp(log_e(YesNo.of([high.truth], [high.lie], [after], [1]), share)[0])
            for after, weight in zip((0, 1), weights, strict=True)
        )
        stayed = math.exp(log_e(YesNo.of([low.truth], [low.lie], [before], [1]), share)[0])
        assert climbed / law_before == pytest.approx(stayed, rel=1e-12)


@pytest.mark.parametrize("side", ["above", "below"])
def test_rejected_thresholds_form_an_interval(side: str) -> None:
    # Bisection relies on this; the proof is in docs/always-valid.md.
    thresholds = np.linspace(0.001, 0.999, 400)
    for ones, users in ((0, 50), (20, 50), (45, 50), (50, 50), (400, 1000)):
        tally = YesNo.of([[0.7]], [[0.2]], np.full((1, 400), ones), [users])
        evidence = log_e(tally, thresholds, side=side)  # type: ignore[arg-type]
        rejected = evidence >= math.log(20)
        edge = rejected if side == "above" else rejected[::-1]
        assert not np.any(np.diff(edge.astype(int)) > 0), (ones, users)


def test_the_confidence_sequence_ends_where_rejection_ends() -> None:
    tally = one_rung(700, 1000, 2.0)
    lower, upper = confidence_sequence(tally, 0.05)[0], confidence_sequence(tally, 0.05, side="below")[0]
    assert log_e(tally, lower)[0] >= math.log(20) > log_e(tally, lower + 2e-6)[0]
    assert log_e(tally, upper, side="below")[0] >= math.log(20) > log_e(tally, upper - 2e-6, side="below")[0]
    estimate = (0.7 - REAL.grr(2.0, 2).lie) / (REAL.grr(2.0, 2).truth - REAL.grr(2.0, 2).lie)
    assert 0 < lower < estimate < upper < 1


def test_answers_that_cannot_lie_reject_zero_at_once() -> None:
    tally = YesNo.of([1.0], [0.0], [1], [1])
    assert log_e(tally, 1e-9)[0] > math.log(20)
    assert confidence_sequence(tally, 0.05)[0] > 0


def test_many_values_are_bounded_like_one() -> None:
    rng = np.random.default_rng(3)
    ones = rng.integers(0, 60, size=(2, 2500))
    tally = YesNo.of([0.5, 0.8], [0.1, 0.1], ones, [60, 60])
    together = confidence_sequence(tally, 0.05)
    for v in (0, 1023, 1024, 2499):
        alone = YesNo.of([0.5, 0.8], [0.1, 0.1], ones[:, v], [60, 60])
        assert confidence_sequence(alone, 0.05)[0] == together[v]


@pytest.mark.parametrize("case", OFFERED, ids=[case[0] for case in OFFERED])
def test_mechanisms_offer_bounds_around_their_estimates(case: tuple[str, list[str], dict[str, object]]) -> None:
    name, labels, parameters = case
    mechanism = build(name, labels, (1.0, 2.0, 4.0), parameters)
    values = simulated_values(mechanism, 5_000, 1)
    tally = simulated_tally(mechanism, values, 1)
    bounds = mechanism.always_valid(tally, alpha=0.05)
    assert bounds is not None
    found = mechanism.estimate(tally, method="mle", population="sampling")
    lower, upper = bounds
    assert lower.shape == found.value.shape
    assert np.all(lower < found.value)
    assert np.all(found.value < upper)
    # wider than an interval for one look, and not absurdly so
    single = found.upper - found.lower
    assert np.all(upper - lower > single)
    assert np.all(upper - lower < 2.5 * single)


@pytest.mark.parametrize(
    ("name", "labels", "parameters"),
    [("rr3_ddagger", ["0", "1", "2"], {"p1": 0.8, "p2": 0.7}), ("christofides", ["no", "yes"], {"middle": 0.2})],
)
def test_answers_that_do_not_collapse_to_bits_offer_none(
    name: str, labels: list[str], parameters: dict[str, object]
) -> None:
    mechanism: Mechanism = build(name, labels, (1.0, 2.0), parameters)
    tally = simulated_tally(mechanism, simulated_values(mechanism, 100, 1), 1)
    assert mechanism.always_valid(tally) is None


def test_a_dense_channel_collapses_like_its_retention_form() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 2)
    dense = binary(channel.keep + channel.base, channel.base)
    counts, users = np.array([[40, 60]]), np.array([100])
    plain, other = YesNo.retention([channel], counts, users), YesNo.dense([dense], counts, users)
    assert other is not None
    np.testing.assert_allclose(plain.truth, other.truth, rtol=1e-15)
    np.testing.assert_allclose(plain.lie, other.lie, rtol=1e-15)


def test_bad_input_is_refused_with_the_reason() -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        log_e(one_rung(1, 2), 0.0)
    with pytest.raises(ValueError, match="do not belong together"):
        one_rung(3, 2)
    with pytest.raises(ValueError, match="alpha must be in"):
        confidence_sequence(one_rung(1, 2), 1.0)
    with pytest.raises(ValueError, match="same users for all values"):
        advance(
            Checkpoint.beginning(2),
            YesNo.of([0.9], [0.1], [[1, 1]], [[5, 6]]),
            threshold=0.5,
            alpha_at=lambda _: 0.1,
            population="fleet",
        )


def test_checkpoints_are_taken_when_information_or_users_have_grown() -> None:
    def at(low: int, high: int) -> YesNo:
        chances = [REAL.grr(epsilon, 2) for epsilon in (0.25, 2.0)]
        ones = [low // 2, high // 2]
        return YesNo.of([c.truth for c in chances], [c.lie for c in chances], ones, [low, high])

    def spend(number: int) -> float:
        return checkpoint_alpha(0.05, number)

    start = Checkpoint.beginning(1)
    assert advance(start, at(0, 99), threshold=0.3, alpha_at=spend, population="fleet") is start
    first = advance(start, at(0, 100), threshold=0.3, alpha_at=spend, population="fleet")
    assert (first.number, first.users) == (1, 100)
    assert advance(first, at(0, 109), threshold=0.3, alpha_at=spend, population="fleet") is first
    # newcomers on a low rung lower the information, but they are more users
    assert reference_information(at(9, 100), 0.3) < first.information
    second = advance(first, at(11, 100), threshold=0.3, alpha_at=spend, population="fleet")
    assert (second.number, second.users) == (2, 111)
    # the same users on a higher rung: more information
    assert advance(second, at(0, 111), threshold=0.3, alpha_at=spend, population="fleet").number == 3


def test_between_checkpoints_newcomers_are_taken_for_the_worst() -> None:
    state = Checkpoint(3, 100, 1.0, (0.4, -0.1), (0.6, 1.2))
    lower, upper = bounds_now(state, 200)
    assert lower.tolist() == pytest.approx([0.2, 0.0])
    assert upper.tolist() == pytest.approx([0.8, 1.0])
    lower, upper = bounds_now(state, 99)
    assert (lower.tolist(), upper.tolist()) == ([0.0, 0.0], [1.0, 1.0])


def test_the_parts_of_alpha_add_up() -> None:
    assert sum(checkpoint_alpha(0.05, k) for k in range(1, 100_000)) < 0.05
