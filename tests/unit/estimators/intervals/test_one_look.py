"""Intervals at one look, thresholds and views."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from estimators.channels.channel import RetentionChannel
from estimators.inference.pooling import pool_retention
from estimators.inference.views import (
    keep_significant,
    significance_threshold,
    simplex_projection,
    zero_deviation,
    zero_share_deviation,
)
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import (
    bonferroni_z,
    clopper_pearson,
    clopper_pearson_array,
    one_sided_z,
    sidak_z,
    simultaneous_z,
    two_sided_z,
)
from tests.support.stats import assert_binomial


def test_quantiles_are_those_of_the_normal() -> None:
    assert two_sided_z(0.05) == pytest.approx(stats.norm.isf(0.025))
    assert one_sided_z(0.05) == pytest.approx(stats.norm.isf(0.05))
    assert bonferroni_z(0.05, 10) == pytest.approx(stats.norm.isf(0.005))


@pytest.mark.parametrize("values", [1, 2, 3, 10, 1000])
def test_sidak_is_never_wider_than_bonferroni(values: int) -> None:
    assert two_sided_z(0.05) <= sidak_z(0.05, values) <= two_sided_z(0.05 / values) + 1e-12


def test_two_shares_that_sum_to_one_need_no_correction() -> None:
    assert simultaneous_z(0.05, 2, np.array([[2.0, -2.0], [-2.0, 2.0]])) == two_sided_z(0.05)


def test_three_equal_shares_have_the_quantile_of_the_range() -> None:
    # Differences of three independent normals sum to zero and have correlation -1/2: Tukey's range, 3.3145 / sqrt 2.
    covariance = np.eye(3) - 1 / 3
    expected = float(stats.studentized_range.ppf(0.95, 3, 1e6)) / np.sqrt(2)
    assert simultaneous_z(0.05, 3, covariance) == pytest.approx(expected, rel=1e-4)


@pytest.mark.statistical
def test_the_joint_quantile_of_three_unequal_shares_covers_as_it_says() -> None:
    shares = np.array([0.7, 0.25, 0.05])
    covariance = np.diag(shares) - np.outer(shares, shares)
    z = simultaneous_z(0.05, 3, covariance)
    assert two_sided_z(0.05) < z < sidak_z(0.05, 3)
    rng = np.random.default_rng(1)
    root = np.linalg.cholesky(covariance + 1e-15 * np.eye(3))
    drawn = rng.standard_normal((400_000, 3)) @ root.T
    inside = np.all(np.abs(drawn) <= z * np.sqrt(np.diag(covariance)), axis=1)
    assert_binomial(int(inside.sum()), 400_000, 0.95)


def test_a_share_without_spread_takes_no_part() -> None:
    covariance = np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert simultaneous_z(0.05, 3, covariance) == two_sided_z(0.05)
    assert simultaneous_z(0.05, 3, np.zeros((3, 3))) == two_sided_z(0.05)
    assert simultaneous_z(0.05, 3, np.diag([1.0, 1.0, 1.0])) == sidak_z(0.05, 3)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (1, 1), (50, 1000)])
def test_exact_bounds_put_exactly_alpha_in_the_tail(successes: int, trials: int) -> None:
    lower, upper = clopper_pearson(successes, trials, 0.01)
    assert 0.0 <= lower < upper <= 1.0
    if successes:
        assert stats.binom.sf(successes - 1, trials, lower) == pytest.approx(0.01, rel=1e-6)
    if successes < trials:
        assert stats.binom.cdf(successes, trials, upper) == pytest.approx(0.01, rel=1e-6)


def test_exact_bounds_of_many_counts_are_those_of_each() -> None:
    lower, upper = clopper_pearson_array(np.arange(8.0), 7.0, 0.05)
    for k in range(8):
        assert (lower[k], upper[k]) == clopper_pearson(k, 7, 0.05)
    assert clopper_pearson(0, 0, 0.05) == (0.0, 1.0)


def test_bad_bounds_are_refused() -> None:
    with pytest.raises(ValueError, match="between 0 and trials"):
        clopper_pearson(3, 2, 0.05)
    for alpha in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="alpha must be in"):
            two_sided_z(alpha)


def test_simultaneous_intervals_of_an_estimate_use_the_smaller_quantile() -> None:
    for size in (2, 3, 4):
        channel = RetentionChannel.for_epsilon(1.0, size)
        counts = np.arange(20, 20 + size)[None] * 10
        found = pool_retention([str(i) for i in range(size)], [channel], counts, counts.sum(axis=1))
        assert found.simultaneous_upper is not None
        assert found.simultaneous_lower is not None
        # A score interval is not quite symmetric, since its variance is taken at its end: both ends together are.
        z = (found.simultaneous_upper - found.simultaneous_lower) / 2 / np.sqrt(found.variance)
        np.testing.assert_allclose(z, z[0], rtol=2e-3)
        assert z[0] <= sidak_z(0.05, size) * 1.001
        assert (z[0] < sidak_z(0.05, size) * 0.9985) == (size < 4)


def test_only_significant_shares_are_kept() -> None:
    found = keep_significant([0.5, 0.3, 0.01, -0.02], 0.1)
    assert found.kept.tolist() == [True, True, False, False]
    assert found.shares.tolist() == pytest.approx([0.5, 0.3, 0.1, 0.1])
    too_much = keep_significant([0.9, 0.3, 0.01, -0.21], 0.1)
    assert too_much.remaining < 0
    assert too_much.shares.tolist() == pytest.approx([0.75, 0.25, 0.0, 0.0])
    nothing = keep_significant([0.01, 0.02, -0.5], 0.1)
    assert nothing.shares.tolist() == pytest.approx([1 / 3] * 3)
    everything = keep_significant([0.6, 0.5], 0.1)
    assert everything.shares.sum() == pytest.approx(1.0)


@pytest.mark.statistical
def test_a_share_of_zero_is_rarely_called_significant() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 4)
    users = 50_000
    deviation = zero_deviation(channel.retention, channel.lie, users)
    rng = np.random.default_rng(2)
    counts = rng.binomial(users, channel.lie, size=20_000)
    estimates = (counts / users - channel.lie) / channel.retention
    threshold = significance_threshold(deviation, 0.05, 4)
    limit = users * (channel.lie + float(threshold) * channel.retention)
    exceeded = float(stats.binom.sf(np.floor(limit), users, channel.lie))
    assert exceeded == pytest.approx(0.05 / 4, rel=0.05)
    assert_binomial(int(np.sum(estimates > threshold)), 20_000, exceeded)


def test_the_deviation_at_zero_of_one_rung_is_that_of_all_rungs_whatever_the_method() -> None:
    channels = [RetentionChannel.for_epsilon(level, 3, pool=2) for level in (1.0, 2.0)]
    counts, users = np.array([[40, 30, 30], [0, 0, 0]]), np.array([100, 0])
    for method in ("stratified", "pooled"):
        found = zero_share_deviation(YesNo.retention(channels, counts, users), method)
        np.testing.assert_allclose(found[:2], zero_deviation(channels[0].retention, channels[0].lie, 100))
        assert found[2] == 0.0
    nobody = zero_share_deviation(YesNo.retention(channels, 0 * counts, 0 * users), "pooled")
    assert np.isinf(nobody).all()


def test_two_rungs_tell_a_share_of_zero_better_pooled_than_stratified() -> None:
    channels = [RetentionChannel.for_epsilon(level, 4) for level in (0.5, 3.0)]
    questions = YesNo.retention(channels, np.full((2, 4), 250), np.array([1_000, 1_000]))
    pooled, stratified = (zero_share_deviation(questions, method) for method in ("pooled", "stratified"))
    each = np.array([zero_deviation(channel.retention, channel.lie, 1_000) for channel in channels])
    np.testing.assert_allclose(pooled, (each**-2.0).sum() ** -0.5)
    np.testing.assert_allclose(stratified, np.sqrt((each**2).sum()) / 2)


def test_the_projection_is_a_distribution_and_leaves_one_alone() -> None:
    assert simplex_projection([0.2, 0.3, 0.5]).tolist() == pytest.approx([0.2, 0.3, 0.5])
    shifted = simplex_projection(np.array([0.5, 0.4, 0.3, -0.1]) + 7.0)
    np.testing.assert_allclose(shifted, simplex_projection([0.5, 0.4, 0.3, -0.1]), atol=1e-12)
