"""Is epsilon really 1? Multiply out the integers that devices compare their random words with."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import pytest

from estimators.channels.bit_chain import BitChain
from estimators.channels.chain import Chain
from estimators.channels.channel import ChannelError, RetentionChannel
from estimators.exact.rounding import GRID, exp_decimal, log_ratio_up, scaled_ceil, scaled_floor


def at_most(ratio: Fraction, epsilon: float) -> bool:
    """Tell whether ratio <= e^epsilon, with 80 digits."""
    return ratio <= Fraction(exp_decimal(epsilon))


def test_the_odds_of_truth_at_epsilon_one_are_e_to_one_from_below() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 4)
    assert channel.keep + 4 * channel.base == GRID
    ratio = Fraction(channel.keep + channel.base, channel.base)
    assert at_most(ratio, 1.0)
    # One unit less of lying would already be too much: the rounding gives nothing away.
    sharper = Fraction(GRID - 4 * (channel.base - 1) + channel.base - 1, channel.base - 1)
    assert not at_most(sharper, 1.0)
    assert channel.epsilon == 1.0


@pytest.mark.parametrize("size", [2, 3, 10, 1000])
@pytest.mark.parametrize("ladder", [(1.0,), (0.1, 0.5, 1.0), (0.999999999999, 1.0), (1.0, 20.0), (5.0, 10.0, 40.0)])
def test_every_prefix_of_a_chain_is_within_its_level(size: int, ladder: tuple[float, ...]) -> None:
    chain = Chain.retention(ladder, size)
    for channel, declared in zip(chain.channels, ladder, strict=True):
        assert isinstance(channel, RetentionChannel)
        ratio = Fraction(channel.keep + channel.base, channel.base)
        assert at_most(ratio, declared)
        assert channel.epsilon <= declared


@pytest.mark.parametrize("build", [BitChain.sue, BitChain.oue])
def test_unary_vectors_pay_for_two_bits(build) -> None:  # type: ignore[no-untyped-def]
    chain = build((0.5, 1.0, 3.0), 3)
    for channel, declared in zip(chain.channels, (0.5, 1.0, 3.0), strict=True):
        worst = max(
            Fraction(_chance(channel, 0, answer), _chance(channel, 1, answer)) for answer in product((0, 1), repeat=3)
        )
        assert at_most(worst, declared)
        assert math.isclose(math.log(worst), declared, rel_tol=1e-12)
        assert channel.one_hot_epsilon() == log_ratio_up(worst.numerator, worst.denominator)


def _chance(channel, value: int, answer: tuple[int, ...]) -> int:  # type: ignore[no-untyped-def]
    """Return the numerator of Pr(answer | one-hot value), over one denominator for all values."""
    block = channel.blocks[0]
    odds = [block.one if i == value else block.zero for i in range(len(answer))]
    return math.prod(o if bit else block.denominator - o for o, bit in zip(odds, answer, strict=True))


def test_a_level_of_zero_tells_nothing() -> None:
    channel = RetentionChannel.for_epsilon(0.0, 3)
    assert channel.row(0) == channel.row(1) == channel.row(2)
    assert channel.epsilon == 0.0
    assert channel.denominator <= GRID


def test_levels_that_the_grid_cannot_tell_from_never_are_refused() -> None:
    with pytest.raises(ChannelError, match=r"epsilon must be in \[0, 40\]; got 41"):
        RetentionChannel.for_epsilon(41.0, 2)


def test_logarithms_are_rounded_up() -> None:
    for numerator, denominator in ((3, 2), (10**30 + 1, 10**30), (7, 9), (2**64, 3)):
        found = log_ratio_up(numerator, denominator)
        with localcontext() as context:
            context.prec = 60
            exact = (Decimal(numerator) / Decimal(denominator)).ln()
            assert Decimal(found) >= exact
            assert Decimal(math.nextafter(found, -math.inf)) < exact
    assert log_ratio_up(5, 0) == math.inf
    assert log_ratio_up(0, 5) == -math.inf
    assert log_ratio_up(0, 0) == 0.0
    with pytest.raises(ValueError, match="cannot be negative"):
        log_ratio_up(-1, 2)


def test_scaling_rounds_to_the_side_that_was_asked_for() -> None:
    assert scaled_ceil(1, 3, 10) == 4
    assert scaled_floor(1, 3, 10) == 3
    assert scaled_ceil(1, 2, 10) == scaled_floor(1, 2, 10) == 5
    with pytest.raises(ValueError, match="finite number; got nan"):
        exp_decimal(math.nan)
