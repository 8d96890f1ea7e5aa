"""Exact draws that spend few random bits: sixteen decide almost always, and only the rest draws more.

The first sixteen bits select one of 65,536 cells. An outcome owns as many whole cells as its probability holds; the few
cells left over are shared exactly by a second draw from what the whole cells did not cover. So the law is that of the
integer weights, not an approximation of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import Bits, Words

CELLS = 1 << 16
Bytes = NDArray[np.uint8]


def cells(count: int, bits: Bits) -> NDArray[np.uint16]:
    """Return `count` uniform 16-bit integers."""
    return bits.words(-(-count // 4)).view("<u2")[:count]


class CellSampler:
    """Draw outcomes 0..len(weights) - 1 (at most 256 of them) in exact proportion to integer weights."""

    def __init__(self, weights: Sequence[int]) -> None:
        if not 1 <= len(weights) <= 256 or min(weights) < 0 or sum(weights) == 0:
            raise ValueError("weights must be 1 to 256 non-negative integers, not all zero")
        total = sum(weights)
        self.sure = next((i for i, weight in enumerate(weights) if weight == total), None)
        whole = [weight * CELLS // total for weight in weights]
        rest = [weight * CELLS - cells_owned * total for weight, cells_owned in zip(weights, whole, strict=True)]
        self._first_shared = sum(whole)
        self._table = np.zeros(CELLS, dtype=np.uint8)
        self._table[: self._first_shared] = np.repeat(np.arange(len(weights), dtype=np.uint8), whole)
        # Edges of the shared part, as exact integers over self._scale and as words for the common case.
        self._scale = max(sum(rest), 1)
        self._edges = list(accumulate(rest))[:-1]
        # An edge at 1 cannot be reached by any word, and 2**64 does not fit the dtype.
        words = [(edge << 64) // self._scale for edge in self._edges]
        self._edge_words = np.array([word for word in words if word < 1 << 64], dtype=np.uint64)

    def resolve(self, drawn: NDArray[np.uint16], bits: Bits) -> Bytes:
        """Turn uniform 16-bit integers (one dimension) into outcomes; shared cells draw one word more."""
        outcomes = self._table.take(drawn)
        if self._first_shared < CELLS:
            shared = np.flatnonzero(drawn >= np.uint16(self._first_shared))
            if shared.size:
                outcomes[shared] = self.draw_shared(bits.words(shared.size), bits)
        return outcomes

    def draw(self, count: int, bits: Bits) -> Bytes:
        """Draw `count` outcomes; a sure one takes no random bits."""
        if self.sure is not None:
            return np.full(count, self.sure, dtype=np.uint8)
        return self.resolve(cells(count, bits), bits)

    def draw_shared(self, words: Words, bits: Bits) -> Bytes:
        """Turn words into outcomes of the shared cells; a word that straddles an edge draws more words."""
        outcomes = np.searchsorted(self._edge_words, words, side="right")
        if self._edge_words.size:
            at_edge = (outcomes > 0) & (self._edge_words[np.maximum(outcomes, 1) - 1] == words)
            for i in np.flatnonzero(at_edge):
                outcomes[i] = self._refine(int(words[i]), bits)
        return outcomes.astype(np.uint8)

    def _refine(self, position: int, bits: Bits) -> int:
        """Append words to `position` until the interval [position, position + 1) / scale holds no edge inside."""
        scale = 1 << 64
        while True:
            low = bisect_right(self._edges, Fraction(position * self._scale, scale))
            high = bisect_left(self._edges, Fraction((position + 1) * self._scale, scale))
            if low >= high:
                return low
            position, scale = position << 64 | int(bits.words(1)[0]), scale << 64


@lru_cache(maxsize=512)
def byte_sampler(bit_odds: tuple[tuple[int, int], ...]) -> CellSampler:
    """Return the sampler of eight independent bits; bit_odds are (numerator, denominator) of Pr(bit = 1), lowest first.

    512 of them take 32 MiB; a survey of equal bits needs two.
    """
    weights = [1]
    for numerator, denominator in bit_odds:
        weights = [w * (denominator - numerator) for w in weights] + [w * numerator for w in weights]
    return CellSampler(weights)


def bernoulli(odds: Fraction, count: int, bits: Bits) -> NDArray[np.bool_]:
    """Draw `count` booleans that are true with exactly the probability `odds`."""
    if not 0 <= odds <= 1:
        raise ValueError(f"a probability must be in [0, 1]; got {odds}")
    sampler = _bernoulli_sampler(odds.numerator, odds.denominator)
    return sampler.draw(count, bits).astype(np.bool_)


@lru_cache(maxsize=256)
def _bernoulli_sampler(numerator: int, denominator: int) -> CellSampler:
    return CellSampler((denominator - numerator, numerator))
