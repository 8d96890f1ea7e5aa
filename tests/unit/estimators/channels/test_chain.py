"""Chains, ladders, forward steps: one law, whichever way it is drawn."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise, product

import numpy as np
import pytest

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain, LadderError, check_ladder
from estimators.channels.channel import ChannelError, RetentionChannel, from_numerators
from estimators.channels.dense_chain import build_dense, on_grid, solve_kernel
from estimators.channels.forward import (
    BitStep,
    DenseStep,
    RetentionStep,
    forward_rows,
    rounded_forward_epsilon,
    rounded_forward_ratio,
)
from estimators.exact.randomness import SeededBits
from estimators.exact.rounding import GRID
from estimators.papers.gradual_release import step
from tests.support.checks import check_chain_law, fractions_of


def test_equal_rungs_repeat_the_answer() -> None:
    drawn = Chain.retention((1.0, 1.0, 1.0), 4).draw(np.zeros(100, dtype=np.int64), SeededBits(1))
    assert np.array_equal(drawn[0], drawn[2])


def test_a_rung_of_zero_is_independent_of_everything_above() -> None:
    chain = Chain.retention((0.0, 0.0, 2.0), 3)
    assert [channel.epsilon for channel in chain.channels][:2] == [0.0, 0.0]
    check_chain_law(chain)


def test_the_seed_decides_also_across_blocks() -> None:
    chain = Chain.retention((0.5, 2.0), 5)
    values = np.arange(40_000, dtype=np.int64) % 5
    assert np.array_equal(chain.draw(values, SeededBits(3)), chain.draw(values, SeededBits(3), dtype="u1"))


@pytest.mark.parametrize(
    ("ladder", "message", "nearest"),
    [
        ((), "at least one level", ()),
        ((2.0, 1.0), "must not fall: 1.0 follows 2.0", (1.0, 2.0)),
        ((1.0, 41.0), r"must be in \[0, 40\]; got 41.0; the nearest possible ladder is \[1.0\]", (1.0,)),
        ((-1.0,), r"must be in \[0, 40\]; got -1.0", ()),
        ((math.nan,), r"got nan", ()),
    ],
)
def test_impossible_ladders_are_refused_with_the_nearest_one(
    ladder: tuple[float, ...], message: str, nearest: tuple[float, ...]
) -> None:
    with pytest.raises(LadderError, match=message) as refusal:
        check_ladder(ladder)
    assert refusal.value.nearest == nearest


def test_a_dense_chain_is_refused_where_no_kernel_exists() -> None:
    lower, upper = [[0.8, 0.2], [0.7, 0.3]], [[0.5, 0.5], [0.4, 0.6]]
    with pytest.raises(LadderError, match=r"cannot be drawn from the answer of level 0\.41.*nearest.*\[0\.41\]"):
        build_dense((0.41, 0.41), [lower, upper])


def test_a_dense_chain_costs_no_more_than_declared() -> None:
    levels = [[[0.6, 0.4], [0.4, 0.6]], [[0.75, 0.25], [0.25, 0.75]]]
    ladder = (math.log(1.5), math.log(3.0))
    chain = build_dense(ladder, levels)
    for channel, declared in zip(chain.channels, ladder, strict=True):
        assert declared - 1e-12 <= channel.epsilon <= declared
    with pytest.raises(ChannelError, match=r"costs 1\.09.*, more than its level 1\.0; raise the level"):
        on_grid(levels[1], 1.0)
    with pytest.raises(ChannelError, match="2 levels of epsilon need as many channels; got 1"):
        build_dense(ladder, levels[:1])


def test_only_an_invertible_channel_determines_its_kernel() -> None:
    with pytest.raises(ChannelError, match="cannot be inverted; pass the kernels"):
        solve_kernel(from_numerators([[1, 1], [1, 1]]), [[0.5, 0.5], [0.5, 0.5]])
    with pytest.raises(ChannelError, match="only a square channel"):
        solve_kernel(from_numerators([[1, 1, 1], [1, 1, 1]]), [[0.5, 0.5], [0.5, 0.5]])


@pytest.mark.parametrize(("size", "pool"), [(2, 2), (3, 3), (5, 5), (4, 2), (3, 1)])
def test_keep_or_refresh_has_the_law_of_a_chain_drawn_from_the_top(size: int, pool: int) -> None:
    lower = RetentionChannel.for_epsilon(0.7, size, pool=pool)
    upper = RetentionChannel.for_epsilon(1.9, size, pool=pool)
    forward = RetentionStep(lower, upper)
    kernel = solve_kernel(upper, fractions_of(lower))
    expected = forward_rows(lower, upper, kernel)
    fresh = fractions_of(upper)
    for x, given in product(range(size), repeat=2):
        row = expected[x][given]
        if row is not None:
            keep = Fraction(1) if x == given >= pool else forward.keep_truth if x == given else forward.keep_lie
            assert row == tuple(keep * (z == given) + (1 - keep) * fresh[x][z] for z in range(size))


def test_keep_probabilities_are_those_of_the_closed_form() -> None:
    lower, upper = RetentionChannel.for_epsilon(0.5, 6), RetentionChannel.for_epsilon(1.5, 6)
    exact, closed = RetentionStep(lower, upper), step(0.5, 1.5, 6)
    assert math.isclose(exact.keep_truth, closed.keep_truth, rel_tol=1e-12)
    assert math.isclose(exact.keep_lie, closed.keep_lie, rel_tol=1e-12)


def test_a_step_to_the_same_level_keeps_everything() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 4)
    values, answers = np.array([0, 1, 2, 3]), np.array([0, 0, 1, 3])
    assert np.array_equal(RetentionStep(channel, channel).draw(values, answers, SeededBits(1)), answers)


def test_forward_steps_are_refused_where_they_would_tell_more() -> None:
    low, high = RetentionChannel.for_epsilon(0.5, 4), RetentionChannel.for_epsilon(1.0, 4)
    with pytest.raises(LadderError, match="must not be below the level"):
        RetentionStep(high, low)
    with pytest.raises(ChannelError, match="same values and the same pool"):
        RetentionStep(low, RetentionChannel.for_epsilon(1.0, 4, pool=2))
    with pytest.raises(LadderError, match="answers already given tell something"):
        DenseStep.solve(high, low)
    with pytest.raises(ChannelError, match="does not take the upper channel to the lower one"):
        DenseStep(low, high, fractions_of(low))


def test_the_forward_step_of_bits_has_the_law_of_a_chain() -> None:
    chain = BitChain.oue((0.5, 1.5), 3)
    odds = BitStep(*chain.channels).odds[0]
    lower, upper = (channel.blocks[0].channel for channel in chain.channels)
    kernel = fractions_of(chain.kernels[0].blocks[0].channel)
    rows = forward_rows(lower, upper, kernel)
    for x, given in product((0, 1), repeat=2):
        row = rows[x][given]
        assert row is not None
        assert odds[x][given] == row[1]


def test_an_answer_that_the_value_never_gives_is_refused() -> None:
    channel = from_numerators([[GRID, 0], [GRID // 2, GRID // 2]])
    unit = DenseStep(channel, channel, ((Fraction(1), Fraction(0)), (Fraction(0), Fraction(1))))
    with pytest.raises(ChannelError, match="value 0 never gives answer 1"):
        unit.draw(np.array([0]), np.array([1]), SeededBits(1))


def excess(ladder: tuple[float, ...], size: int) -> float:
    ratio = rounded_forward_ratio(ladder, size)
    assert ratio is not None
    with localcontext() as context:
        context.prec = 60
        return float((Decimal(ratio.numerator) / Decimal(ratio.denominator)).ln() - Decimal(ladder[-1]))


def test_rounded_forward_thresholds_cost_more_than_the_level() -> None:
    # The reason why chains are drawn from the top: small for small levels, and not small at all for large ones.
    assert math.isclose(excess((0.1, 0.5, 1.0, 2.0), 10), 1.5e-19, rel_tol=0.05)
    assert math.isclose(excess((20.0, 45.0), 3), 0.0546, rel_tol=0.01)
    assert rounded_forward_epsilon((20.0, 45.0), 3) > 45.05
    with pytest.raises(LadderError, match=r"is 0 or 1 on a grid of 4294967296; the answers would give the value away"):
        rounded_forward_epsilon((10.0, 20.0, 30.0), 3, grid=1 << 32)


def brute_force(ladder: tuple[float, ...], size: int, grid: int) -> Fraction:
    """Return e^epsilon of rounded forward steps over all sequences of answers."""

    def nearest(odds: float) -> Fraction:
        return Fraction(round(Fraction(odds) * grid), grid)

    def channel(level: float) -> list[list[Fraction]]:
        truth = nearest(math.exp(level) / (math.exp(level) + size - 1))
        return [[truth if x == y else (1 - truth) / (size - 1) for y in range(size)] for x in range(size)]

    keeps = [
        (nearest(math.expm1(-a) / math.expm1(-b)), nearest(math.expm1(a) / math.expm1(b))) for a, b in pairwise(ladder)
    ]
    worst = Fraction(0)
    for answers in product(range(size), repeat=len(ladder)):
        chances = []
        for x in range(size):
            chance = channel(ladder[0])[x][answers[0]]
            for level, keep, (before, now) in zip(ladder[1:], keeps, pairwise(answers), strict=True):
                kept = keep[0] if before == x else keep[1]
                chance *= kept * (before == now) + (1 - kept) * channel(level)[x][now]
            chances.append(chance)
        worst = max(worst, max(chances) / min(chances))
    return worst


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_the_loss_of_rounded_steps_equals_brute_force(size: int) -> None:
    ladder, grid = (0.5, 1.0, 1.7), 64
    assert rounded_forward_ratio(ladder, size, grid=grid) == brute_force(ladder, size, grid)
