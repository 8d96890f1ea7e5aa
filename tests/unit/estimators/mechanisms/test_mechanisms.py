"""Every registered mechanism runs through one battery."""

from __future__ import annotations

import pytest

from estimators.mechanisms.registry import names
from tests.support.checks import Example, check_mechanism
from tests.support.examples import EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_battery_passes(example: Example) -> None:
    check_mechanism(example)


def test_every_registered_mechanism_has_an_example() -> None:
    assert {example.name for example in EXAMPLES} == set(names())
