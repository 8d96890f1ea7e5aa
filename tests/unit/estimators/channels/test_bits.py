"""Bit vectors: packing, exact prices, samplers at their edges."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from estimators.channels.bit_chain import BitChain, BitRun
from estimators.channels.bits import BitBlock, BitChannel, count_ones, one_hot, pack, unpack
from estimators.channels.chain import LadderError
from estimators.channels.channel import ChannelError
from estimators.channels.response import EXACT, Response
from estimators.exact.lazy import CELLS, CellSampler, bernoulli
from estimators.exact.randomness import SeededBits, Words
from estimators.exact.rounding import GRID


class Script:
    """Words in a given order; asking for more fails the test."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> Words:
        assert count <= len(self.left), "more random words were drawn than expected"
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def test_packing_puts_bit_j_into_byte_j_div_8() -> None:
    packed = one_hot(np.array([0, 7, 8, 12]), 13)
    assert packed.tolist() == [[1, 0], [128, 0], [0, 1], [0, 16]]
    assert np.array_equal(pack(unpack(packed, 13)), packed)
    assert count_ones(packed, 13).tolist() == [1, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1]


def test_whole_cells_decide_at_once_and_shared_ones_draw_one_word_more() -> None:
    # Weights 1:2 own 21,845 and 43,690 cells of 65,536; the last cell is shared.
    sampler = CellSampler((1, 2))
    cells = np.array([0, 21_844, 21_845, 65_534], dtype=np.uint16)
    assert sampler.resolve(cells, Script()).tolist() == [0, 0, 1, 1]
    third = (1 << 64) // 3
    shared = np.full(3, 65_535, dtype=np.uint16)
    # The word at the edge straddles it: one third is no multiple of 2^-64, and the next word decides.
    assert sampler.resolve(shared, Script(0, third - 1, third + 1)).tolist() == [0, 0, 1]
    assert sampler.resolve(shared[:1], Script(third, 0)).tolist() == [0]
    assert sampler.resolve(shared[:1], Script(third, third + 1)).tolist() == [1]
    assert sampler.resolve(shared[:1], Script(third, third, third + 1)).tolist() == [1]


def test_the_whole_law_of_a_sampler_is_exact() -> None:
    # Cells owned plus the shared part, summed over all cells, give back every weight.
    weights = (3, 0, 1_000_003, 17, GRID)
    sampler = CellSampler(weights)
    owned = np.bincount(sampler._table[: sampler._first_shared], minlength=5)
    edges = [0, *sampler._edges, sampler._scale]
    shared = CELLS - sampler._first_shared
    for i, weight in enumerate(weights):
        rest = Fraction(edges[i + 1] - edges[i], sampler._scale) * shared
        assert (int(owned[i]) + rest) / CELLS == Fraction(weight, sum(weights))


def test_sure_and_impossible_outcomes_need_no_luck() -> None:
    assert CellSampler((0, 1)).draw(8, SeededBits(1)).tolist() == [1] * 8
    assert not bernoulli(Fraction(0), 100, SeededBits(1)).any()
    assert bernoulli(Fraction(1), 100, SeededBits(1)).all()
    with pytest.raises(ValueError, match=r"a probability must be in \[0, 1\]; got 3/2"):
        bernoulli(Fraction(3, 2), 1, SeededBits(1))
    for weights in ((), (0, 0), (-1, 2), (1,) * 257):
        with pytest.raises(ValueError, match="1 to 256 non-negative integers"):
            CellSampler(weights)


def test_spare_bits_stay_zero() -> None:
    channel = BitChannel((BitBlock(13, GRID, GRID),))
    assert channel.sample_one_hot(np.zeros(5, dtype=np.int64), SeededBits(1)).tolist() == [[255, 31]] * 5
    assert channel.sample(np.zeros((5, 2), dtype=np.uint8), SeededBits(1)).tolist() == [[255, 31]] * 5


def test_a_vector_that_never_lies_returns_its_input() -> None:
    channel = BitChannel((BitBlock(20, GRID, 0),))
    packed = one_hot(np.arange(20), 20)
    assert np.array_equal(channel.sample_one_hot(np.arange(20), SeededBits(1)), packed)
    assert np.array_equal(channel.sample(packed, SeededBits(1)), packed)


def test_an_impossible_set_bit_stays_unset() -> None:
    channel = BitChannel((BitBlock(9, 0, GRID),))
    drawn = unpack(channel.sample_one_hot(np.arange(9), SeededBits(1)), 9)
    assert np.array_equal(drawn, 1 - np.eye(9, dtype=np.uint8))


