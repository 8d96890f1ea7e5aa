"""Maximum likelihood: closed form, several rungs, any channels, whole bit vectors; and why a search ended."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.channels.bits import pack
from estimators.channels.channel import RetentionChannel, from_numerators
from estimators.channels.response import REAL
from estimators.exact.randomness import SeededBits
from estimators.inference.ascent import project, projected_ascent
from estimators.inference.em import (
    accelerated_em,
    dense_evaluate,
    dense_mle,
    plain_em,
    retention_evaluate,
    uniform,
)
from estimators.inference.em_bits import BitReports, rappor_mle, reports_mle, urap_mle
from estimators.inference.inversion import Rungs
from estimators.inference.likelihood import active, is_linear, log_likelihood, retention_mle, score, water_fill
from estimators.inference.pooling import stratified
from estimators.simulation.tallies import tally_of
from tests.support.mechanism import build
from tests.support.simulate import simulated_values

Floats = NDArray[np.float64]


def some_rungs(seed: int, size: int = 12, pool: int | None = None) -> Rungs:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(size, 0.3))
    levels = (0.5, 1.0, 3.0)
    plain = [RetentionChannel.for_epsilon(epsilon, size, pool=pool) for epsilon in levels]
    counts = np.stack([rng.multinomial(n, shares @ c.matrix) for n, c in zip((900, 400, 90), plain, strict=True)])
    return Rungs.of(plain, counts, counts.sum(axis=1))


def assert_maximum(rungs: Rungs, shares: Floats, tolerance: float = 1e-9) -> None:
    """The certificate of a concave maximum: no value's score exceeds the users, and it equals them on the support."""
    scores = score(rungs, shares) / rungs.total
    assert shares.min() >= 0
    assert shares.sum() == pytest.approx(1.0, abs=1e-12)
    assert scores.max() <= 1 + tolerance
    np.testing.assert_allclose(scores[shares > 1e-9], 1.0, atol=tolerance)


@pytest.mark.parametrize("pool", [12, 5, 1])
@pytest.mark.parametrize("seed", range(4))
def test_several_rungs_are_solved_exactly(seed: int, pool: int) -> None:
    rungs = some_rungs(seed, pool=pool)
    found = retention_mle(rungs)
    assert found is not None
    assert found.stopped == "converged"
    assert_maximum(rungs, found.shares)
    assert found.log_likelihood == log_likelihood(rungs, found.shares)


@pytest.mark.parametrize("seed", range(3))
def test_the_general_search_agrees_with_the_exact_solution(seed: int) -> None:
    rungs = some_rungs(seed, size=6)
    exact = retention_mle(rungs)
    assert exact is not None
    matrices = np.stack([np.eye(6) * s + b for s, b in zip(rungs.sigma, rungs.base, strict=True)])
    found = dense_mle(matrices, rungs.counts)
    assert found.stopped == "converged: certified"
    np.testing.assert_allclose(found.shares, exact.shares, atol=1e-9)


def test_plain_em_creeps_to_the_closed_form() -> None:
    rungs = Rungs.at_levels([1.0], [[50, 30, 20]])
    exact = retention_mle(rungs)
    assert exact is not None
    assert exact.stopped == "closed form"
    evaluate = retention_evaluate(rungs)
    distances = [np.abs(plain_em(evaluate, uniform(3), rounds) - exact.shares).max() for rounds in (1, 10, 100, 1000)]
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-9
    assert distances[1] > 0.01  # ten rounds are far from enough


def test_acceleration_needs_fewer_evaluations_than_plain_em_for_the_same_likelihood() -> None:
    rungs = some_rungs(1)
    evaluate = retention_evaluate(rungs)
    found = accelerated_em(evaluate, uniform(rungs.size), rungs.total)
    plain = plain_em(evaluate, uniform(rungs.size), 5 * found.iterations)
    assert evaluate(plain)[1] < found.log_likelihood


def test_a_search_says_why_it_ended() -> None:
    rungs = some_rungs(2)
    evaluate = retention_evaluate(rungs)
    start = uniform(rungs.size)
    assert accelerated_em(evaluate, start, rungs.total, max_evaluations=5).stopped == "iterations"
    assert accelerated_em(evaluate, start, rungs.total, tolerance=1e-3).stopped.startswith("converged")
    inside = Rungs.at_levels([2.0], [[40, 30, 30]])
    assert accelerated_em(retention_evaluate(inside), uniform(3), 100.0).stopped == "converged: certified"


def test_em_refuses_to_start_from_a_zero() -> None:
    with pytest.raises(ValueError, match="strictly positive"):
        accelerated_em(retention_evaluate(some_rungs(1)), np.array([1.0] + [0.0] * 11), 100.0)


