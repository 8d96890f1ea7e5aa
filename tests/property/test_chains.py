"""Laws that hold for all ladders and sizes, in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel
from estimators.channels.rows import channel_matrix
from estimators.exact.rounding import GRID, exp_decimal
from estimators.papers.gradual_release import kernel, step
from tests.support.checks import check_chain_law, check_integers, fractions_of

LEVELS = st.floats(0.0, 40.0, allow_nan=False)
LADDERS = st.lists(LEVELS, min_size=1, max_size=4).map(sorted)
SMALL_LADDERS = st.lists(LEVELS, min_size=1, max_size=3).map(sorted)


@given(LADDERS, st.integers(1, 2000), st.data())
def test_no_rung_costs_more_than_its_level_or_more_than_the_rung_above(
    ladder: list[float], size: int, data: st.DataObject
) -> None:
    pool = data.draw(st.integers(0, size))
    chain = Chain.retention(ladder, size, pool=pool)
    costs = []
    for channel, level in zip(chain.channels, ladder, strict=True):
        assert isinstance(channel, RetentionChannel)
        assert channel.pool_epsilon <= level
        assert channel.keep + pool * channel.base == channel.denominator
        if pool and size > 1 and channel.keep:
            assert Fraction(channel.keep + channel.base, channel.base) <= Fraction(exp_decimal(level))
        costs.append(channel.pool_epsilon)
    assert costs == sorted(costs)
    for drawn in (chain.top, *chain.kernels):
        assert drawn.denominator <= GRID


@given(SMALL_LADDERS, st.integers(1, 4), st.data())
def test_every_prefix_tells_what_its_last_answer_tells(ladder: list[float], size: int, data: st.DataObject) -> None:
    chain = Chain.retention(ladder, size, pool=data.draw(st.integers(0, size)))
    check_integers(chain)
    check_chain_law(chain)


@given(SMALL_LADDERS, st.integers(1, 300), st.sampled_from([BitChain.sue, BitChain.oue]))
def test_unary_chains_stay_within_their_levels(ladder: list[float], size: int, build) -> None:  # type: ignore[no-untyped-def]
    chain = build(ladder, size)
    for channel, level in zip(chain.channels, ladder, strict=True):
        assert channel.one_hot_epsilon() <= level
    bit = Chain(chain.top.blocks[0].channel, tuple(k.blocks[0].channel for k in chain.kernels))
    check_integers(bit)
    check_chain_law(bit)


@given(st.floats(1e-6, 30.0), st.floats(0.0, 30.0), st.integers(2, 50))
def test_closed_forms_multiply_out(lower: float, rise: float, size: int) -> None:
    upper = lower + rise
    moves, down = step(lower, upper, size), kernel(lower, upper, size)
    others = size - 2
    assert math.isclose(moves.truth_to_truth + (size - 1) * (moves.truth_to_lie or 0.0), 1.0, rel_tol=1e-9)
    rest = (moves.lie_to_truth or 0.0) + (moves.lie_to_same or 0.0) + others * (moves.lie_to_other or 0.0)
    assert math.isclose(rest, 1.0, rel_tol=1e-9)
    assert math.isclose(down.same + (size - 1) * down.different, 1.0, rel_tol=1e-9)
    sharp, coarse = channel_matrix(upper, size), channel_matrix(lower, size)
    told = sharp[0, 0] * down.same + (size - 1) * sharp[0, 1] * down.different
    assert math.isclose(told, coarse[0, 0], rel_tol=1e-9)


@given(st.floats(0.0, 20.0), st.floats(0.0, 20.0), st.integers(1, 6))
def test_products_of_channels_are_associative(first: float, second: float, size: int) -> None:
    a, b = RetentionChannel.for_epsilon(first, size), RetentionChannel.for_epsilon(second, size)
    assert fractions_of(a.then(b).then(a)) == fractions_of(a.then(b.then(a)))
