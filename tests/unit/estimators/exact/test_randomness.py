"""Random words: without bias, reproducible where seeded, never shared across a fork where secure."""

from __future__ import annotations

import os

import numpy as np
import pytest

from estimators.exact.randomness import SecureBits, SeededBits, Words, below
from tests.support.stats import assert_binomial, assert_law


def test_seeded_streams_depend_on_seed_and_labels_only() -> None:
    words = SeededBits(1, "fleet", 7).words(4)
    stream = SeededBits(1, "fleet", 7)
    assert np.array_equal(np.concatenate([stream.words(1), stream.words(3)]), words)
    for other in (SeededBits(2, "fleet", 7), SeededBits(1, "fleet", 8), SeededBits(1, "fleets", 7), SeededBits(1)):
        assert not np.array_equal(other.words(4), words)


def test_secure_words_differ_after_a_fork() -> None:
    bits = SecureBits()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, bits.words(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), dtype="<u8")
    os.close(read)
    os.close(write)
    ours = bits.words(4)
    assert theirs.shape == (4,)
    assert not np.intersect1d(ours, theirs).size


def test_secure_words_come_in_the_number_asked_for() -> None:
    assert SecureBits().words(0).shape == (0,)
    assert SecureBits().words(5).dtype == np.dtype("<u8")


class Script:
    """Words in a given order."""

    def __init__(self, *words: int) -> None:
        self.left = list(words)

    def words(self, count: int) -> Words:
        taken, self.left = self.left[:count], self.left[count:]
        return np.array(taken, dtype=np.uint64)


def test_words_that_would_favour_small_numbers_are_drawn_again() -> None:
    largest = (1 << 64) - 1
    # 2^64 = 3 k + 1: the very last word has no partners.
    assert below(3, 2, Script(largest, 5, 4)).tolist() == [1, 2]
    assert below(3, 1, Script(largest, largest, 2)).tolist() == [2]
    assert below(1 << 64, 1, Script(largest)).tolist() == [largest]
    assert below(8, 1, Script(largest)).tolist() == [7]
    assert below(1, 2, Script(5, 6)).tolist() == [0, 0]
    for bound in (0, (1 << 64) + 1):
        with pytest.raises(ValueError, match="bound must be in"):
            below(bound, 1, Script(1))


@pytest.mark.statistical
def test_bounded_integers_are_uniform() -> None:
    # A bound just above half the range rejects almost every second word. One share per check.
    bound = (1 << 63) + 12_345
    drawn = below(bound, 100_000, SeededBits(7))
    assert int(drawn.max()) < bound
    assert_binomial(int((drawn < np.uint64(bound // 2)).sum()), 100_000, (bound // 2) / bound)
    counts = np.bincount(below(10, 200_000, SeededBits(8)).astype(np.int64), minlength=10)
    assert_law(counts, [0.1] * 10)
