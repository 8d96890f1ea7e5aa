"""Coarser answers made by the server: drawn from sharper ones by the kernels of the chain, at no cost to the person.

A level below a known answer is drawn by the kernel between the two. A level between two known answers is a bridge: it
is drawn from both of them, Pr(y | coarse, sharp) proportional to K(coarse | y) K(y | sharp). Whatever the order of the
draws, all answers together have the law of one chain, and so cost what the sharpest costs; two independent draws of one
level would cost more, so whoever draws must store what was drawn. All probabilities are exact integers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from itertools import accumulate, product
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import BitChannel, pack, unpack
from estimators.channels.channel import Channel, Indices, RetentionChannel, identity
from estimators.exact.lazy import CellSampler, bernoulli
from estimators.exact.randomness import Bits, below

_FEW: Final = 256
_CELLS_AT_ONCE: Final = 1 << 22
# Unpacked bits held at a time. More needs more memory, fewer calls more often.


class Known(NamedTuple):
    """Answers of several reports on one rung, in the form of the wire: (n,) symbols, or (n, width) packed bits."""

    rung: int
    answers: NDArray[Any]


class Coarser(NamedTuple):
    """Drawn answers, and which of them could be drawn: a broken device may send answers that no chain has."""

    answers: NDArray[Any]
    possible: NDArray[np.bool_]


class Downgrade(Protocol):
    """Draws answers of a rung from known ones, for all reports of one survey."""

    def draw(self, rung: int, above: Known, under: Known | None, bits: Bits) -> Coarser:
        """Draw the answer of `rung` of each report from its answer above it and, if one is known, the one under it."""
        ...


class SymbolDowngrade:
    """Answers that are one symbol; kernels[i] takes the answer of rung i + 1 to the answer of rung i."""

    def __init__(self, kernels: Sequence[Channel], size: int) -> None:
        self._kernels, self._size = tuple(kernels), size
        self._between: Callable[[int, int], Channel] = cache(self._product)

    def kernel(self, lower: int, upper: int) -> Channel:
        """Return the exact kernel from the answer of rung `upper` to the answer of rung `lower`."""
        if not 0 <= lower <= upper <= len(self._kernels):
            raise ValueError(f"the chain has rungs 0 to {len(self._kernels)}; got {lower} below {upper}")
        return self._between(lower, upper)

    def _product(self, lower: int, upper: int) -> Channel:
        if lower == upper:
            return identity(self._size)
        found = self._kernels[upper - 1]
        for rung in range(upper - 2, lower - 1, -1):
            found = found.then(self._kernels[rung])
        return found

    def weights(self, rung: int, above: tuple[int, int], under: tuple[int, int] | None) -> list[int]:
        """Return integers in proportion to Pr(answer of `rung` = y | what is known), given as (rung, symbol).

        All are 0 where the two symbols cannot belong to one chain.
        """
        found = list(self.kernel(rung, above[0]).row(above[1]))
        if under is not None:
            lower, coarse = self.kernel(under[0], rung), under[1]
            found = [weight * lower.entry(y, coarse) if weight else 0 for y, weight in enumerate(found)]
        return found

    def draw(self, rung: int, above: Known, under: Known | None, bits: Bits) -> Coarser:
        """Draw symbols."""
        sharp = above.answers.astype(np.int64)
        upper = self.kernel(rung, above.rung)
        lower = None if under is None else self.kernel(under.rung, rung)
        if isinstance(upper, RetentionChannel) and (lower is None or isinstance(lower, RetentionChannel)):
            if under is None or lower is None:
                answers, possible = _kept_or_replaced(upper, sharp, bits), np.ones(len(sharp), dtype=np.bool_)
            else:
                answers, possible = _bridge(lower, upper, under.answers.astype(np.int64), sharp, bits)
        else:
            answers, possible = self._draw_any(rung, above.rung, sharp, under, bits)
        return Coarser(answers.astype(above.answers.dtype), possible)

    def _draw_any(
        self, rung: int, upper: int, sharp: Indices, under: Known | None, bits: Bits
    ) -> tuple[Indices, NDArray[np.bool_]]:
        coarse = np.zeros(len(sharp), dtype=np.int64) if under is None else under.answers.astype(np.int64)
        answers, possible = np.zeros_like(sharp), np.ones(len(sharp), dtype=np.bool_)
        pairs, members = np.unique(np.stack([sharp, coarse], axis=1), axis=0, return_inverse=True)
        for number, (given, held) in enumerate(pairs.tolist()):
            group = np.flatnonzero(members.reshape(-1) == number)
            weights = self.weights(rung, (upper, given), None if under is None else (under.rung, held))
            if any(weights):
                answers[group] = _chosen(weights, len(group), bits)
            else:
                possible[group] = False
        return answers, possible


class BitDowngrade:
    """Answers that are packed bit vectors: every bit on its own."""

    def __init__(self, kernels: Sequence[BitChannel], size: int) -> None:
        self._size = size
        runs = [block.size for block in kernels[0].blocks] if kernels else [size]
        self.runs = [slice(end - run, end) for run, end in zip(runs, accumulate(runs), strict=True)]
        """Where bits with equal kernels lie."""
        self.bits = tuple(
            SymbolDowngrade([kernel.blocks[run].channel for kernel in kernels], 2) for run in range(len(runs))
        )
        """The chain of a single bit of each run."""

    def draw(self, rung: int, above: Known, under: Known | None, bits: Bits) -> Coarser:
        """Draw packed vectors."""
        answers, possible = np.empty_like(above.answers), np.ones(len(above.answers), dtype=np.bool_)
        step = max(_CELLS_AT_ONCE // self._size, 1)
        for start in range(0, len(answers), step):
            part = slice(start, start + step)
            sharp = unpack(above.answers[part], self._size)
            coarse = None if under is None else unpack(under.answers[part], self._size)
            drawn = np.zeros_like(sharp)
            for run, chain in zip(self.runs, self.bits, strict=True):
                low = None if coarse is None or under is None else (under.rung, coarse[:, run])
                drawn[:, run], sound = _bits_of_run(chain, rung, (above.rung, sharp[:, run]), low, bits)
                possible[part] &= sound
            answers[part] = pack(drawn)
        return Coarser(answers, possible)


def _bits_of_run(
    chain: SymbolDowngrade,
    rung: int,
    above: tuple[int, NDArray[np.uint8]],
    under: tuple[int, NDArray[np.uint8]] | None,
    bits: Bits,
) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    (upper, sharp), sound = above, np.ones(len(above[1]), dtype=np.bool_)
    drawn = np.zeros_like(sharp)
    for given, held in product((0, 1), (0, 1) if under is not None else (None,)):
        members = sharp == given
        known = None
        if under is not None and held is not None:
            members &= under[1] == held
            known = under[0], held
        zero, one = chain.weights(rung, (upper, given), known)
        if zero + one:
            drawn[members] = bernoulli(Fraction(one, zero + one), int(np.count_nonzero(members)), bits)
        else:
            sound &= ~members.any(axis=1)
    return drawn, sound


def _kept_or_replaced(kernel: RetentionChannel, sharp: Indices, bits: Bits) -> Indices:
    kept = bernoulli(Fraction(kernel.keep, kernel.denominator), len(sharp), bits)
    answers = sharp.copy()
    replaced = np.flatnonzero(~kept)
    if replaced.size:
        answers[replaced] = below(kernel.pool, replaced.size, bits).astype(np.int64)
    return answers


def _bridge(
    lower: RetentionChannel, upper: RetentionChannel, coarse: Indices, sharp: Indices, bits: Bits
) -> tuple[Indices, NDArray[np.bool_]]:
    """Draw y with Pr(y) proportional to lower(coarse | y) upper(y | sharp), in O(1) for any number of values.

    Every value of the pool but the two has the same weight; values outside it are reached only from themselves.
    """
    pool = upper.pool
    answers, possible = sharp.copy(), np.ones(len(sharp), dtype=np.bool_)
    for same, coarse_inside, sharp_inside in product((False, True), repeat=3):
        members = (coarse == sharp) == same
        members &= ((coarse < pool) == coarse_inside) & ((sharp < pool) == sharp_inside)
        group = np.flatnonzero(members)
        if not group.size:
            continue
        c, s = int(coarse[group[0]]), int(sharp[group[0]])
        rest = pool - (sharp_inside + (coarse_inside and not same))
        weights = (
            lower.entry(s, c) * upper.entry(s, s),
            0 if same else lower.entry(c, c) * upper.entry(s, c),
            lower.base * coarse_inside * upper.base * rest,
        )
        if not any(weights):
            possible[group] = False
            continue
        outcome = CellSampler(weights).draw(group.size, bits)
        answers[group[outcome == 1]] = coarse[group[outcome == 1]]
        others = group[outcome == 2]
        if others.size:
            place = below(rest, others.size, bits).astype(np.int64)
            first, second = np.minimum(coarse, sharp)[others], np.maximum(coarse, sharp)[others]
            # The places of the two, where they are inside the pool, are left out.
            place += place >= first
            answers[others] = place + ((place >= second) & (first != second))
    return answers, possible


def _chosen(weights: Sequence[int], count: int, bits: Bits) -> Indices:
    """Draw `count` positions in exact proportion to integer weights."""
    if len(weights) <= _FEW:
        return CellSampler(weights).draw(count, bits).astype(np.int64)
    edges = list(accumulate(weights))
    words = -(-edges[-1].bit_length() // 64)
    limit = (1 << 64 * words) // edges[-1] * edges[-1]
    found: list[int] = []
    while len(found) < count:
        raw = bits.words(words * (count - len(found))).tobytes()
        drawn = (int.from_bytes(raw[at : at + 8 * words], "little") for at in range(0, len(raw), 8 * words))
        found += [bisect_right(edges, one % edges[-1]) for one in drawn if one < limit]
    return np.array(found, dtype=np.int64)
