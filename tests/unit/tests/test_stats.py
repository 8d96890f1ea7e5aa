"""The checks of randomised tests: they pass what is right, catch what is wrong, and count what they spend."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.stats import Budget, assert_binomial, assert_chi_square, assert_law, assert_normal, sample_size


def test_a_sample_of_the_stated_size_shows_the_difference() -> None:
    size = sample_size(0.5, 0.52)
    assert_binomial(round(0.5 * size), size, 0.5)
    with pytest.raises(AssertionError, match=r"at probability 0\.5: expected .*, allowed \d+ to \d+, false alarm 1"):
        assert_binomial(round(0.52 * size), size, 0.5)


def test_sure_and_impossible_events_have_no_tolerance() -> None:
    assert_binomial(10, 10, 1.0)
    assert_binomial(0, 10, 0.0)
    with pytest.raises(AssertionError):
        assert_binomial(1, 10, 0.0)
    with pytest.raises(AssertionError):
        assert_binomial(9, 10, 1.0)


def test_laws_are_compared_cell_by_cell() -> None:
    assert_law(np.array([500, 300, 200]), [0.5, 0.3, 0.2])
    with pytest.raises(AssertionError):
        assert_law([800, 100, 100], [0.5, 0.3, 0.2])
    with pytest.raises(AssertionError, match="sum to 1"):
        assert_law([1, 1], [0.5, 0.6])
    with pytest.raises(AssertionError, match="2 counts for 1 probabilities"):
        assert_law([1, 1], [1.0])


def test_bounds_lie_at_one_share() -> None:
    assert_normal(6.4, 0.0, 1.0)
    with pytest.raises(AssertionError, match=r"observed 6\.6"):
        assert_normal(6.6, 0.0, 1.0)
    assert_chi_square(41.0, 1)
    with pytest.raises(AssertionError, match="on 1 degrees"):
        assert_chi_square(43.0, 1)


def test_the_budget_ends() -> None:
    budget = Budget(2)
    budget.take()
    budget.take(0.5)
    with pytest.raises(RuntimeError, match="all 2 shares of the false-alarm budget are spent"):
        budget.take()
