"""Pooling users on different rungs: three paths that must agree, exact small cases, and edges."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from estimators.channels.channel import Channel, DenseChannel, RetentionChannel, from_numerators
from estimators.estimates import Method, Population
from estimators.inference.inversion import (
    Counts,
    Rungs,
    bit_estimates,
    dense_covariance,
    dense_inverse,
    retention_covariance,
    unbiased_covariance,
)
from estimators.inference.pooling import (
    fleet_covariance,
    fleet_variance,
    gls,
    gls_covariance,
    gls_step,
    pool_bits,
    pool_dense,
    pool_retention,
    stratified_covariance,
)

METHODS: tuple[Method, ...] = ("pooled", "stratified", "mle")
POPULATIONS: tuple[Population, ...] = ("fleet", "sampling")
BOTH = [(method, population) for method in METHODS for population in POPULATIONS]

LEVELS = (0.5, 1.0, 2.0)
SHARES = np.array([0.4, 0.3, 0.2, 0.1])
USERS = np.array([1000, 500, 200])


def channels(size: int, pool: int | None = None) -> list[RetentionChannel]:
    return [RetentionChannel.for_epsilon(epsilon, size, pool=pool) for epsilon in LEVELS]


def expected_counts(plain: list[RetentionChannel]) -> Counts:
    """Counts near their expectation, with a little scatter, so that all shares stay positive."""
    rows = [np.rint(n * (SHARES @ channel.matrix)).astype(np.int64) for channel, n in zip(plain, USERS, strict=True)]
    counts = np.stack(rows)
    counts[:, 0] += np.array([7, -3, 4])
    counts[:, 1] += USERS - counts.sum(axis=1)
    return counts


def dense(channel: Channel) -> DenseChannel:
    return from_numerators([channel.row(x) for x in range(channel.inputs)])


COUNTS = expected_counts(channels(4))


@pytest.mark.parametrize(("method", "population"), BOTH)
@pytest.mark.parametrize("pool", [4, 2])
def test_the_structured_and_the_dense_path_agree(method: Method, population: Population, pool: int) -> None:
    plain = channels(4, pool)
    counts = expected_counts(plain)
    users = counts.sum(axis=1)
    fast = pool_retention("abcd", plain, counts, users, method=method, population=population)
    slow = pool_dense("abcd", [dense(c) for c in plain], counts, users, method=method, population=population)
    assert fast.method == slow.method == method
    np.testing.assert_allclose(fast.value, slow.value, atol=1e-9)
    np.testing.assert_allclose(fast.variance, slow.variance, rtol=1e-6)
    assert fast.homogeneity_p == pytest.approx(slow.homogeneity_p)


@pytest.mark.parametrize(("method", "population"), BOTH)
def test_one_bit_is_a_survey_with_two_values(method: Method, population: Population) -> None:
    plain = channels(2)
    counts = np.array([[520, 480], [330, 270], [130, 70]])
    users = counts.sum(axis=1)
    two = pool_retention(("yes", "no"), plain, counts, users, method=method, population=population)
    truth, lie = (np.array([[getattr(channel, name)] for channel in plain]) for name in ("truth", "lie"))
    bit = pool_bits(("yes",), truth, lie, counts[:, :1], users, method=method, population=population)
    assert bit.value[0] == pytest.approx(two.value[0], abs=1e-9)
    assert bit.variance[0] == pytest.approx(two.variance[0], rel=1e-6)
    assert bit.homogeneity_p == pytest.approx(two.homogeneity_p)


@pytest.mark.parametrize(("method", "population"), BOTH)
def test_shares_sum_to_one(method: Method, population: Population) -> None:
    found = pool_retention("abcd", channels(4), COUNTS, COUNTS.sum(axis=1), method=method, population=population)
    assert found.value.sum() == pytest.approx(1.0, abs=1e-12)
    assert found.users == COUNTS.sum()
    assert np.all(found.lower < found.value)
    assert found.simultaneous_lower is not None
    assert np.all(found.simultaneous_lower < found.lower)


@pytest.mark.parametrize("values", [(0, 0, 1), (0, 1, 2), (2, 2, 2)])
def test_the_fleet_variance_of_one_rung_is_that_of_all_its_outcomes(values: tuple[int, ...]) -> None:
    # Enumerate every answer of three people with fixed values: mean and covariance of the inverse, exactly.
    channel = RetentionChannel.for_epsilon(1.2, 3)
    matrix, size, n = channel.matrix, 3, len(values)
    shares = np.bincount(values, minlength=size) / n
    base = np.full(size, channel.lie)
    mean, square = np.zeros(size), np.zeros((size, size))
    for answers in product(range(size), repeat=n):
        chance = np.prod([matrix[x, y] for x, y in zip(values, answers, strict=True)])
        observed = np.bincount(answers, minlength=size) / n
        estimate = (observed - base) / channel.retention
        mean += chance * estimate
        square += chance * np.outer(estimate, estimate)
    covariance = square - np.outer(mean, mean)
    np.testing.assert_allclose(mean, shares, atol=1e-12)
    expected = retention_covariance(channel.retention, base, shares, n, "fleet")
    np.testing.assert_allclose(covariance, expected, atol=1e-12)
    np.testing.assert_allclose(dense_covariance(matrix, shares, n, "fleet"), expected, atol=1e-12)


def test_the_fleet_variance_of_pooling_counts_who_happens_to_sit_where() -> None:
    # Four people with fixed values, two of them on each rung at random: enumerate seats and answers. The weights are
    # those of the true shares, so the estimate is linear and its variance exact.
    rungs_of = [RetentionChannel.for_epsilon(epsilon, 2) for epsilon in (0.5, 3.0)]
    values = (0, 0, 0, 1)
    shares = np.array([0.75, 0.25])
    total, second = np.zeros(2), np.zeros((2, 2))
    naive = np.zeros((2, 2))
    seats = sorted(set(permutations((0, 0, 1, 1))))
    users = np.array([2, 2])
    inverse = np.zeros(2)
    for seating in seats:
        for answers in product(range(2), repeat=4):
            chance = np.prod(
                [rungs_of[g].matrix[x, y] for g, x, y in zip(seating, values, answers, strict=True)]
            ) / len(seats)
            counts = np.zeros((2, 2), dtype=np.int64)
            np.add.at(counts, (list(seating), list(answers)), 1)
            rungs = Rungs.of(rungs_of, counts, users)
            estimate, inverse = gls_step(rungs, shares)
            total += chance * estimate
            second += chance * np.outer(estimate, estimate)
    covariance = second - np.outer(total, total)
    np.testing.assert_allclose(total, shares, atol=1e-12)
    rungs = Rungs.of(rungs_of, np.array([[1, 1], [1, 1]]), users)
    np.testing.assert_allclose(fleet_covariance(rungs, inverse, shares), covariance, atol=1e-12)
    np.testing.assert_allclose(fleet_variance(rungs, inverse, shares), np.diag(covariance), atol=1e-12)
    # Adding the rungs' own variances with squared weights forgets the seats.
    for channel, sigma, base, n in zip(rungs_of, rungs.sigma, rungs.base, users, strict=True):
        own = np.diag(n * sigma**2 / (sigma * shares + base))
        weight = gls_covariance(inverse) @ own
        naive += weight @ retention_covariance(channel.retention, base, shares, int(n), "fleet") @ weight.T
    assert naive[0, 0] < 0.8 * covariance[0, 0]


def test_the_sampling_covariance_is_estimated_without_bias() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 3)
    shares = np.array([0.5, 0.3, 0.2])
    law = shares @ channel.matrix
    mean = np.zeros((3, 3))
    for answers in product(range(3), repeat=3):
        counts = np.bincount(answers, minlength=3)
        mean += np.prod(law[list(answers)]) * unbiased_covariance(channel.retention, counts)
    expected = retention_covariance(channel.retention, np.full(3, channel.lie), shares, 3, "sampling")
    np.testing.assert_allclose(mean, expected, atol=1e-12)


def test_pooling_one_rung_is_its_inverse() -> None:
    plain = channels(4)
    counts = np.zeros_like(COUNTS)
    counts[1] = COUNTS[1]
    found = pool_retention("abcd", plain, counts, counts.sum(axis=1))
    expected = (counts[1] / counts[1].sum() - plain[1].lie) / plain[1].retention
    np.testing.assert_allclose(found.value, expected, rtol=1e-12)
    assert found.homogeneity_p is None


def test_rungs_that_disagree_are_not_pooled() -> None:
    counts = np.array([[900, 100], [500, 500], [100, 900]])
    found = pool_retention("ab", channels(2), counts, counts.sum(axis=1))
    assert found.method == "stratified"
    assert found.homogeneity_p is not None
    assert found.homogeneity_p < 0.001
    assert any("rungs disagree" in note for note in found.notes)
    same = pool_retention("ab", channels(2), counts, counts.sum(axis=1), method="stratified")
    np.testing.assert_array_equal(found.value, same.value)
    chosen = pool_retention("ab", channels(2), counts, counts.sum(axis=1), method="mle")
    assert chosen.method == "mle"


def test_nobody_and_nothing_give_no_estimate() -> None:
    empty = np.zeros((3, 2), dtype=np.int64)
    found = pool_retention("ab", channels(2), empty, empty.sum(axis=1))
    assert found.users == 0
    assert np.all(np.isnan(found.value))
    levels = [RetentionChannel.for_epsilon(0.0, 2), RetentionChannel.for_epsilon(1.0, 2)]
    counts = np.array([[5, 5], [0, 0]])
    found = pool_retention("ab", levels, counts, counts.sum(axis=1))
    assert np.all(np.isnan(found.variance))
    assert found.notes == ("10 users on rungs that carry no information are left out",)
    mixed = np.array([[5, 5], [20, 10]])
    found = pool_retention("ab", levels, mixed, mixed.sum(axis=1))
    assert found.users == 30


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("population", POPULATIONS)
def test_one_user_one_value_and_silence_are_no_special_cases(method: Method, population: Population) -> None:
    one = np.array([[0, 1, 0]])
    found = pool_retention("abc", channels(3)[:1], one, one.sum(axis=1), method=method, population=population)
    assert np.all(np.isfinite(found.value))
    if method != "mle":
        assert np.all(found.variance > 0)
    single = np.array([[7], [3], [1]])
    found = pool_retention("a", channels(1), single, single.sum(axis=1), method=method, population=population)
    assert found.value.tolist() == [1.0]
    assert found.variance.tolist() == [0.0]


def test_a_maximum_in_a_corner_keeps_an_interval_around_it() -> None:
    counts = np.array([[50, 1, 0], [60, 0, 0], [70, 0, 0]])
    found = pool_retention("abc", channels(3), counts, counts.sum(axis=1), method="mle")
    assert found.value.tolist() == [1.0, 0.0, 0.0]
    assert np.all(found.upper - found.lower > 0.001)
    assert np.all((found.lower <= found.value) & (found.value <= found.upper))


def test_users_that_climbed_leave_no_trace() -> None:
    # A tally in which everybody sits on the top rung gives the estimate of the top rung, whatever the ladder below.
    top = COUNTS[2]
    alone = pool_retention("abcd", channels(4)[2:], top[None], np.array([top.sum()]))
    counts = np.zeros_like(COUNTS)
    counts[2] = top
    ladder = pool_retention("abcd", channels(4), counts, counts.sum(axis=1))
    np.testing.assert_array_equal(alone.value, ladder.value)
    np.testing.assert_array_equal(alone.variance, ladder.variance)


def test_a_channel_with_more_answers_than_values_is_inverted_without_bias() -> None:
    channel = from_numerators([[5, 2, 3], [3, 2, 5]])
    inverse = dense_inverse(channel.matrix)
    assert inverse is not None
    np.testing.assert_allclose(channel.matrix @ inverse, np.eye(2), atol=1e-12)
    counts = np.array([[500, 200, 300]])
    found = pool_dense(("no", "yes"), [channel], counts, counts.sum(axis=1), method="stratified")
    assert found.value.tolist() == pytest.approx([1.0, 0.0])


def test_rungs_that_only_together_tell_values_apart_can_be_pooled() -> None:
    first = from_numerators([[8, 2], [2, 8], [2, 8]])  # knows the first value from the others
    second = from_numerators([[8, 2], [8, 2], [2, 8]])  # knows the last one from the others
    counts = np.array([[440, 560], [620, 380]])
    users = counts.sum(axis=1)
    found = pool_dense("abc", [first, second], counts, users)
    assert found.value.tolist() == pytest.approx([0.4, 0.3, 0.3], abs=1e-6)
    lonely = pool_dense("abc", [first, second], counts, users, method="stratified")
    assert np.all(np.isnan(lonely.value))
    assert "a rung cannot be inverted" in lonely.notes
    blind = pool_dense("abc", [first], counts[:1], users[:1])
    assert np.all(np.isnan(blind.value))
    assert "the answers do not tell the values apart" in blind.notes


def test_a_bit_that_nobody_tells_is_not_estimated() -> None:
    truth, lie = np.array([[0.8, 0.5]]), np.array([[0.2, 0.5]])
    found = pool_bits("ab", truth, lie, np.array([[60, 50]]), np.array([100]))
    assert found.value[0] == pytest.approx(2 / 3)
    assert np.isnan(found.value[1])
    assert np.isnan(found.upper[1])
    assert found.users == 100


def test_bits_that_never_lie_are_counted() -> None:
    # uRAP's other values: q = 0
    found = pool_bits("ab", np.array([[0.5, 0.4]]), np.array([[0.0, 0.0]]), np.array([[100, 0]]), np.array([1000]))
    assert found.value.tolist() == pytest.approx([0.2, 0.0])
    shares, variances = bit_estimates([0.5], [0.0], [100], 1000)
    assert shares[0] == pytest.approx(0.2)
    assert variances[0] == pytest.approx(0.1 * 0.9 / 0.25 / 999)


def test_the_stratified_covariance_weighs_rungs_by_their_users() -> None:
    rungs = Rungs.of(channels(4), COUNTS, COUNTS.sum(axis=1))
    shares = np.tile([0.4, 0.3, 0.2, 0.1], (3, 1))
    whole = stratified_covariance(rungs.sigma, rungs.base, shares, rungs.users, "fleet")
    assert whole.sum() == pytest.approx(0.0, abs=1e-15)
    parts = [
        retention_covariance(float(s), b, shares[0], float(n), "fleet")
        for s, b, n in zip(rungs.sigma, rungs.base, rungs.users, strict=True)
    ]
    weights = rungs.users / rungs.total
    np.testing.assert_allclose(whole, sum(w**2 * part for w, part in zip(weights, parts, strict=True)))


def test_iterated_pooling_reaches_the_maximum_inside_the_simplex() -> None:
    rungs = Rungs.of(channels(4), COUNTS, COUNTS.sum(axis=1))
    fit = gls(rungs)
    assert fit.converged
    found = pool_retention("abcd", channels(4), COUNTS, COUNTS.sum(axis=1), method="mle")
    np.testing.assert_allclose(fit.shares, found.value, atol=1e-6)


def test_what_cannot_be_a_tally_is_refused() -> None:
    good, users = COUNTS, COUNTS.sum(axis=1)
    with pytest.raises(ValueError, match="counts must add up to users"):
        pool_retention("abcd", channels(4), good, users + 1)
    with pytest.raises(ValueError, match="counts must have shape"):
        pool_retention("abcd", channels(4), good[:2], users[:2])
    with pytest.raises(ValueError, match="took back more than was added"):
        pool_retention("abcd", channels(4), good - 250, users)
    with pytest.raises(ValueError, match="one label per value"):
        pool_retention("abc", channels(4), good, users)
    with pytest.raises(ValueError, match="alpha must be in"):
        pool_retention("abcd", channels(4), good, users, alpha=0.0)
    with pytest.raises(ValueError, match="method must be"):
        pool_retention("abcd", channels(4), good, users, method="mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one rung"):
        pool_retention("abcd", [], good, users)
    with pytest.raises(ValueError, match="more often than there are users"):
        pool_bits("a", np.array([[0.8]]), np.array([[0.2]]), np.array([[11]]), np.array([10]))
    with pytest.raises(ValueError, match="outside"):
        pool_bits("a", np.array([[1.8]]), np.array([[0.2]]), np.array([[1]]), np.array([10]))
    with pytest.raises(ValueError, match="one shape"):
        pool_bits("a", np.array([[0.8]]), np.array([0.2]), np.array([[1]]), np.array([10]))
    with pytest.raises(ValueError, match="one label per bit"):
        pool_bits("ab", np.array([[0.8]]), np.array([[0.2]]), np.array([[1]]), np.array([10]))
    with pytest.raises(ValueError, match="must take 3 values"):
        pool_dense("abc", [dense(c) for c in channels(4)], good, users)
    with pytest.raises(ValueError, match="add up to users"):
        pool_dense("abcd", [dense(c) for c in channels(4)], good, users + 1)
