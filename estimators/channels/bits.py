"""Bit vectors: every bit goes through its own exact two-by-two channel; answers are packed, eight bits to a byte.

Unary encodings (SUE, OUE), RAPPOR and the utility-optimised RAPPOR are all of this form: runs of equal bits, called
blocks. A chain keeps one top vector of channels and the kernels below it, like the chains of single symbols.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.channel import ChannelError, DenseChannel, Indices
from estimators.exact.lazy import Bytes, byte_sampler
from estimators.exact.randomness import Bits
from estimators.exact.rounding import GRID, log_ratio_up

Floats = NDArray[np.float64]

# Rows per step of a sampler: small enough for the processor's cache, large enough to hide the cost of a call.
_BLOCK_BYTES = 1 << 17


@dataclass(frozen=True)
class BitBlock:
    """A run of `size` bits with Pr(1 | 1) = one / denominator and Pr(1 | 0) = zero / denominator."""

    size: int
    one: int
    zero: int
    denominator: int = GRID

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ChannelError(f"a block needs at least one bit; got {self.size}")
        if not (0 <= self.one <= self.denominator and 0 <= self.zero <= self.denominator):
            raise ChannelError("both probabilities of a bit must be in [0, 1]")

    @property
    def channel(self) -> DenseChannel:
        """The two-by-two channel of one bit of the run."""
        d = self.denominator
        return DenseChannel(((d - self.zero, self.zero), (d - self.one, self.one)))

    def then(self, kernel: BitBlock) -> BitBlock:
        """Return the exact product: this block followed by `kernel`."""
        if self.size != kernel.size:
            raise ChannelError(f"a run of {self.size} bits cannot be followed by a kernel on {kernel.size}")
        one = self.one * kernel.one + (self.denominator - self.one) * kernel.zero
        zero = self.zero * kernel.one + (self.denominator - self.zero) * kernel.zero
        denominator = self.denominator * kernel.denominator
        common = math.gcd(one, zero, denominator)
        return BitBlock(self.size, one // common, zero // common, denominator // common)

    def rise(self, *, zeros_only: bool = False) -> tuple[int, int]:
        """Return max over answers of Pr(answer | 1) / Pr(answer | 0) as numerator and denominator (0: infinite)."""
        return _larger(*self._ratios(self.one, self.zero), zeros_only)

    def fall(self, *, zeros_only: bool = False) -> tuple[int, int]:
        """Return max over answers of Pr(answer | 0) / Pr(answer | 1) as numerator and denominator (0: infinite)."""
        return _larger(*self._ratios(self.zero, self.one), zeros_only)

    def _ratios(self, up: int, down: int) -> tuple[tuple[int, int], tuple[int, int]]:
        return (up, down), (self.denominator - up, self.denominator - down)


def _larger(one: tuple[int, int], zero: tuple[int, int], zeros_only: bool) -> tuple[int, int]:
    if zeros_only or one == (0, 0):
        return zero
    if zero == (0, 0):
        return one
    return one if one[0] * zero[1] >= zero[0] * one[1] else zero


@dataclass(frozen=True)
class BitChannel:
    """A vector of independent bit channels, given by runs of equal bits in order."""

    blocks: tuple[BitBlock, ...]

    def __post_init__(self) -> None:
        if not self.blocks:
            raise ChannelError("a bit vector needs at least one bit")

    @property
    def size(self) -> int:
        """Number of bits."""
        return sum(block.size for block in self.blocks)

    @property
    def width(self) -> int:
        """Bytes of one packed answer."""
        return -(-self.size // 8)

    @cached_property
    def ones(self) -> Floats:
        """Pr(1 | 1) of every bit."""
        return np.repeat([b.one / b.denominator for b in self.blocks], [b.size for b in self.blocks])

    @cached_property
    def zeros(self) -> Floats:
        """Pr(1 | 0) of every bit."""
        return np.repeat([b.zero / b.denominator for b in self.blocks], [b.size for b in self.blocks])

    def then(self, kernel: BitChannel) -> BitChannel:
        """Return the exact product, block by block."""
        pairs = zip(self.blocks, kernel.blocks, strict=True)
        return BitChannel(tuple(block.then(below) for block, below in pairs))

    def one_hot_epsilon(self, *, quiet: Collection[int] = ()) -> float:
        """Return the exact loss between any two one-hot vectors, rounded up.

        With `quiet` (positions of blocks) only answers without a one in those blocks count: the protected answers of
        a utility-optimised vector.
        """
        worst = 0.0
        for i, up in enumerate(self.blocks):
            for j, down in enumerate(self.blocks):
                if i != j or up.size > 1:
                    rise, fall = up.rise(zeros_only=i in quiet), down.fall(zeros_only=j in quiet)
                    worst = max(worst, log_ratio_up(rise[0] * fall[0], rise[1] * fall[1]))
        return worst

    def subset_epsilon(self, ones: int) -> float:
        """Return a bound, rounded up, on the loss between any two vectors with at most `ones` bits set.

        For a Bloom filter with h hash functions this is the price of the whole string with ones = h: 2h bits differ.
        Exact for equal bits when the vector has at least 2 * ones of them.
        """
        rise = _product([(block.size, block.rise()) for block in self.blocks], ones)
        fall = _product([(block.size, block.fall()) for block in self.blocks], ones)
        return log_ratio_up(rise[0] * fall[0], rise[1] * fall[1])

    def flip_epsilon(self, distance: int) -> float:
        """Return the exact loss between any two vectors that differ in at most `distance` bits, rounded up."""
        worst = [(block.size, _larger(block.rise(), block.fall(), False)) for block in self.blocks]
        return log_ratio_up(*_product(worst, distance))

    @cached_property
    def _if_one(self) -> BitSampler:
        return BitSampler([(block.one, block.denominator) for block in self.blocks for _ in range(block.size)])

    @cached_property
    def _if_zero(self) -> BitSampler:
        return BitSampler([(block.zero, block.denominator) for block in self.blocks for _ in range(block.size)])

    @cached_property
    def _hot_words(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        return self._last_words([block.one for block in self.blocks])

    @cached_property
    def _cold_words(self) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        return self._last_words([block.zero for block in self.blocks])

    def _last_words(self, thresholds: Sequence[int]) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Return per bit the last word below its threshold, which may be 2**64, and whether there is one."""
        sizes = [block.size for block in self.blocks]
        last = np.array([max(threshold - 1, 0) for threshold in thresholds], dtype=np.uint64)
        return np.repeat(last, sizes), np.repeat([threshold > 0 for threshold in thresholds], sizes)

    def _sample_single(self, packed: Bytes, bits: Bits) -> Bytes:
        """Draw the answer of one vector, a word per bit, as docs/spec says: a device needs no tables."""
        given = unpack(packed, self.size)[0].astype(np.bool_)
        (hot, may_be_hot), (cold, may_be_cold) = self._hot_words, self._cold_words
        last, possible = np.where(given, hot, cold), np.where(given, may_be_hot, may_be_cold)
        return pack(((bits.words(self.size) <= last) & possible)[None, :])

    def sample_one_hot(self, values: Indices, bits: Bits) -> Bytes:
        """Draw the packed answers of one-hot vectors whose set bit is `values`; shape (values, width)."""
        self._check_drawable()
        if len(values) == 1:
            return self._sample_single(one_hot(values, self.size), bits)
        last, possible = self._hot_words
        answers = np.empty((len(values), self.width), dtype=np.uint8)
        step = max(_BLOCK_BYTES // self.width, 1)
        for start in range(0, len(values), step):
            part = answers[start : start + step]
            chosen = values[start : start + step]
            self._if_zero.fill(part, bits)
            hot = (bits.words(len(chosen)) <= last.take(chosen)) & possible.take(chosen)
            flat = part.reshape(-1)
            place = np.arange(len(chosen)) * self.width + (chosen >> 3)
            shift = (chosen & 7).astype(np.uint8)
            flat[place] = (flat[place] & ~(np.uint8(1) << shift)) | (hot.astype(np.uint8) << shift)
        return answers

    def sample(self, packed: Bytes, bits: Bits) -> Bytes:
        """Draw the packed answers of packed vectors; shape (vectors, width), spare bits stay zero."""
        self._check_drawable()
        if all(block.one == block.denominator and block.zero == 0 for block in self.blocks):
            return packed.copy()
        if len(packed) == 1:
            return self._sample_single(packed, bits)
        answers = np.empty_like(packed)
        step = max(_BLOCK_BYTES // self.width, 1)
        if_one = np.empty((min(step, len(packed)), self.width), dtype=np.uint8)
        for start in range(0, len(packed), step):
            part, given = answers[start : start + step], packed[start : start + step]
            kept = if_one[: len(part)]
            self._if_one.fill(kept, bits)
            self._if_zero.fill(part, bits)
            # given ? kept : part, without a branch
            part ^= given & (part ^ kept)
        return answers

    @property
    def drawable(self) -> bool:
        """Whether all probabilities are on the 2**64 grid."""
        return all(block.denominator == GRID for block in self.blocks)

    def _check_drawable(self) -> None:
        if not self.drawable:
            raise ChannelError("this channel is a product; draw from the top channel and its kernels instead")

    def canonical(self) -> dict[str, Any]:
        """Return the runs with their integers as decimal strings."""
        return {
            "kind": "bits",
            "blocks": [
                {"size": b.size, "one": str(b.one), "zero": str(b.zero), "denominator": str(b.denominator)}
                for b in self.blocks
            ],
        }


def _product(ratios: list[tuple[int, tuple[int, int]]], count: int) -> tuple[int, int]:
    """Multiply the `count` largest ratios; each comes with the number of bits that have it."""
    product, left = (1, 1), count
    for size, (up, down) in sorted(ratios, key=lambda r: Fraction(*r[1]) if r[1][1] else math.inf, reverse=True):
        used = min(size, left)
        product, left = (product[0] * up**used, product[1] * down**used), left - used
    return product


class BitSampler:
    """Independent bits with exact odds (numerator, denominator) each, drawn eight at a time into packed answers."""

    def __init__(self, odds: Sequence[tuple[int, int]]) -> None:
        self.width = -(-len(odds) // 8)
        spare = 8 * self.width - len(odds)
        # Spare bits are drawn like the last one and wiped afterwards: a vector of equal bits then needs one table.
        padded = [*odds, *((odds[-1],) * spare)]
        signatures = (tuple(padded[8 * i : 8 * i + 8]) for i in range(self.width))
        self._runs = [(byte_sampler(signature), len(list(run))) for signature, run in groupby(signatures)]
        self._mask = np.uint8((1 << (8 - spare)) - 1) if spare else None

    def fill(self, answers: Bytes, bits: Bits) -> None:
        """Fill packed `answers` (rows, width) with fresh bits."""
        start = 0
        for sampler, run in self._runs:
            if sampler.sure is not None:
                answers[:, start : start + run] = sampler.sure
            else:
                drawn = sampler.draw(len(answers) * run, bits)
                answers[:, start : start + run] = drawn.reshape(len(answers), run)
            start += run
        if self._mask is not None:
            answers[:, -1] &= self._mask


def one_hot(values: Indices, size: int) -> Bytes:
    """Return packed one-hot vectors; shape (values, ceil(size / 8))."""
    packed = np.zeros((len(values), -(-size // 8)), dtype=np.uint8)
    packed[np.arange(len(values)), values >> 3] = np.uint8(1) << (values & 7).astype(np.uint8)
    return packed


def pack(matrix: NDArray[Any]) -> Bytes:
    """Pack a matrix of zeros and ones (rows, bits), bit j in byte j // 8 at position j % 8."""
    return np.packbits(np.asarray(matrix, dtype=np.bool_), axis=1, bitorder="little")


def unpack(packed: Bytes, size: int) -> NDArray[np.uint8]:
    """Return the bits of packed vectors, shape (rows, size)."""
    return np.unpackbits(packed, axis=1, count=size, bitorder="little")


def count_ones(packed: Bytes, size: int) -> NDArray[np.int64]:
    """Return how many of the packed vectors (rows, width) have each bit set."""
    total = np.zeros(size, dtype=np.int64)
    step = max(_BLOCK_BYTES // packed.shape[1], 1)
    for start in range(0, len(packed), step):
        total += unpack(packed[start : start + step], size).sum(axis=0, dtype=np.int64)
    return total
