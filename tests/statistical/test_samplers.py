"""The samplers under all mechanisms, closely: wrong by five per cent in epsilon would be seen.

One share (1e-10) of the suite's budget per assertion. Sample sizes come from the power that is wanted.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import BitBlock, BitChannel, one_hot, unpack
from estimators.channels.chain import Chain
from estimators.channels.channel import RetentionChannel, from_numerators
from estimators.channels.forward import BitStep, DenseStep, RetentionStep
from estimators.exact.lazy import bernoulli
from estimators.exact.randomness import SecureBits, SeededBits
from estimators.exact.rounding import GRID
from tests.support.checks import fractions_of
from tests.support.randomised import check_channel_law
from tests.support.stats import assert_binomial, assert_law, sample_size

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("bits", [SeededBits(1), SecureBits()], ids=["seeded", "secure"])
def test_the_truth_is_told_as_often_as_epsilon_says(bits: SeededBits | SecureBits) -> None:
    # With secure bits this test has a false alarm in one of 10^10 runs, and no seed to blame.
    right, wrong = RetentionChannel.for_epsilon(1.0, 8), RetentionChannel.for_epsilon(1.05, 8)
    devices = sample_size(right.truth, wrong.truth)
    told = right.sample(np.full(devices, 5, dtype=np.int64), bits)
    assert_law(np.bincount(told, minlength=8), np.array([float(p) for p in fractions_of(right)[5]]))


@pytest.mark.parametrize(("one", "zero"), [(GRID // 2, GRID // 10), (GRID, 1), (3, 1), (GRID // 3, GRID - 5)])
def test_bits_of_a_vector_are_independent_with_their_odds(one: int, zero: int) -> None:
    channel = BitChannel((BitBlock(6, one, zero), BitBlock(5, zero, one)))
    devices = 60_000
    values = np.arange(devices, dtype=np.int64) % 11
    truth = unpack(one_hot(values, 11), 11)
    odds = np.where(truth == 1, channel.ones, channel.zeros)
    for drawn in (
        unpack(channel.sample_one_hot(values, SeededBits(2)), 11),
        unpack(channel.sample(one_hot(values, 11), SeededBits(3)), 11),
    ):
        for value in range(11):
            for bit in range(11):
                chosen = drawn[values == value, bit]
                assert_binomial(int(chosen.sum()), len(chosen), float(odds[value, bit]))
        # Neighbouring bits come from one table: their pairs must not depend on each other.
        for left, right in ((0, 1), (6, 7), (7, 8), (3, 10)):
            chosen = values == 5
            both = int((drawn[chosen, left] & drawn[chosen, right]).sum())
            assert_binomial(both, int(chosen.sum()), float(odds[5, left] * odds[5, right]))


def test_fractions_that_no_word_can_hold_are_drawn_exactly_enough() -> None:
    for odds in (Fraction(1, 3), Fraction(1, 10**25), 1 - Fraction(1, 3**50), Fraction(2, 65_537)):
        drawn = bernoulli(odds, 300_000, SeededBits(4))
        assert_binomial(int(drawn.sum()), 300_000, float(odds))


def test_a_level_added_later_has_the_law_of_a_chain_drawn_from_the_top() -> None:
    chain = Chain.retention((0.5, 1.5), 4, pool=3)
    lower, upper = chain.channels
    assert isinstance(lower, RetentionChannel)
    assert isinstance(upper, RetentionChannel)
    values = np.arange(80_000, dtype=np.int64) % 4
    before = chain.draw(values, SeededBits(5))[0]
    after = RetentionStep(lower, upper).draw(values, before, SeededBits(6))
    check_channel_law(upper, values, after)
    # Given the sharper answer the coarser one follows the kernel, for every value alike.
    for value in range(4):
        check_channel_law(chain.kernels[0], after[values == value], before[values == value])


def test_forward_steps_of_vectors_and_small_channels_have_that_law_too() -> None:
    vectors = BitChain.oue((0.5, 1.5), 9)
    values = np.arange(40_000, dtype=np.int64) % 9
    truth = one_hot(values, 9)
    before = vectors.draw_one_hot(values, SeededBits(7))[0]
    after = BitStep(*vectors.channels).draw(truth, before, SeededBits(8))
    flat = [unpack(packed, 9).reshape(-1).astype(np.int64) for packed in (truth, before, after)]
    check_channel_law(vectors.channels[1].blocks[0].channel, flat[0], flat[2])
    for bit in (0, 1):
        kernel = vectors.kernels[0].blocks[0].channel
        check_channel_law(kernel, flat[2][flat[0] == bit], flat[1][flat[0] == bit])

    upper = from_numerators([[GRID // 2, GRID // 4, GRID // 4], [GRID // 8, GRID // 2, GRID - 5 * (GRID // 8)],
                             [GRID // 4, GRID // 4, GRID // 2]])  # fmt: skip
    kernel = from_numerators([[3, 1, 0], [1, 2, 1], [0, 1, 3]])
    lower = upper.then(kernel)
    values = np.arange(60_000, dtype=np.int64) % 3
    first = kernel.sample(upper.sample(values, SeededBits(9)), SeededBits(10))
    second = DenseStep.solve(lower, upper).draw(values, first, SeededBits(11))
    check_channel_law(upper, values, second)
    for value in range(3):
        check_channel_law(kernel, second[values == value], first[values == value])
