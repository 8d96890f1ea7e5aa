"""uRR, uRAP, Mangat and personal tags: what must never leave, what may, and files that make no sense."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from estimators.channels.bits import unpack
from estimators.exact.randomness import SeededBits
from estimators.mechanism import ParameterError
from tests.support.mechanism import Mechanism
from tests.support.mechanism import build as built
from tests.support.simulate import simulated_tally
from tests.support.stats import assert_binomial

VALUES = ["walk", "clinic", "shop", "bar"]


def build(name: str, **parameters: Any) -> Mechanism:
    return built(name, VALUES, (0.5, 1.0, 2.0), parameters)


def test_a_sensitive_value_never_leaves_the_protected_answers() -> None:
    mechanism = build("urr", sensitive=["clinic", "bar"])
    inputs = mechanism.encode(["clinic"] * 5000 + ["bar"] * 5000, SeededBits(1))
    drawn = mechanism.draw(inputs, SeededBits(2))
    assert (drawn.answers < 2).all()


def test_labels_keep_the_order_of_the_survey_and_answers_put_sensitive_ones_first() -> None:
    mechanism = build("urr", sensitive=["clinic", "bar"])
    values = ["walk"] * 6000 + ["clinic"] * 3000 + ["shop"] * 1000
    found = mechanism.estimate(simulated_tally(mechanism, values, 3))
    assert found.labels == tuple(VALUES)
    assert np.abs(found.value - [0.6, 0.3, 0.1, 0.0]) == pytest.approx(np.zeros(4), abs=0.1)


def test_a_vector_that_tells_two_values_cannot_be_genuine() -> None:
    mechanism = build("urap", sensitive=["clinic"])
    drawn = mechanism.draw(mechanism.encode(VALUES * 500, SeededBits(1)), SeededBits(2))
    assert all(mechanism.valid(answers).all() for answers in drawn.answers)
    assert (unpack(drawn.answers[2], 4)[:, 1:].sum(axis=1) <= 1).all()
    assert mechanism.valid(np.array([[0b0110], [0b0111], [0b0011], [0b0000], [0b10000]], dtype=np.uint8)).tolist() == [
        False,
        False,
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("parameters", "chance"),
    [
        ({"theta": 0.5}, lambda growth: (growth - 1) / (2 * growth)),
        ({"theta": "symmetric"}, lambda growth: 1 - growth**-0.5),
    ],
)
def test_how_often_a_bit_vector_tells_a_value_that_is_not_hidden_is_stated(
    parameters: dict[str, Any], chance: Callable[[float], float]
) -> None:
    """Murakami & Kawamoto, section 4.2, with the correction mk-9."""
    mechanism = build("urap", sensitive=["clinic"], **parameters)
    for level, truths in zip(mechanism.ladder, mechanism.truth_probabilities, strict=True):
        assert truths == {"other values": pytest.approx(chance(math.exp(level)))}
    drawn = mechanism.draw(mechanism.encode(["shop"] * 10_000, SeededBits(1)), SeededBits(2))
    told = int(unpack(drawn.answers[2], 4)[:, 1:].any(axis=1).sum())
    assert_binomial(told, 10_000, chance(math.exp(2.0)))


def test_a_vector_whose_bits_are_all_hidden_tells_no_value() -> None:
    assert build("urap", sensitive=VALUES).truth_probabilities == ({}, {}, {})
    personal = build("pum", sensitive=["clinic"], tags=["home"], base="urap")
    assert [list(truths) for truths in personal.truth_probabilities] == [["other values"]] * 3


@pytest.mark.parametrize("theta", [None, 0.5, 0.2, 0.9])
def test_the_chain_of_bits_is_exact_whatever_theta(theta: float | None) -> None:
    mechanism = build("urap", sensitive=["clinic"], **({} if theta is None else {"theta": theta}))
    chain = mechanism.chain
    assert all(cost <= level for cost, level in zip(mechanism.epsilons, mechanism.ladder, strict=True))
    for lower, upper, kernel in zip(chain.channels, chain.channels[1:], chain.kernels, strict=False):
        for low, high, step in zip(lower.blocks, upper.blocks, kernel.blocks, strict=True):
            one, zero = Fraction(high.one, high.denominator), Fraction(high.zero, high.denominator)
            k1, k0 = Fraction(step.one, step.denominator), Fraction(step.zero, step.denominator)
            assert one * k1 + (1 - one) * k0 == Fraction(low.one, low.denominator)
            assert zero * k1 + (1 - zero) * k0 == Fraction(low.zero, low.denominator)
    assert chain.channels[0].blocks[1].zero == 0


def test_a_personal_value_leaves_as_its_tag() -> None:
    mechanism = build("pum", sensitive=["clinic"], tags=["home", "work"])
    inputs = mechanism.encode(
        [
            "walk",
            {"value": "shop", "personal": {"home": ["bar"], "work": ["shop"]}},
            {"value": "shop", "personal": {"home": ["bar"]}},
            {"value": "clinic", "personal": {"home": ["clinic"]}},
        ],
        SeededBits(1),
    )
    # symbols: clinic, home, work, walk, shop, bar
    assert inputs.tolist() == [3, 2, 4, 0]


def test_a_known_background_brings_personal_values_back() -> None:
    mechanism = build("pum", tags=["home"], background={"home": {"bar": 0.75, "walk": 0.25}})
    values = ["shop"] * 6000 + [{"value": "bar", "personal": {"home": ["bar"]}}] * 3000
    values += [{"value": "walk", "personal": {"home": ["walk"]}}] * 1000
    found = mechanism.estimate(simulated_tally(mechanism, values, 3))
    assert found.labels == tuple(VALUES)
    assert np.abs(found.value - mechanism.truth(values)) == pytest.approx(np.zeros(4), abs=0.05)
    assert not any("background" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "parameters", "field"),
    [
        ("urr", {}, "sensitive"),
        ("urr", {"sensitive": []}, "sensitive"),
        ("urr", {"sensitive": ["pub"]}, "sensitive"),
        ("urr", {"sensitive": ["bar", "bar"]}, "sensitive"),
        ("urr", {"sensitive": ["bar"], "theta": 0.5}, "theta"),
        ("urap", {"sensitive": ["bar"], "theta": 1.0}, "theta"),
        ("urap", {"sensitive": ["bar"], "theta": "half"}, "theta"),
        ("mangat", {}, "values"),
        ("pum", {}, "tags"),
        ("pum", {"tags": []}, "tags"),
        ("pum", {"tags": ["bar"]}, "tags"),
        ("pum", {"tags": ["home"], "base": "grr"}, "base"),
        ("pum", {"tags": ["home"], "sensitive": VALUES}, "sensitive"),
        ("pum", {"tags": ["home"], "background": {"work": {"bar": 1.0}}}, "background"),
        ("pum", {"tags": ["home"], "background": {"home": {"bar": 0.5}}}, "background.home"),
        ("pum", {"tags": ["home"], "background": {"home": {"bar": 2}}}, "background.home.bar"),
        ("pum", {"tags": ["home"], "sensitive": ["bar"], "background": {"home": {"bar": 1}}}, "background.home"),
        ("sue", {"theta": 1}, "theta"),
        ("rappor", {"bits": 1}, "bits"),
        ("rappor", {"bits": True}, "bits"),
        ("rappor", {"hashes": 9}, "hashes"),
        ("rappor", {"cohorts": 0}, "cohorts"),
        ("rappor", {"open_list": "yes"}, "open_list"),
        ("mean", {"low": 0, "high": 1}, "values"),
        ("k_randomization", {"least_records": 100}, "ladder"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_field(name: str, parameters: dict[str, Any], field: str) -> None:
    with pytest.raises(ParameterError) as refused:
        build(name, **parameters)
    assert refused.value.field == field
    assert refused.value.remedy


@pytest.mark.parametrize(
    "value", [{"value": "pub"}, {"personal": {}}, 3, {"value": "shop", "personal": {"gym": ["shop"]}}]
)
def test_a_value_that_makes_no_sense_is_refused(value: Any) -> None:
    with pytest.raises(ParameterError):
        build("pum", tags=["home"]).encode([value], SeededBits(1))
