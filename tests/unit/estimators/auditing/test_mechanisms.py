"""Every mechanism is attacked, or says why not: exact losses, best attacks, and no false accusation."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from estimators.auditing.declared import NotAuditedError, worst_values
from estimators.auditing.examine import examine
from estimators.auditing.views import MOST_VALUES, declared_law
from estimators.mechanisms.grr import GRR
from estimators.mechanisms.key_value import PCKVUE
from estimators.mechanisms.registry import names
from estimators.mechanisms.uldp import URAP, URR
from estimators.papers.attacks import bayes_error, last_answer_error
from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.unit.estimators.auditing.chains import sound_chains

AUDITED = [example for example in EXAMPLES if example.name != "improved_christofides"]


def named(example: Example) -> str:
    return example.name


def test_every_mechanism_is_among_the_examples() -> None:
    assert {example.name for example in EXAMPLES} == set(names())


@pytest.mark.parametrize("example", AUDITED, ids=named)
def test_the_loss_from_positions_is_the_one_that_the_ledger_charges(example: Example) -> None:
    specification = example.build().specification
    law = declared_law(specification)
    assert law.losses == pytest.approx(specification.epsilons, rel=1e-9)
    for family in law.families:
        for channel in (*family.channels, *family.kernels):
            assert channel.sum(axis=1) == pytest.approx(1.0, abs=1e-12)
        for lower, upper, kernel in zip(family.channels, family.channels[1:], family.kernels, strict=False):
            assert upper @ kernel == pytest.approx(lower, abs=1e-12)


@pytest.mark.parametrize("example", AUDITED, ids=named)
def test_a_sound_device_is_not_accused_and_its_bounds_stay_below(example: Example) -> None:
    """False alarms: 1e-6 per mechanism, and the seed is fixed."""
    specification = example.build().specification
    law = declared_law(specification)
    found = examine(law, sound_chains(specification, law, 1_600), specification.epsilons, 1e-6)
    assert found.contradictions() == []
    top = next(row for row in found.rows if row.rungs == (specification.rungs - 1,))
    assert 0.0 < top.empirical.lower < top.exact
    assert len(found.rows) == 2 * specification.rungs - 1


def test_a_mechanism_that_promises_nothing_says_so() -> None:
    (example,) = (example for example in EXAMPLES if example.name == "improved_christofides")
    with pytest.raises(NotAuditedError, match="without bound"):
        declared_law(example.build().specification)


def test_a_single_value_cannot_be_attacked() -> None:
    with pytest.raises(NotAuditedError, match="single value"):
        declared_law(GRR(["only"], [1.0]))


def test_a_crowd_is_held_against_what_one_record_pays() -> None:
    (example,) = (example for example in EXAMPLES if example.name == "k_randomization")
    law = declared_law(example.build().specification)
    assert law.levels == (math.inf,)
    assert law.losses[0] > 4


def test_the_best_attack_is_the_one_of_the_closed_forms() -> None:
    law = declared_law(GRR(list("abcde"), [0.1, 0.5, 1.0]))
    even = np.full(5, 0.2)
    shares = np.arange(1, 6) / 15
    assert law.best_success(2, even) == pytest.approx(1 - last_answer_error(1.0, 5), abs=1e-12)
    assert law.best_success(2, shares) == pytest.approx(1 - bayes_error(shares.tolist(), 1.0), abs=1e-12)


def test_many_values_are_lumped_without_changing_what_is_told() -> None:
    labels = [f"value {i}" for i in range(500)]
    law = declared_law(GRR(labels, [1.0, 3.0]))
    assert len(law.values) == MOST_VALUES
    assert law.losses == pytest.approx((1.0, 3.0))
    assert law.families[0].channels[0].shape == (MOST_VALUES, MOST_VALUES + 1)
    specification = URR(labels, labels[:100], [1.0, 3.0])
    law = declared_law(specification)
    assert law.losses == pytest.approx((1.0, 3.0))
    family = law.families[0]
    # Values of devices, then the other sensitive ones, then the other ones.
    assert family.protected.tolist() == [True] * 6 + [False] * 6 + [True, False]
    for lower, upper in pairwise(family.channels):
        assert upper @ family.kernels[0] == pytest.approx(lower, abs=1e-12)
    found = examine(law, sound_chains(specification, law, 1_600), specification.epsilons, 1e-6)
    assert found.contradictions() == []


def test_padding_hides_a_key_behind_keys_that_are_not_there() -> None:
    specification = PCKVUE(["bread", "milk", "eggs"], [1.0, 2.0], padding=3)
    law = declared_law(specification)
    assert max(law.losses) < 2.0
    found = examine(law, sound_chains(specification, law, 3_200), specification.epsilons, 1e-6)
    assert found.contradictions() == []


def test_half_of_the_devices_get_values_that_protected_answers_tell_apart() -> None:
    law = declared_law(URAP(list("abcd"), ["a", "c"], [1.0]))
    assert {law.names[value] for value in worst_values(law)} & {"a", "c"}


def test_one_level_has_no_chain() -> None:
    specification = GRR(["a", "b"], [1.0])
    law = declared_law(specification)
    found = examine(law, sound_chains(specification, law, 160), specification.epsilons, 1e-6)
    assert [row.name for row in found.rows] == ["level 0"]
    assert found.tests["sharpening"] == ()
