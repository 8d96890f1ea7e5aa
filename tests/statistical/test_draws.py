"""What devices draw follows the exact integers; estimates are unbiased.

False alarms: every assertion takes one share (1e-10) of the suite's budget, see tests/support/stats.py. With 40,000
devices odds that are off by 0.05 are seen; test_samplers.py looks more closely at what all mechanisms draw with.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.support.randomised import check_draw_laws, check_unbiased
from tests.support.simulate import simulated_values

WITH_CHAIN = [e for e in EXAMPLES if e.build().guarantee.protects != "nothing" and e.name != "pckv_ue"]
# Estimates that are linear in the counts. Those of unary vectors and sensitive values are held against their variance
# in test_calibration.py.
LINEAR = ("grr", "warner", "simmons", "christofides", "rr3_dagger", "rr3_ddagger", "rr3_club", "sue")


@pytest.mark.statistical
@pytest.mark.parametrize("example", WITH_CHAIN, ids=lambda example: example.name)
def test_answers_follow_the_integers_of_their_chain(example: Example) -> None:
    mechanism = example.build()
    check_draw_laws(mechanism, simulated_values(mechanism, 40_000, 29))


@pytest.mark.statistical
@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.name in LINEAR], ids=lambda example: example.name)
def test_stratified_estimates_are_unbiased(example: Example) -> None:
    mechanism = example.build()
    check_unbiased(mechanism, without_last(mechanism.labels, simulated_values(mechanism, 600, 31)), method="stratified")


def without_last(labels: tuple[str, ...], values: Any) -> list[str]:
    """Give nobody the last value: an estimate that is clipped at zero cannot hide then."""
    return [labels[0] if value == labels[-1] else value for value in np.asarray(values, dtype=object)]
