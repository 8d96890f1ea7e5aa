"""Closed forms of gradual release against brute force, and kernels against inversion and linear programs."""

from __future__ import annotations

import math
from itertools import pairwise, product

import numpy as np
import pytest

from estimators.channels import moments, rows
from estimators.channels.chain import LadderError
from estimators.channels.response import REAL
from estimators.papers import attacks, closed_forms, gradual_release, kernels, noisy_sampling
from estimators.planning.degradation import Degradation
from estimators.planning.linear_programs import find_joint, find_kernel, nearest_ladder, plan_kernels


def forward(ladder: tuple[float, ...], size: int, value: int, answers: tuple[int, ...]) -> float:
    """Multiply the forward steps as a device would take them."""
    chance = rows.channel_matrix(ladder[0], size)[value, answers[0]]
    for (lower, upper), (before, now) in zip(pairwise(ladder), pairwise(answers), strict=True):
        moves = gradual_release.step(lower, upper, size)
        if before == value:
            chance *= moves.truth_to_truth if now == value else moves.truth_to_lie
        elif now == value:
            chance *= moves.lie_to_truth
        else:
            chance *= moves.lie_to_same if now == before else moves.lie_to_other
    return float(chance)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_steps_kernels_and_losses_agree_over_all_sequences(size: int) -> None:
    ladder = (0.3, 1.0, 2.5)
    worst = 0.0
    for answers in product(range(size), repeat=len(ladder)):
        chances = [forward(ladder, size, x, answers) for x in range(size)]
        for x, chance in enumerate(chances):
            assert math.isclose(chance, gradual_release.sequence_probability(ladder, size, x, answers), rel_tol=1e-12)
            ratios = [math.log(chance / other) for other in chances]
            assert ratios == pytest.approx(gradual_release.log_ratios(ladder, size, x, answers), abs=1e-12)
        worst = max(worst, math.log(max(chances) / min(chances)))
        assert np.array(chances) / sum(chances) == pytest.approx(gradual_release.posterior(ladder, size, answers))
    assert math.isclose(worst, gradual_release.sequence_loss(ladder, size), rel_tol=1e-12)
    assert math.isclose(worst, ladder[-1], rel_tol=1e-12)


def test_a_step_by_itself_costs_the_sum_of_both_levels() -> None:
    moves = [[forward((1.0, 2.0), 3, x, (o1, o2)) / rows.channel_matrix(1.0, 3)[x, o1] for x in range(3)]
             for o1, o2 in product(range(3), repeat=2)]  # fmt: skip
    worst = max(math.log(max(row) / min(row)) for row in moves)
    assert math.isclose(worst, gradual_release.step_guarantee(1.0, 2.0, 3), rel_tol=1e-12)
    assert gradual_release.step_guarantee(2.0, 2.0, 3) == 0.0
    assert math.isclose(gradual_release.changed_value_loss(1.0, 2.0, 3), 4.0)


def test_extreme_levels_have_their_limits() -> None:
    sure = gradual_release.step(1.0, math.inf, 5)
    assert (sure.truth_to_truth, sure.lie_to_truth, sure.lie_to_same) == (1.0, 1.0, 0.0)
    same = gradual_release.step(0.0, 0.0, 5)
    assert (same.truth_to_truth, same.lie_to_same, same.keep_lie) == (1.0, 1.0, 1.0)
    fresh = gradual_release.step(0.0, 1.0, 5)
    assert (fresh.keep_truth, fresh.keep_lie) == (0.0, 0.0)
    assert gradual_release.step(0.5, 1.0, 1).truth_to_truth == 1.0
    with pytest.raises(LadderError, match="must not fall"):
        gradual_release.step(1.0, 0.5, 3)
    with pytest.raises(LadderError, match="got -1"):
        gradual_release.kernel(-1.0, 0.5, 3)


def test_the_bridge_is_the_conditional_law_of_the_middle_answer() -> None:
    ladder, size, value = (0.4, 1.0, 2.0), 3, 1
    for low, high in product(range(size), repeat=2):
        joint = np.array([forward(ladder, size, value, (low, middle, high)) for middle in range(size)])
        assert gradual_release.bridge(ladder, size, low, high) == pytest.approx(joint / joint.sum())


def test_estimates_without_information_are_none() -> None:
    assert closed_forms.grr_estimate([0, 0, 0], 1.0) is None
    assert closed_forms.grr_estimate([1, 2, 3], 0.0) is None
    assert closed_forms.binary_estimate(0, 0, 1.0) is None
    assert closed_forms.binary_estimate(1, 2, 0.0) is None
    assert closed_forms.mean_estimate(1, 2, 0.0, 0.0, 1.0) is None
    assert moments.binary_variance(0.0, 10) == math.inf
    estimate = closed_forms.grr_estimate([1, 3], math.inf)
    assert estimate is not None
    assert estimate.tolist() == [0.25, 0.75]


