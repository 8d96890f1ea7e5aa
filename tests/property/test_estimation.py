"""Whatever was counted: maxima carry their certificate, estimates do not depend on how rungs are cut or named."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from estimators.channels.channel import RetentionChannel
from estimators.inference.inversion import Rungs
from estimators.inference.likelihood import retention_mle, score
from estimators.inference.pooling import pool_retention
from estimators.inference.views import keep_significant, simplex_projection
from estimators.intervals.always_valid import YesNo, confidence_interval, log_e
from estimators.intervals.checkpoints import Checkpoint, advance, bounds_now, checkpoint_alpha
from estimators.intervals.one_look import clopper_pearson

Counts = NDArray[np.int64]

levels = st.lists(st.floats(0.05, 12.0), min_size=1, max_size=4).map(sorted)


@st.composite
def surveys(draw: st.DrawFn) -> tuple[list[RetentionChannel], Counts]:
    ladder = draw(levels)
    size = draw(st.integers(1, 7))
    pool = draw(st.integers(1, size))
    channels = [RetentionChannel.for_epsilon(epsilon, size, pool=pool) for epsilon in ladder]
    cells = st.lists(st.integers(0, 2_000), min_size=size, max_size=size)
    counts = np.array(draw(st.lists(cells, min_size=len(ladder), max_size=len(ladder))), dtype=np.int64)
    return channels, counts


@given(surveys())
def test_a_maximum_carries_its_certificate(survey: tuple[list[RetentionChannel], Counts]) -> None:
    channels, counts = survey
    rungs = Rungs.of(channels, counts, counts.sum(axis=1))
    found = retention_mle(rungs)
    if found is None:
        assert counts.sum() == 0
        return
    assert found.stopped in ("closed form", "converged")
    assert found.shares.min() >= 0
    assert math.isclose(found.shares.sum(), 1.0, abs_tol=1e-12)
    # what is left to gain, per user
    assert score(rungs, found.shares).max() / rungs.total - 1 <= 1e-9


@given(surveys())
def test_estimates_are_finite_or_absent_and_sum_to_one(survey: tuple[list[RetentionChannel], Counts]) -> None:
    channels, counts = survey
    labels = [str(v) for v in range(channels[0].size)]
    for method in ("pooled", "stratified", "mle"):
        found = pool_retention(labels, channels, counts, counts.sum(axis=1), method=method)
        if found.users == 0:
            assert np.all(np.isnan(found.value))
            continue
        assert math.isclose(found.value.sum(), 1.0, abs_tol=1e-6)
        assert np.all((found.variance >= 0) | np.isnan(found.variance))
        if method != "mle":
            assert np.all(np.isfinite(found.variance))


@given(surveys(), st.randoms(use_true_random=False))
def test_the_order_of_values_does_not_matter(survey: tuple[list[RetentionChannel], Counts], random: object) -> None:
    channels, counts = survey
    assume(channels[0].pool == channels[0].size)
    order = list(range(channels[0].size))
    random.shuffle(order)  # type: ignore[attr-defined]
    labels = [str(v) for v in range(channels[0].size)]
    users = counts.sum(axis=1)
    plain = pool_retention(labels, channels, counts, users, method="stratified")
    mixed = pool_retention(labels, channels, counts[:, order], users, method="stratified")
    np.testing.assert_allclose(mixed.value, plain.value[order], atol=1e-9)
    np.testing.assert_allclose(mixed.variance, plain.variance[order], rtol=1e-9, atol=1e-15)


@given(surveys())
def test_a_rung_cut_in_two_is_still_one_rung_to_the_likelihood(
    survey: tuple[list[RetentionChannel], Counts],
) -> None:
    channels, counts = survey
    assume(counts.sum() > 0)
    half = counts // 3
    whole = retention_mle(Rungs.of(channels, counts, counts.sum(axis=1)))
    cut_counts = np.concatenate([half, counts - half])
    cut = retention_mle(Rungs.of([*channels, *channels], cut_counts, cut_counts.sum(axis=1)))
    assert whole is not None
    assert cut is not None
    assert math.isclose(whole.log_likelihood, cut.log_likelihood, rel_tol=1e-9, abs_tol=1e-6)


@given(
    st.floats(0.05, 0.95),
    st.floats(0.0, 0.9),
    st.integers(0, 500),
    st.integers(0, 500),
    st.floats(0.001, 0.2),
)
def test_bounds_hold_the_maximum_and_more_alpha_narrows_them(
    truth: float, lie: float, ones: int, zeros: int, alpha: float
) -> None:
    assume(truth > lie + 0.01)
    tally = YesNo.of([truth], [lie], [ones], [ones + zeros])
    lower, upper = confidence_interval(tally, alpha)
    assert 0.0 <= lower[0] <= upper[0] <= 1.0
    if ones + zeros:
        best = min(max((ones / (ones + zeros) - lie) / (truth - lie), 0.0), 1.0)
        assert lower[0] <= best + 1e-5
        assert upper[0] >= best - 1e-5
    tighter_lower, tighter_upper = confidence_interval(tally, min(2 * alpha, 0.9))
    assert tighter_lower[0] >= lower[0]
    assert tighter_upper[0] <= upper[0]
    if lower[0] > 0:
        assert log_e(tally, lower)[0] >= math.log(2 / alpha)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), min_size=1, max_size=30))
def test_checkpoints_never_go_back_and_bounds_stay_shares(steps: list[tuple[int, int]]) -> None:
    state = Checkpoint.beginning(1)
    users = np.zeros(2)
    for low, high in steps:
        users += (low, high)
        tally = YesNo.of([0.6, 0.9], [0.4, 0.1], users // 2, users)
        following = advance(
            state, tally, threshold=0.3, alpha_at=lambda k: checkpoint_alpha(0.05, k), population="fleet"
        )
        assert following.number in (state.number, state.number + 1)
        assert following.users >= state.users
        state = following
        lower, upper = bounds_now(state, int(users.sum()))
        assert 0.0 <= lower[0] <= upper[0] <= 1.0


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=30), st.floats(0, 1))
def test_views_are_distributions(shares: list[float], threshold: float) -> None:
    projected = simplex_projection(shares)
    assert projected.min() >= 0
    assert math.isclose(projected.sum(), 1.0, abs_tol=1e-9)
    kept = keep_significant(shares, threshold)
    assert kept.shares.min() >= 0
    assert math.isclose(kept.shares.sum(), 1.0, abs_tol=1e-9)


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.floats(1e-6, 0.5))
def test_exact_bounds_enclose_the_observed_share(ones: int, zeros: int, alpha: float) -> None:
    lower, upper = clopper_pearson(ones, ones + zeros, alpha)
    assert 0.0 <= lower <= upper <= 1.0
    if ones + zeros:
        assert lower <= ones / (ones + zeros) <= upper
