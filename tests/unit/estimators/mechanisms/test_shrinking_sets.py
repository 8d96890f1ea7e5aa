"""uRR whose sensitive values become fewer from rung to rung: exact laws, costs, estimates, files."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from estimators.channels.chain import Chain
from estimators.exact.randomness import SeededBits
from estimators.exact.rounding import GRID, exp_decimal
from estimators.mechanism import ParameterError
from estimators.mechanisms.registry import build as specification
from tests.support.checks import (
    Example,
    check_chain_law,
    check_cost,
    check_draws,
    check_estimates,
    check_integers,
    check_inversion,
    fractions_of,
    joint_law,
)
from tests.support.mechanism import build
from tests.support.simulate import simulated_tally
from tests.support.stats import assert_law, assert_normal

VALUES = ("walk", "clinic", "shop", "bar", "court")
LADDER = (0.5, 1.0, 2.0)
SETS = (
    [["clinic", "bar", "court"], ["clinic", "court"], ["court"]],
    [list(VALUES), ["bar", "clinic"], ["clinic", "bar"]],
    [["shop", "bar"], ["shop", "bar"], ["bar"]],
)


@pytest.mark.parametrize("sets", SETS)
def test_the_battery_of_every_mechanism_passes(sets: list[list[str]]) -> None:
    mechanism = Example("urr", VALUES, LADDER, {"sensitive": sets}).build()
    check_cost(mechanism)
    check_integers(mechanism.chain)
    check_chain_law(mechanism.chain)
    for channel in mechanism.chain.channels:
        check_inversion(channel)
    check_draws(mechanism, random_in_draw=True)
    check_estimates(mechanism)


@pytest.mark.parametrize("sets", SETS)
def test_every_prefix_protects_the_sensitive_values_of_its_last_rung_by_enumeration(sets: list[list[str]]) -> None:
    """Over all sequences of answers, in exact fractions.

    A sequence that ends in a sensitive answer of its rung is explained by any two values up to e^epsilon of that rung;
    one that ends elsewhere comes from one value alone, which is not sensitive there.
    """
    mechanism = build("urr", VALUES, LADDER, {"sensitive": sets})
    chain, ordered = mechanism.chain, mechanism.ordered
    kernels = [fractions_of(kernel) for kernel in chain.kernels]
    for rung, level in enumerate(LADDER):
        bound = Fraction(exp_decimal(level))
        for sequence, chances in joint_law(fractions_of(chain.channels[rung]), kernels[:rung]):
            if not any(chances):
                continue
            told = ordered[sequence[-1]]
            if told in sets[rung]:
                assert max(chances) <= bound * min(chances)
            else:
                assert [ordered[x] for x, chance in enumerate(chances) if chance] == [told]


def test_the_channel_of_each_rung_is_that_of_its_own_sensitive_values() -> None:
    chain = Chain.nested(LADDER, 5, (4, 2, 1))
    for channel, level, pool in zip(chain.retention_channels, LADDER, (4, 2, 1), strict=True):
        plain = Chain.retention((level,), 5, pool=pool).top
        np.testing.assert_allclose(channel.matrix, plain.matrix, atol=1e-15)
        # The rounding gives hardly anything away: less than one part in 2**50 of the level.
        assert level * (1 - 2**-50) <= channel.pool_epsilon <= level


def test_rounding_never_raises_the_cost_of_a_rung() -> None:
    levels = (0.01, 0.3, 1.0, 1.0001, 5.0, 12.0)
    for low, high in product(levels, repeat=2):
        if low < high:
            for pools in ((7, 1), (3, 2), (2, 2), (1000, 1)):
                chain = Chain.nested((low, high), 1000, pools)
                assert chain.retention_channels[0].pool_epsilon <= low
                assert chain.retention_channels[1].pool_epsilon <= high
                assert all(channel.denominator <= GRID for channel in (chain.top, *chain.kernels))


def test_the_sampler_draws_what_the_integers_say() -> None:
    chain = Chain.nested((1.0, 3.0), 4, (3, 1))
    kernel, draws = chain.kernels[0], 400_000
    for start in range(4):
        counts = np.bincount(kernel.sample(np.full(draws, start), SeededBits(start)), minlength=4)
        assert_law(counts, kernel.matrix[start])


def test_the_estimate_knows_the_sensitive_values_of_each_rung() -> None:
    mechanism = build("urr", VALUES, LADDER, {"sensitive": SETS[0]})
    truth = np.array([0.4, 0.25, 0.2, 0.1, 0.05])
    people = [label for label, share in zip(VALUES, truth, strict=True) for _ in range(round(share * 60_000))]
    tally = simulated_tally(mechanism, people, 4)
    for method in ("pooled", "stratified"):
        found = mechanism.estimate(tally, method=method)
        for value, variance, share in zip(found.value, found.variance, truth, strict=True):
            assert_normal(float(value), float(share), float(np.sqrt(variance)))
    likely = mechanism.estimate(tally, method="mle")
    assert ((likely.lower < truth + 0.02) & (truth - 0.02 < likely.upper)).all()


@pytest.mark.parametrize(
    ("sensitive", "field"),
    [
        ([["clinic"], ["clinic", "bar"], ["bar"]], "sensitive[1]"),
        ([["clinic"], ["clinic"]], "sensitive"),
        ([["clinic"], [], ["clinic"]], "sensitive[1]"),
        ([["clinic"], "clinic", ["clinic"]], "sensitive[1]"),
        ([["clinic"], ["pub"], ["clinic"]], "sensitive[1]"),
    ],
)
def test_sets_that_make_no_sense_are_refused(sensitive: Any, field: str) -> None:
    with pytest.raises(ParameterError) as refused:
        specification("urr", VALUES, LADDER, sensitive=sensitive)
    assert refused.value.field == field
    assert refused.value.remedy


def test_people_are_told_from_when_on_a_value_is_no_longer_hidden() -> None:
    mechanism = specification("urr", VALUES, LADDER, sensitive=SETS[0])
    assert [warning.split(":")[0] for warning in mechanism.warnings()] == [
        "from rung 1 on 'bar' is no longer sensitive",
        "from rung 2 on 'clinic' is no longer sensitive",
    ]
    assert [quantity.label for quantity in mechanism.quantities if quantity.sensitive] == ["court"]
    assert [sorted(kinds) for kinds in mechanism.truth_probabilities] == [["other values", "sensitive values"]] * 3
    same = specification("urr", VALUES, LADDER, sensitive=[["bar"]] * 3)
    assert same.canonical() == specification("urr", VALUES, LADDER, sensitive=["bar"]).canonical()
    assert same.warnings() == ()