@pytest.mark.parametrize(("size", "weights"), [(2, None), (3, (1, 2, 3, 4)), (4, (0.1, 0.2, 0.3, 0.4)), (3, None)])
def test_attack_errors_equal_the_sum_over_all_sequences(size: int, weights: tuple[float, ...] | None) -> None:
    ladder = (0.3, 0.6, 0.9, 1.2)
    points = [round(10 * w) for w in weights] if weights else [1, 1, 1, 1]
    error = 0.0
    for answers in product(range(size), repeat=len(ladder)):
        score = np.zeros(size, dtype=int)
        np.add.at(score, list(answers), points)
        best = np.flatnonzero(score == score.max())
        error += gradual_release.sequence_probability(ladder, size, 0, answers) * (1 - (0 in best) / len(best))
    assert math.isclose(attacks.frequency_error(ladder, size, weights), error, rel_tol=1e-10)
    # Nothing beats the last answer.
    assert error >= attacks.last_answer_error(ladder[-1], size) - 1e-12
    with pytest.raises(ValueError, match="4 rounds need as many weights; got 1"):
        attacks.frequency_error(ladder, size, [1])


def test_relaxation_beats_every_decoder_of_noisy_samples() -> None:
    for samples in range(2, 12):
        found = noisy_sampling.compare_sampling(1.0, 0.5, samples, 100, 0.4)
        assert found.relaxation < found.weighted <= found.linear + 1e-15
        assert found.relaxation < found.majority


FAMILIES = [
    (kernels.sue(0.5, 1.0), True),
    (kernels.oue(0.5, 1.0), True),
    (kernels.warner(0.6, 0.9), True),
    (kernels.simmons((0.3, 0.4), (0.6, 0.4)), True),
    (kernels.simmons((0.3, 0.1), (0.35, 0.5)), False),
    (kernels.bit((0.9, 0.3), (0.8, 0.05)), False),
    (kernels.bit((0.3, 0.6), (0.2, 0.8)), True),
    (kernels.replacement((0.3, [0.2, 0.8]), (0.6, [0.2, 0.8])), True),
    (kernels.utility_optimized(5, (0.5, {0, 1, 2}), (1.5, {0, 1})), True),
    (kernels.utility_optimized(5, (0.5, {0, 1}), (3.0, {0, 1, 2})), False),
    (kernels.utility_optimized(3, (0.5, {0, 1, 2}), (1.0, ())), True),
    (kernels.key_value((0.5, 0.5), (1.0, 1.0)), True),
    (kernels.key_value((0.5, 1.0), (1.0, 1.0)), False),
    (kernels.cards((0.5, 0.2, 0.3), (0.7, 0.2, 0.1)), True),
    (kernels.cards((0.3, 0.2, 0.5), (0.7, 0.2, 0.1)), True),
    (kernels.cards((0.4, 0.4, 0.2), (0.6, 0.25, 0.15)), True),
    (kernels.cards((0.5, 0.15, 0.35), (0.6, 0.3, 0.1)), True),
    (kernels.to_response([0.1, 0.3, 0.6], [0.2, 0.4, 0.4], 1.0), True),
    (kernels.to_grr(kernels.complement_channel(0.7, 3), 1.2), True),
    (kernels.to_grr(kernels.complement_channel(0.7, 3), 1.0), False),
]


@pytest.mark.parametrize(("found", "possible"), FAMILIES)
def test_closed_forms_agree_with_the_linear_program(found: Degradation, possible: bool) -> None:
    assert found.upper @ found.kernel == pytest.approx(found.lower, abs=1e-12)
    assert found.kernel.sum(axis=1) == pytest.approx(1.0)
    assert found.possible == possible
    assert (find_kernel(found.lower, found.upper) is not None) == possible
    if possible:
        for rows in found.forward():
            for row in rows:
                assert row is None or (min(row) >= -1e-12 and math.isclose(sum(row), 1.0))


def test_random_pairs_are_judged_alike_by_condition_and_program() -> None:
    random = np.random.default_rng(5)
    for _ in range(60):
        lower, upper = random.dirichlet((1, 1, 1), 2).tolist()
        if abs(upper[0] - upper[2]) < 0.02 or abs(lower[0] - lower[2]) < 0.02:
            continue
        program = find_kernel(kernels.cards_channel(lower), kernels.cards_channel(upper)) is not None
        assert kernels.cards_possible(lower, upper) == program == kernels.cards(lower, upper).possible
        p1, q1, p2, q2 = random.uniform(0.02, 0.98, 4)
        found = kernels.bit((p1, q1), (p2, q2))
        assert found.possible == (find_kernel(found.lower, found.upper) is not None)


