"""Three-element responses: closed forms, best parameters, given parameters on a ladder, refusals."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from estimators.channels.channel import Channel
from estimators.channels.rows import club_rows, loss_of_rows
from estimators.inference.key_value import KeyValueParameters, key_value_moments
from estimators.mechanism import ParameterError
from estimators.mechanisms.christofides import Christofides
from estimators.mechanisms.registry import specification_class
from estimators.mechanisms.small_channel import SmallChannel
from estimators.mechanisms.three_element import EWRR
from estimators.papers import three_element

VALUES = ["none", "plus", "minus"]


def build(name: str, ladder: Sequence[float], **parameters: float) -> SmallChannel:
    mechanism = specification_class(name).build(VALUES, ladder, parameters)
    assert isinstance(mechanism, SmallChannel)
    return mechanism


def test_printed_estimators_corrected_equal_the_inverse() -> None:
    counts = [480, 310, 210]
    zero, one, _ = (count / 1000 for count in counts)
    p1, p2, q = 0.7, 0.6, 0.75
    slope = 2 * p1 + p2 - 1
    dagger = three_element.linear_estimate(three_element.dagger_rows(p1, p2), counts).shares
    assert dagger[0] == pytest.approx((2 * zero + p2 - 1) / slope)
    second = p1 / slope - 1 / (3 * p2 - 1) - zero / slope + (2 * one + zero) / (3 * p2 - 1)
    assert dagger[1] == pytest.approx(second)
    club = three_element.linear_estimate(club_rows(p1, p2, q), counts).shares
    t = p1 + p2 - 1
    assert club[0] == pytest.approx((zero + p2 - 1) / t)
    assert club[1] == pytest.approx((p1 - zero) / (2 * t) + (2 * one + zero - 1) / (2 * p2 * (2 * q - 1)))
    double = three_element.ddagger_rows(p1, p2)
    assert three_element.determinant(double) == pytest.approx(p1 * (2 * p1 - 1) * (2 * p2 - 1))
    for rows in (three_element.dagger_rows(p1, p2), double):
        assert three_element.linear_estimate(rows, counts).shares.sum() == pytest.approx(1.0)


def test_variances_equal_the_diagonal_of_the_covariance() -> None:
    pi = [0.5, 0.3, 0.2]
    found = three_element.linear_covariances(three_element.dagger_rows(0.7, 0.6), pi, 500).sampling
    assert found[0, 0] == pytest.approx(three_element.dagger_variance(0.7, 0.6, 0.5, 500))
    shares = [0.1, 0.2, 0.3, 0.4]
    found = three_element.linear_covariances(three_element.equal_weights_rows(0.45, 4), shares, 7).sampling
    for i, share in enumerate(shares):
        assert found[i, i] == pytest.approx(three_element.equal_weights_variance(4, 0.45, share, 7))
    p1, p2, q = 0.8, 0.7, 0.75
    found = three_element.linear_covariances(club_rows(p1, p2, q), pi, 1).sampling
    of_share, of_total, together = key_value_moments(0.5, 0.1, KeyValueParameters(p1, p2, q))
    assert found[0, 0] == pytest.approx(of_share)
    contrast = np.array([0.0, 1.0, -1.0])
    assert contrast @ found @ contrast == pytest.approx(of_total)
    assert np.array([0.0, 1.0, 1.0]) @ found @ contrast == pytest.approx(together)
    assert math.isnan(three_element.linear_estimate(np.eye(3), [1, 0, 0]).covariance[0, 0])


def test_the_gradient_points_where_the_variance_falls() -> None:
    p1, p2, share, step = 0.62, 0.5, 0.3, 1e-6
    by_p1, by_p2 = three_element.dagger_gradient(p1, p2, share, 1)
    ahead, behind = (three_element.dagger_variance(p1 + s, p2, share, 1) for s in (step, -step))
    assert by_p1 == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)
    ahead, behind = (three_element.dagger_variance(p1, p2 + s, share, 1) for s in (step, -step))
    assert by_p2 == pytest.approx((ahead - behind) / (2 * step), rel=1e-5)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
def test_the_partner_of_p2_spends_the_whole_budget(epsilon: float) -> None:
    top = three_element.equal_weights_probability(3, epsilon)
    for p2 in np.linspace(1 / 3, top, 7).tolist():
        p1 = three_element.dagger_partner(epsilon, p2)
        assert loss_of_rows(three_element.dagger_rows(p1, p2).tolist()) == pytest.approx(epsilon)
    assert three_element.dagger_partner(epsilon, top) == pytest.approx(top)
    with pytest.raises(ValueError, match="p2 must be in"):
        three_element.dagger_partner(epsilon, 0.3)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_no_private_club_with_the_sharpest_sign_beats_the_default_for_the_share(epsilon: float) -> None:
    growth = math.exp(epsilon)
    q = growth / (growth + 1)
    best = KeyValueParameters(growth / (growth + 2), (growth + 1) / (growth + 2), q)
    assert loss_of_rows(best.rows.tolist()) == pytest.approx(epsilon)
    tried = 0
    for p1, p2 in np.random.default_rng(1).random((5000, 2)).tolist():
        other = KeyValueParameters(p1, p2, q)
        if other.presence > 0.01 and loss_of_rows(other.rows.tolist()) <= epsilon * (1 + 1e-9):
            tried += 1
            for share in (0.05, 0.5, 0.9):
                assert key_value_moments(share, 0.0, best)[0] <= key_value_moments(share, 0.0, other)[0] * (1 + 1e-9)
    assert tried > 10


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("rr3_dagger", {"p1": 0.7, "p2": 0.6}),
        ("rr3_ddagger", {"p1": 0.8, "p2": 0.7}),
        ("rr3_club", {"p1": 0.8, "p2": 0.7, "q": 0.75}),
    ],
)
def test_given_parameters_stay_in_their_family_on_every_rung(name: str, given: dict[str, float]) -> None:
    mechanism = build(name, [0.5, 1.0, 2.0], **given)
    top = mechanism.chain.top.matrix
    rows: dict[str, Callable[..., Any]] = {
        "rr3_dagger": three_element.dagger_rows,
        "rr3_ddagger": three_element.ddagger_rows,
        "rr3_club": club_rows,
    }
    expected = rows[name](**given)
    np.testing.assert_allclose(top, expected, atol=1e-15)
    assert mechanism.epsilons[-1] < 2.0
    for channel, level in zip(mechanism.chain.channels[:2], (0.5, 1.0), strict=True):
        assert channel.epsilon == pytest.approx(level)
        assert in_family(name, channel)


def in_family(name: str, channel: Channel) -> bool:
    rows = channel.matrix
    p1, sign = rows[0, 0], rows[1, 1] / (rows[1, 1] + rows[1, 2])
    family = {
        "rr3_dagger": lambda: three_element.dagger_rows(p1, rows[1, 1]),
        "rr3_ddagger": lambda: three_element.ddagger_rows(p1, sign),
        "rr3_club": lambda: club_rows(p1, 1 - rows[1, 0], sign),
    }[name]()
    return bool(np.allclose(rows, family, atol=1e-12))


@pytest.mark.parametrize("level", [0.1, 1.0, 4.0])
def test_defaults_have_the_best_parameters(level: float) -> None:
    growth = math.exp(level)
    equal = three_element.equal_weights_rows(growth / (growth + 2))
    for name in ("rr3_dagger", "rr3_club", "ewrr"):
        mechanism = specification_class(name).build(VALUES, [level], {})
        assert isinstance(mechanism, SmallChannel | EWRR)
        np.testing.assert_allclose(mechanism.chain.top.matrix, equal, atol=1e-15)
    double = three_element.ddagger_rows((growth + 1) / (growth + 3), growth / (growth + 1))
    np.testing.assert_allclose(build("rr3_ddagger", [level]).chain.top.matrix, double, atol=1e-15)


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("rr3_dagger", {"p1": 0.7}, "p2: give all of p1, p2, or none"),
        ("rr3_dagger", {"p1": 0.99, "p2": 0.9}, "cost 5.19.*more than the highest level 2"),
        ("rr3_dagger", {"p1": 0.4, "p2": 1 / 3}, "cannot tell its values apart"),
        ("rr3_ddagger", {"p1": 0.6, "p2": 0.5}, "cannot tell its values apart"),
        ("rr3_club", {"p1": 0.8, "p2": 0.7, "q": 1.0}, r"probability in \(0, 1\)"),
        ("rr3_club", {"p3": 0.8}, "takes p1, p2, q"),
    ],
)
def test_impossible_parameters_are_refused(name: str, parameters: dict[str, float], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build(name, [1.0, 2.0], **parameters)


@pytest.mark.parametrize("name", ["warner", "simmons", "christofides", "rr3_dagger", "rr3_ddagger", "rr3_club"])
def test_a_wrong_number_of_values_is_refused(name: str) -> None:
    with pytest.raises(ParameterError, match="needs exactly"):
        specification_class(name).build(["a", "b", "c", "d"], [1.0], {})


def test_the_middle_card_stays_the_middle_card() -> None:
    mechanism = Christofides.build(["no", "yes"], [0.5, 1.0, 2.0], {"middle": 0.25})
    for channel in mechanism.chain.channels:
        assert channel.matrix[0, 1] == pytest.approx(0.25)
        np.testing.assert_allclose(channel.matrix[0], channel.matrix[1, ::-1], atol=1e-15)
    for kernel in mechanism.chain.kernels:
        assert kernel.matrix[1, 1] == pytest.approx(1.0)


def test_cards_of_many_faces_have_ladders_too() -> None:
    mechanism = Christofides.build(["no", "yes"], [0.2, 0.5, 3.0], {"cards": [3, 1, 1, 2, 6]})
    assert mechanism.epsilons == pytest.approx((0.2, 0.5, math.log(2)))
    np.testing.assert_allclose(mechanism.chain.top.matrix[0], np.array([3, 1, 1, 2, 6]) / 13, atol=1e-15)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"middle": 1.0}, r"probability in \[0, 1\)"),
        ({"cards": [1, 2, 1]}, "balanced"),
        ({"cards": [0, 2]}, "gives the answer away"),
        ({"cards": [1]}, "2 to 64 whole numbers"),
        ({"cards": [1, 2.5]}, "2 to 64 whole numbers"),
        ({"cards": [1, 2], "middle": 0.1}, "already say it"),
    ],
)
def test_impossible_cards_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        Christofides.build(["no", "yes"], [1.0], parameters)


def test_a_coin_that_always_says_the_same_is_refused() -> None:
    for coin in (0.0, 1.0, math.nan, "fair"):
        with pytest.raises(ParameterError, match="coin"):
            specification_class("simmons").build(["no", "yes"], [1.0], {"coin": coin})