def test_one_rung_inside_the_simplex_is_the_linear_estimate() -> None:
    rungs = Rungs.at_levels([1.0], [[40, 35, 25]])
    found = retention_mle(rungs)
    assert found is not None
    assert is_linear(rungs, found.shares)
    assert active(found.shares, 3) == 3
    np.testing.assert_allclose(found.shares, stratified(rungs))


def test_water_filling_with_values_that_nobody_hides_behind() -> None:
    # uRR: the last two values have no floor; only counted ones get a share
    shares = water_fill(np.array([7.0, 1.0, 0.0, 2.0, 10.0]), np.array([0.16, 0.16, 0.0, 0.0, 0.0]))
    assert shares is not None
    assert shares.sum() == pytest.approx(1.0)
    assert shares[1] == shares[2] == 0.0
    assert shares[4] == pytest.approx(5 * shares[3])
    assert water_fill(np.zeros(3), np.ones(3)) is None
    assert retention_mle(Rungs.at_levels([1.0], [[0, 0]])) is None


def test_twelve_thousand_values_are_filled_at_once() -> None:
    size = 12_800
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(np.full(size, 0.1))
    for pool in (size, 2_432):
        channel = RetentionChannel.for_epsilon(6.0, size, pool=pool)
        law = shares * channel.retention
        law[:pool] += channel.lie
        counts = rng.multinomial(240_000, law)
        rungs = Rungs.of([channel], counts[None], np.array([240_000]))
        found = retention_mle(rungs)
        assert found is not None
        assert_maximum(rungs, found.shares)


def test_channels_of_different_kinds_are_fitted_together() -> None:
    grr = RetentionChannel.for_epsilon(1.0, 3)
    coarse = from_numerators([[8, 2], [2, 8], [2, 8]])
    shares = np.array([0.5, 0.3, 0.2])
    # A channel with fewer answers has columns of zeros.
    matrices = np.stack([grr.matrix, np.pad(coarse.matrix, ((0, 0), (0, 1)))])
    found = dense_mle(matrices, 1e6 * shares @ matrices)
    np.testing.assert_allclose(found.shares, shares, atol=1e-12)


def test_a_likelihood_that_cannot_tell_values_apart_still_ends() -> None:
    blind = from_numerators([[8, 2], [2, 8], [2, 8]])
    found = dense_mle(blind.matrix[None], np.array([[440.0, 560.0]]))
    assert found.stopped.startswith("converged")
    assert found.shares[0] == pytest.approx(0.4, abs=1e-4)


def test_impossible_and_missing_answers_are_refused() -> None:
    matrix = np.array([[[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]]])
    with pytest.raises(ValueError, match="impossible under every value"):
        dense_mle(matrix, np.array([[5.0, 5.0, 1.0]]))
    with pytest.raises(ValueError, match="at least one answer"):
        dense_mle(matrix, np.zeros((1, 3)))


def random_reports(
    shares: Floats, sensitive: int, epsilon: float, users: int, seed: int
) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """Bits of protected uRAP reports (users, sensitive), and counts of revealed values."""
    rng = np.random.default_rng(seed)
    chance = REAL.urap(epsilon)
    values = rng.choice(len(shares), users, p=shares)
    told = (values >= sensitive) & (rng.random(users) < chance.other.truth)
    revealed = np.bincount(values[told] - sensitive, minlength=len(shares) - sensitive)
    hidden = values[~told]
    odds = np.full((len(hidden), sensitive), chance.sensitive.lie)
    own = np.flatnonzero(hidden < sensitive)
    odds[own, hidden[own]] = chance.sensitive.truth
    return np.asarray(rng.random(odds.shape) < odds), revealed.astype(np.int64)


@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_bit_vectors_are_fitted_like_their_dense_channel(epsilon: float) -> None:
    # Three sensitive bits, two other values: all patterns as answers of one dense channel.
    sensitive, shares = 3, np.array([0.35, 0.2, 0.05, 0.3, 0.1])
    chance = REAL.urap(epsilon)
    bits, revealed = random_reports(shares, sensitive, epsilon, 3_000, 5)
    patterns = (np.arange(8)[:, None] >> np.array([2, 1, 0])) & 1
    histogram = np.bincount(bits @ np.array([4, 2, 1]), minlength=8)
    rows = []
    for value in range(5):
        odds = np.where(np.arange(3) == value, chance.sensitive.truth, chance.sensitive.lie)
        law = np.prod(np.where(patterns == 1, odds, 1 - odds), axis=1)
        hidden = law if value < 3 else law * chance.other.miss
        rows.append(np.append(hidden, [chance.other.truth * (value == 3), chance.other.truth * (value == 4)]))
    expected = dense_mle(np.array(rows)[None], np.append(histogram, revealed)[None].astype(float))
    histogrammed = BitReports.from_patterns(
        histogram, chance.sensitive.truth, chance.sensitive.lie, outside=chance.other.miss
    )
    rowwise = BitReports.from_rows(pack(bits), chance.sensitive.truth, chance.sensitive.lie, outside=chance.other.miss)
    for reports in (histogrammed, rowwise):
        found = urap_mle([reports], revealed, sensitive, tolerance=1e-13)
        assert found is not None
        assert found.stopped.startswith("converged")
        np.testing.assert_allclose(found.shares, expected.shares, atol=1e-7)


