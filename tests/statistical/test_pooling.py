"""Intervals of pooled rungs hold the truth of the fleet as often as they say, and only the right variance does that.

Windows are drawn with fixed values; who sits on which rung is drawn anew each time. Intervals are asymptotic, so they
are asked for 93 % instead of 95 %, up to one share of the suite's budget.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from estimators.channels.channel import RetentionChannel
from estimators.estimates import Estimates, Method, Population
from estimators.inference.inversion import Rungs, retention_covariance
from estimators.inference.pooling import gls, gls_covariance, pool_retention
from tests.support.stats import SHARE, assert_binomial, assert_normal

WINDOWS = 1_000
Floats = NDArray[np.float64]


def draw_windows(
    shares: list[float], users: tuple[int, ...], epsilons: tuple[float, ...], seed: int, *, windows: int = WINDOWS
) -> tuple[list[RetentionChannel], NDArray[np.int64]]:
    """Return the channels and counts [window, rung, value] of fleets with exactly these shares, seated at random."""
    rng = np.random.default_rng(seed)
    total = sum(users)
    held = np.rint(np.array(shares) * total).astype(np.int64)
    assert held.sum() == total
    channels = [RetentionChannel.for_epsilon(epsilon, len(shares)) for epsilon in epsilons]
    counts = np.zeros((windows, len(users), len(shares)), dtype=np.int64)
    for window in range(windows):
        left = held.copy()
        for g, (n, channel) in enumerate(zip(users, channels, strict=True)):
            seated = rng.multivariate_hypergeometric(left, n)
            left -= seated
            for value, number in enumerate(seated):
                counts[window, g] += rng.multinomial(number, channel.matrix[value])
    return channels, counts


def estimates(
    channels: list[RetentionChannel], counts: NDArray[np.int64], method: Method, population: Population = "fleet"
) -> list[Estimates]:
    labels = [str(v) for v in range(channels[0].size)]
    return [
        pool_retention(labels, channels, window, window.sum(axis=1), method=method, population=population)
        for window in counts
    ]


def covered(found: list[Estimates], truth: Floats) -> NDArray[np.int64]:
    return np.asarray(np.sum([(e.lower <= truth) & (truth <= e.upper) for e in found], axis=0))


@pytest.mark.statistical
def test_the_fleet_interval_of_uneven_rungs_covers_and_the_sum_of_rung_variances_does_not() -> None:
    shares = [0.7, 0.3]
    channels, counts = draw_windows(shares, (2_000, 200), (0.25, 4.0), 1)
    found = estimates(channels, counts, "pooled")
    truth = np.array(shares)
    held = covered(found, truth)
    assert held[0] >= stats.binom.ppf(SHARE, WINDOWS, 0.93)
    naive = 0
    for window, e in zip(counts[:500], found[:500], strict=True):
        rungs = Rungs.of(channels, window, window.sum(axis=1))
        fit = gls(rungs)
        spread = np.zeros((2, 2))
        for g, n in enumerate(rungs.users):
            own = np.diag(n * rungs.sigma[g] ** 2 / rungs.answer_shares(fit.pilot)[g])
            weight = gls_covariance(fit.inverse_information) @ own
            alone = retention_covariance(rungs.sigma[g], rungs.base[g], fit.pilot, float(n), "fleet")
            spread += weight @ alone @ weight.T
        naive += int(abs(e.value[0] - 0.7) <= 1.96 * np.sqrt(spread[0, 0]))
    assert naive / 500 < 0.8, "the variance that forgets who sits where should be too small here: the test is blind"


@pytest.mark.statistical
@pytest.mark.parametrize("method", ["pooled", "stratified", "mle"])
def test_every_method_covers_the_fleet(method: Method) -> None:
    shares = [0.4, 0.3, 0.2, 0.1]
    channels, counts = draw_windows(shares, (3_000, 1_500, 1_500), (0.5, 1.0, 2.0), 2, windows=1_000)
    found = estimates(channels, counts, method)
    held = covered(found, np.array(shares))
    for count in held:
        assert count >= stats.binom.ppf(SHARE, 1_000, 0.93)
    # and is not too wide: a nominal 95 % that always covers would be useless
    assert held.max() < 1_000


@pytest.mark.statistical
def test_simultaneous_intervals_cover_all_values_at_once() -> None:
    for shares in ([0.5, 0.3, 0.2], [0.3, 0.2, 0.2, 0.1, 0.1, 0.1]):
        channels, counts = draw_windows(shares, (2_000, 1_000), (1.0, 3.0), 3, windows=1_000)
        together = 0
        for e in estimates(channels, counts, "pooled"):
            assert e.simultaneous_lower is not None
            assert e.simultaneous_upper is not None
            together += int(np.all((e.simultaneous_lower <= shares) & (shares <= e.simultaneous_upper)))
        assert together >= stats.binom.ppf(SHARE, 1_000, 0.93)


@pytest.mark.statistical
def test_the_homogeneity_test_rejects_as_often_as_it_should() -> None:
    channels, counts = draw_windows([0.4, 0.35, 0.25], (800, 800, 800), (0.5, 1.0, 2.0), 4)
    found = estimates(channels, counts, "stratified")
    p_values = np.array([e.homogeneity_p for e in found if e.homogeneity_p is not None])
    assert len(p_values) > 0.9 * WINDOWS
    # The fleet is fixed, so seats are drawn without replacement and the test is a little conservative.
    rejected = int(np.sum(p_values < 0.05))
    assert rejected <= stats.binom.isf(SHARE, len(p_values), 0.05)
    assert rejected > 0.02 * len(p_values)


@pytest.mark.statistical
def test_rungs_that_go_with_values_ruin_pooling_and_not_strata() -> None:
    # Half of the fleet holds 0.5 and climbs, the other half holds 0.3 and stays.
    rng = np.random.default_rng(5)
    channels = [RetentionChannel.for_epsilon(epsilon, 2) for epsilon in (0.5, 2.0)]
    windows, n = 1_000, 2_000
    per_rung = [
        rng.binomial(int(n * share), channel.truth, windows) + rng.binomial(n - int(n * share), channel.lie, windows)
        for channel, share in zip(channels, (0.3, 0.5), strict=True)
    ]
    ones = np.stack(per_rung, axis=1)
    counts = np.stack([ones, n - ones], axis=2)
    strata = np.array([e.value[0] for e in estimates(channels, counts, "stratified")])
    assert_normal(float(strata.mean()), 0.4, float(strata.std() / np.sqrt(windows)))
    held = covered(estimates(channels, counts, "stratified"), np.array([0.4, 0.6]))
    assert held[0] >= stats.binom.ppf(SHARE, windows, 0.93)
    pooled = [gls(Rungs.of(channels, window, window.sum(axis=1))).shares[0] for window in counts]
    assert np.mean(pooled) > 0.47
    # so much heterogeneity is usually noticed, and the reported estimate is then the stratified one
    switched = sum(e.method == "stratified" for e in estimates(channels, counts, "pooled"))
    assert switched > windows / 2


@pytest.mark.statistical
def test_the_sampling_interval_covers_the_population_and_the_fleet_interval_does_not_claim_to() -> None:
    rng = np.random.default_rng(6)
    share, n, windows = 0.4, 400, 2_000
    channel = RetentionChannel.for_epsilon(4.0, 2)
    ones = rng.binomial(n, channel.lie + channel.retention * share, windows)
    counts = np.stack([ones, n - ones], axis=1)[:, None, :]
    truth = np.array([share, 1 - share])
    wide = covered(estimates([channel], counts, "pooled", "sampling"), truth)[0]
    narrow = covered(estimates([channel], counts, "pooled", "fleet"), truth)[0]
    assert wide >= stats.binom.ppf(SHARE, windows, 0.93)
    assert_binomial(int(wide), windows, 0.95)
    assert narrow < 0.5 * windows
