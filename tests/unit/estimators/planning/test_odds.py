"""Odds: how far answers of a privacy level can raise a suspicion."""

import math

import pytest

from estimators.planning.odds import highest_suspicion


@pytest.mark.parametrize("before", [0.01, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 20.0])
def test_the_odds_grow_by_the_factor_of_the_level(before: float, epsilon: float) -> None:
    after = highest_suspicion(before, epsilon)
    # 1 - after loses digits near 1; 1e-6 covers that at epsilon 20.
    assert after / (1 - after) == pytest.approx(math.exp(epsilon) * before / (1 - before), rel=1e-6)


def test_the_ends_stay() -> None:
    assert highest_suspicion(0.0, 5.0) == 0.0
    assert highest_suspicion(1.0, 5.0) == 1.0
    assert highest_suspicion(0.2, math.inf) == 1.0


@pytest.mark.parametrize(("before", "epsilon"), [(-0.1, 1.0), (1.1, 1.0), (0.5, -1.0), (0.5, math.nan)])
def test_impossible_numbers_are_refused(before: float, epsilon: float) -> None:
    with pytest.raises(ValueError, match="epsilon not negative; got"):
        highest_suspicion(before, epsilon)