def test_bit_vectors_of_several_rungs_are_fitted_together() -> None:
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    blocks = []
    for seed, epsilon in enumerate((1.0, 3.0)):
        chance = REAL.urap(epsilon)
        bits, _ = random_reports(shares, 4, epsilon, 20_000, seed)
        blocks.append(BitReports.from_rows(pack(bits), chance.sensitive.truth, chance.sensitive.lie))
    found = rappor_mle(blocks, 4)
    assert found is not None
    # about 3 standard deviations at the sharper rung alone
    np.testing.assert_allclose(found.shares, shares, atol=0.03)
    halves = [
        BitReports(b.columns[:, part], b.weights[part], b.present, b.absent, b.outside)
        for b in blocks
        for part in (slice(0, 7_000), slice(7_000, None))
    ]
    again = rappor_mle(halves, 4)
    assert again is not None
    np.testing.assert_allclose(again.shares, found.shares, atol=1e-7)


@pytest.mark.parametrize(("name", "parameters"), [("sue", {}), ("oue", {}), ("urap", {"sensitive": ["a", "b", "c"]})])
def test_the_reports_of_a_fleet_are_fitted_as_they_are_stored(name: str, parameters: dict[str, object]) -> None:
    labels = [*"abcdefghij"]
    mechanism = build(name, labels, (1.0, 2.0, 4.0), parameters)
    values = simulated_values(mechanism, 6_000, 3)
    bits = SeededBits(3, "reports")
    drawn = mechanism.draw(mechanism.encode(values, bits), bits)
    rungs = np.arange(6_000) % 3
    answers = np.stack([drawn.answers[rung][i] for i, rung in enumerate(rungs)])
    channels = mechanism.chain.channels
    found = reports_mle(channels, answers, rungs, sensitive=3 if parameters else None)
    assert found is not None
    assert found.stopped == "converged: certified"
    # The whole vector knows that shares sum to one; the bits alone do not. Both are near the truth.
    alone = mechanism.estimate(tally_of(mechanism.specification, drawn, rungs), method="pooled")
    truth = mechanism.truth(values)
    assert np.abs(found.shares - truth).sum() < np.abs(alone.value - truth).sum() + 0.02
    assert np.abs(found.shares - truth).max() < 0.05


def test_without_reports_there_is_no_maximum() -> None:
    assert rappor_mle([], 4) is None
    assert urap_mle([], np.zeros(2, dtype=np.int64), 2) is None
    only = urap_mle([], np.array([3, 1]), 2)
    assert only is not None
    np.testing.assert_allclose(only.shares, [0, 0, 0.75, 0.25], atol=1e-6)


def test_bad_bit_reports_are_refused() -> None:
    with pytest.raises(ValueError, match="power of two"):
        BitReports.from_patterns([1, 2, 3], 0.7, 0.3)
    with pytest.raises(ValueError, match="psi in"):
        BitReports.from_patterns([1, 2], 0.7, 0.0)


def test_projection_in_a_metric_is_the_nearest_point() -> None:
    rng = np.random.default_rng(4)
    for _ in range(20):
        point, scale = rng.normal(size=6), rng.uniform(0.1, 10, size=6)
        nearest = project(point, scale)
        assert nearest.sum() == pytest.approx(1.0)
        assert nearest.min() >= 0
        # the gradient of the distance is one number on the support and not below it elsewhere
        slope = scale * (nearest - point)
        assert np.ptp(slope[nearest > 0]) == pytest.approx(0.0, abs=1e-9)
        assert np.all(slope[nearest == 0] >= slope[nearest > 0].max() - 1e-9)


def test_projected_ascent_says_why_it_ended() -> None:
    evaluate = dense_evaluate(np.array([[[0.7, 0.3], [0.3, 0.7]]]), np.array([[60.0, 40.0]]))
    start = np.array([0.5, 0.5])
    found = projected_ascent(evaluate, np.ones_like, start, 100.0)
    assert found.stopped == "converged: certified"
    np.testing.assert_allclose(found.shares, [0.75, 0.25], atol=1e-6)
    assert projected_ascent(evaluate, np.ones_like, start, 100.0, max_evaluations=1).stopped == "iterations"
