"""Channels: products, inverses, guarantees, refusals."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from estimators.channels.channel import ChannelError, DenseChannel, RetentionChannel, binary, from_numerators, identity
from estimators.exact.randomness import SeededBits
from tests.support.checks import check_inversion, fractions_of


def test_products_of_retention_channels_stay_in_the_family_and_are_exact() -> None:
    first, second = RetentionChannel.for_epsilon(2.0, 4), RetentionChannel.for_epsilon(1.0, 4)
    product = first.then(second)
    assert isinstance(product, RetentionChannel)
    dense = DenseChannel(tuple(first.row(x) for x in range(4))).then(second)
    assert fractions_of(product) == fractions_of(dense)


def test_a_kernel_with_another_pool_gives_a_dense_product() -> None:
    product = RetentionChannel.for_epsilon(2.0, 4).then(RetentionChannel.for_epsilon(1.0, 4, pool=2))
    assert isinstance(product, DenseChannel)
    assert all(sum(row) == product.denominator for row in product.rows)


def test_the_identity_changes_nothing() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 5)
    assert fractions_of(channel.then(identity(5))) == fractions_of(channel)


@pytest.mark.parametrize(
    "channel",
    [
        RetentionChannel.for_epsilon(1.0, 3),
        RetentionChannel.for_epsilon(0.3, 5, pool=2),
        RetentionChannel.for_epsilon(20.0, 4),
        RetentionChannel.for_epsilon(1.0, 4, pool=1),
        RetentionChannel.for_epsilon(1.0, 1),
        RetentionChannel.for_epsilon(2.0, 3).then(RetentionChannel.for_epsilon(1.0, 3)),
        from_numerators([[5, 3, 2], [2, 3, 5]]),
        from_numerators([[7, 2, 1], [1, 8, 1], [2, 2, 6]]),
        binary(3 << 62, 1 << 62),
    ],
    ids=lambda channel: type(channel).__name__,
)
def test_inverse_and_moments_agree_with_enumeration(channel: DenseChannel | RetentionChannel) -> None:
    check_inversion(channel)


def test_the_utility_optimised_guarantee_names_the_protected_answers() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 5, pool=2)
    found = channel.utility_optimized((0, 1))
    assert found.protected == {0, 1}
    assert found.epsilon == channel.pool_epsilon <= 1.0
    assert channel.epsilon == math.inf
    # A value outside the pool that is called sensitive after all has no protection.
    assert channel.utility_optimized((0, 1, 2)).epsilon == math.inf


def test_without_other_values_the_guarantee_is_the_local_one() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 3)
    found = channel.utility_optimized(range(3))
    assert found.epsilon == channel.epsilon
    assert found.protected == {0, 1, 2}


def test_a_channel_that_tells_nothing_cannot_be_inverted() -> None:
    with pytest.raises(ChannelError, match="tells nothing; leave its answers out"):
        RetentionChannel.for_epsilon(0.0, 3).unbias([1, 2, 3], 6)
    with pytest.raises(ChannelError, match="do not determine the shares"):
        from_numerators([[1, 1], [1, 1]]).unbias([1, 2], 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "at least one value"),
        ([[1, 2], [3]], "same number of answers"),
        ([[1, -1], [0, 0]], "cannot be negative"),
        ([[1, 1], [1, 2]], "same positive denominator"),
        ([[0, 0], [0, 0]], "same positive denominator"),
    ],
)
def test_rows_that_are_no_channel_are_refused(rows: list[list[int]], message: str) -> None:
    with pytest.raises(ChannelError, match=message):
        from_numerators(rows)


def test_impossible_retention_channels_are_refused() -> None:
    for arguments, message in (
        ((0, 0, 1, 0), "at least one value"),
        ((3, 4, 1, 1), "pool must hold 0 to 3 values; got 4"),
        ((3, 3, -1, 1), "non-negative"),
        ((3, 3, 0, 0), "not both zero"),
    ):
        with pytest.raises(ChannelError, match=message):
            RetentionChannel(*arguments)
    with pytest.raises(ChannelError, match="cannot follow 3 answers by a kernel on 4 inputs"):
        RetentionChannel.for_epsilon(1.0, 3).then(identity(4))


def test_products_are_not_drawn_from() -> None:
    product = RetentionChannel.for_epsilon(2.0, 4).then(RetentionChannel.for_epsilon(1.0, 4))
    dense = binary(3 << 62, 1 << 62).then(binary(1 << 63, 1 << 61))
    for channel in (product, dense):
        with pytest.raises(ChannelError, match="draw from the top channel and its kernels instead"):
            channel.sample(np.zeros(1, dtype=np.int64), SeededBits(1))


class Fixed:
    """Words that a test has chosen."""

    def __init__(self, *words: int) -> None:
        self._words = list(words)

    def words(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        taken, self._words = self._words[:count], self._words[count:]
        return np.array(taken, dtype=np.uint64)


def test_the_first_and_the_last_word_of_every_answer_decide_for_it() -> None:
    channel = RetentionChannel.for_epsilon(1.0, 3)
    edges = [0, channel.keep, channel.keep + channel.base, channel.keep + 2 * channel.base, 1 << 64]
    words = [word for low, high in pairwise(edges) for word in (low, high - 1)]
    values = np.full(len(words), 2, dtype=np.int64)
    assert channel.sample(values, Fixed(*words)).tolist() == [2, 2, 0, 0, 1, 1, 2, 2]


def test_impossible_answers_are_never_drawn() -> None:
    channel = from_numerators([[0, 0, 1 << 63, 1 << 63], [1 << 63, 0, 0, 1 << 63]])
    drawn = channel.sample(np.array([0, 0, 0, 0, 1, 1]), Fixed(0, 1, (1 << 63) - 1, 1 << 63, 0, (1 << 64) - 1))
    assert drawn.tolist() == [2, 2, 2, 3, 0, 3]


def test_fractions_of_a_channel_sum_to_one() -> None:
    for row in fractions_of(RetentionChannel.for_epsilon(0.7, 7, pool=3)):
        assert sum(row) == Fraction(1)