def test_prices_of_vectors_equal_enumeration() -> None:
    channel = BitChannel((BitBlock(2, 3 << 62, 1 << 62), BitBlock(2, 1 << 63, 1 << 61)))

    def chance(vector: tuple[int, ...], answer: tuple[int, ...]) -> Fraction:
        odds = [Fraction(b.one if bit else b.zero, b.denominator) for b, bit in zip(per_bit, vector, strict=True)]
        return math.prod((o if bit else 1 - o for o, bit in zip(odds, answer, strict=True)), start=Fraction(1))

    per_bit = [block for block in channel.blocks for _ in range(block.size)]
    answers = list(product((0, 1), repeat=4))

    def loss(vectors: list[tuple[int, ...]], distance: int = 4) -> float:
        pairs = [(v, w) for v in vectors for w in vectors if sum(a != b for a, b in zip(v, w, strict=True)) <= distance]
        return math.log(max(chance(v, a) / chance(w, a) for v, w in pairs for a in answers))

    hot = [v for v in answers if sum(v) == 1]
    assert math.isclose(channel.one_hot_epsilon(), loss(hot), rel_tol=1e-12)
    assert math.isclose(channel.flip_epsilon(1), loss(answers, 1), rel_tol=1e-12)
    assert math.isclose(channel.flip_epsilon(3), loss(answers, 3), rel_tol=1e-12)
    assert channel.subset_epsilon(1) >= loss([v for v in answers if sum(v) <= 1])
    equal = BitChannel((BitBlock(4, 3 << 62, 1 << 62),))
    assert math.isclose(equal.subset_epsilon(2), 4 * math.log(3), rel_tol=1e-12)


def test_quiet_bits_may_give_away_values_that_are_not_sensitive() -> None:
    channel = BitChannel((BitBlock(2, 3 << 62, 1 << 62), BitBlock(2, 1 << 62, 0)))
    assert channel.one_hot_epsilon() == math.inf
    assert 0 < channel.one_hot_epsilon(quiet=(1,)) < math.inf


def test_blocks_that_are_no_channel_are_refused() -> None:
    with pytest.raises(ChannelError, match="at least one bit"):
        BitBlock(0, 1, 1)
    with pytest.raises(ChannelError, match=r"must be in \[0, 1\]"):
        BitBlock(1, GRID + 1, 0)
    with pytest.raises(ChannelError, match="at least one bit"):
        BitChannel(())
    with pytest.raises(ChannelError, match="a run of 2 bits cannot be followed by a kernel on 3"):
        BitBlock(2, 1, 1).then(BitBlock(3, 1, 1))
    product_channel = BitChain.oue((0.5, 1.0), 4).channels[0]
    for draw in (product_channel.sample, product_channel.sample_one_hot):
        with pytest.raises(ChannelError, match="this channel is a product"):
            draw(np.zeros((1, 1), dtype=np.uint8), SeededBits(1))


def test_a_bit_that_tells_something_else_cannot_follow() -> None:
    # Symmetric below optimised at one level: the lower bit's zeros tell more than the upper bit's.
    levels = [[BitRun(3, EXACT.grr(0.5, 2))], [BitRun(3, EXACT.oue(1.0))]]
    message = r"tells something that a bit with probabilities .* does not; leave one of them out"
    with pytest.raises(LadderError, match=message) as refusal:
        BitChain.build((1.0, 1.0), levels, BitChannel.one_hot_epsilon)
    assert refusal.value.nearest == (1.0,)
    with pytest.raises(ChannelError, match=r"must be in \[0, 1\]"):
        BitChain.build((1.0,), [[BitRun(3, Response.of(Fraction(3, 2), Fraction(1, 2)))]], BitChannel.one_hot_epsilon)


def test_probabilities_that_cost_more_than_their_level_are_refused() -> None:
    with pytest.raises(LadderError, match=r"these probabilities cost .*, more than their level 0\.5; raise the level"):
        BitChain.build((0.5,), [[BitRun(3, EXACT.grr(1.0, 2))]], BitChannel.one_hot_epsilon)


def test_probabilities_given_as_floats_are_rounded_down_to_their_level() -> None:
    exact = EXACT.grr(0.5, 2)
    floats = Response.of(Fraction(float(exact.truth) + 1e-16), Fraction(float(exact.lie)))
    chain = BitChain.build((1.0,), [[BitRun(3, floats)]], BitChannel.one_hot_epsilon)
    assert 1 - 1e-12 <= chain.channels[0].one_hot_epsilon() <= 1.0
