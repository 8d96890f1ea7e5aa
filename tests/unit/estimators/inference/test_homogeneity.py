"""Whether rungs can be compared depends on how many users they have."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from estimators.inference.homogeneity import LEAST_USERS
from estimators.tally import Tally
from tests.support.mechanism import Mechanism, build

MECHANISMS = {
    "retention": build("grr", ["a", "b"], (0.5, 6.0), {}),
    "dense": build("simmons", ["no", "yes"], (0.5, 3.0), {}),
    "bits": build("oue", ["a", "b"], (0.5, 6.0), {}),
}


def method_of(mechanism: Mechanism, few: int, named: int) -> str:
    """Return the method for 1,000 users on the lower rung and a few on the upper one."""
    tally = Tally.empty(2, 1, 2)
    tally.users[:, 0] = 1_000, few
    tally.counts[0, 0] = 500, 500
    tally.counts[1, 0] = few - named, named
    return mechanism.estimate(tally, method="pooled").method


@pytest.mark.parametrize("kind", MECHANISMS)
def test_a_rung_with_few_users_is_never_pooled_whatever_they_answered(kind: str) -> None:
    mechanism = MECHANISMS[kind]
    for few, named in itertools.product((1, 10, LEAST_USERS - 1), np.linspace(0.0, 1.0, 5)):
        assert method_of(mechanism, few, round(named * few)) == "stratified", (few, named)
    assert method_of(mechanism, LEAST_USERS, LEAST_USERS // 2) == "pooled"


def test_a_noisy_rung_does_not_keep_a_sharp_one_from_being_compared() -> None:
    """Everybody has the first value; the blurred rung, by noise, sees far less than nobody with it.

    At the share of both together the sharp rung seems to expect hardly any ones: it was left out, and the estimate was
    stratified in just those windows (bands held in .930 of 3,000).
    """
    mechanism = build("oue", ["a", "b"], (0.1, 6.0), {})
    tally = Tally.empty(2, 1, 2)
    tally.users[:, 0] = 500
    questions = mechanism.yes_no(tally)
    assert questions is not None
    truth, lie = float(questions.truth[0, 0]), float(questions.lie[0, 0])
    tally.counts[0, 0] = round(500 * (lie - 1.2 * (truth - lie))), round(500 * lie)
    tally.counts[1, 0] = 250, 1
    found = mechanism.estimate(tally, method="pooled")
    assert found.homogeneity_p is not None
    assert found.homogeneity_p > 0.001
    assert found.method == "pooled"