def test_crossings_between_encodings_follow_their_conditions() -> None:
    for lower, upper in product((0.3, 0.9, 1.3, 1.5), (0.5, 1.0, 2.0, 8.0)):
        crossing = kernels.bit(kernels.pair(REAL.sue(lower)), kernels.pair(REAL.oue(upper)))
        assert crossing.possible == kernels.sue_to_oue_possible(lower, upper)
        least = kernels.oue_to_sue_minimum(lower)
        assert kernels.bit(kernels.pair(REAL.oue(lower)), kernels.pair(REAL.sue(least + 1e-9))).possible
        assert not kernels.bit(kernels.pair(REAL.oue(lower)), kernels.pair(REAL.sue(least - 1e-6))).possible


def test_subset_selection_and_repetition_are_degradations() -> None:
    subsets = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]

    def channel(epsilon: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        weights = np.array([[math.exp(epsilon) if x in s else 1.0 for s in subsets] for x in range(4)])
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    kept = kernels.subset_kept(0.5, 1.5, 4, 2)
    kernel = kept * np.eye(6) + (1 - kept) / 6
    assert channel(1.5) @ kernel == pytest.approx(channel(0.5))
    flip = kernels.repeated_response_minimum(3, 2.0)
    told = REAL.grr(2.0 / 3, 2).truth
    counts = np.array([[math.comb(3, t) * p**t * (1 - p) ** (3 - t) for t in range(4)] for p in (1 - told, told)])
    assert find_kernel(kernels.bit_channel(1 - flip, flip), counts) is not None
    assert find_kernel(kernels.bit_channel(1 - flip + 0.001, flip - 0.001), counts) is None
    fewer = np.array([[math.comb(2, t) * p**t * (1 - p) ** (2 - t) for t in range(3)] for p in (1 - told, told)])
    assert counts @ kernels.repetition_kernel(2) == pytest.approx(fewer)


def test_by_inversion_finds_the_only_candidate() -> None:
    found = kernels.by_inversion(rows.channel_matrix(0.5, 3), rows.channel_matrix(1.5, 3))
    assert found.kernel == pytest.approx(gradual_release.kernel(0.5, 1.5, 3).matrix)
    with pytest.raises(ValueError, match="cannot be sharper"):
        kernels.bit((0.6, 0.4), (0.5, 0.5))
    assert kernels.bit((0.3, 0.3), (0.5, 0.5)).possible


def log_ratio_bit(one: float, zero: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    lie = math.expm1(zero) / math.expm1(one + zero)
    return kernels.bit_channel(math.exp(one) * lie, lie)


def test_a_joint_law_can_exist_where_no_kernel_does() -> None:
    lower, upper = log_ratio_bit(0.5, 0.5), log_ratio_bit(1.0, 0.3)
    assert find_kernel(lower, upper) is None
    joint = find_joint(lower, upper, 1.0)
    assert joint is not None
    assert joint.sum(axis=2) == pytest.approx(lower, abs=1e-7)
    assert find_joint(lower, upper, 0.99) is None
    with pytest.raises(ValueError, match="same values; got 2 and 3 rows"):
        find_kernel(lower, rows.channel_matrix(1.0, 3))


def test_a_ladder_of_any_family_is_planned_or_refused_with_the_nearest() -> None:
    planned = plan_kernels(lambda level: rows.channel_matrix(level, 3), (0.5, 1.0, 2.0))
    assert planned[0].kernel == pytest.approx(gradual_release.kernel(0.5, 1.0, 3).matrix, abs=1e-7)

    def mixed(level: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        return kernels.bit_channel(*(kernels.pair(REAL.sue(level)) if level < 1.2 else kernels.pair(REAL.oue(level))))

    with pytest.raises(LadderError, match="no kernel takes one to the other; the nearest possible ladder") as refusal:
        plan_kernels(mixed, (1.0, 1.3))
    limit = 2 * math.log(2 * REAL.grr(1.3, 2).truth)
    assert refusal.value.nearest == pytest.approx((limit, 1.3), abs=1e-6)
    # Raising the key's level alone never works, whatever the lower level: the rung is left out.
    assert nearest_ladder(lambda level: kernels.key_value_channel(level, 1.0), (0.5, 1.0)) == (1.0,)
