"""Chains of bit vectors: one top vector of bit channels, and a kernel per bit for every rung below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import BitBlock, BitChannel
from estimators.channels.chain import LadderError, check_ladder, products
from estimators.channels.channel import Indices
from estimators.channels.response import EXACT, Response
from estimators.exact.lazy import Bytes
from estimators.exact.randomness import Bits
from estimators.exact.rounding import GRID

# A kernel entry that is negative by less than this is a rounding of zero.
_ROUNDING = Fraction(1, 10**12)
_MAX_STEP = GRID >> 40


class BitRun(NamedTuple):
    """What a run of `size` equal bits should do at one level: truth is Pr(1 | 1), lie is Pr(1 | 0)."""

    size: int
    response: Response[Fraction]


Cost = Callable[[BitChannel], float]
"""What a vector of bits costs the person, for example BitChannel.one_hot_epsilon."""


@dataclass(frozen=True)
class BitChain:
    """A top vector and the kernels below it: kernels[i] takes the answer of rung i + 1 to the answer of rung i."""

    top: BitChannel
    kernels: tuple[BitChannel, ...]

    @classmethod
    def build(cls, ladder: Sequence[float], levels: Sequence[Sequence[BitRun]], cost: Cost) -> BitChain:
        """Build the chain whose rung i has the responses levels[i] and costs at most ladder[i].

        Probabilities are rounded towards each other, so no rung tells more than asked for. Raises LadderError when an
        answer of a lower rung cannot be drawn from the answer of the rung above.
        """
        check_ladder(ladder)
        top = _within(levels[-1], None, ladder[-1], cost)
        kernels: list[BitChannel] = []
        above = top
        for rung in range(len(ladder) - 2, -1, -1):
            if levels[rung] == levels[rung + 1]:
                kernel = identity(above)
            else:
                _check_kernel(levels[rung], above, ladder, rung)
                kernel = _within(levels[rung], above, ladder[rung], cost)
            kernels.append(kernel)
            above = above.then(kernel)
        return cls(top, tuple(reversed(kernels)))

    @classmethod
    def sue(cls, ladder: Sequence[float], size: int) -> BitChain:
        """Build the chain of symmetric unary encoding (one-hot RAPPOR): every bit has eps / 2."""
        return cls.build(ladder, [[BitRun(size, EXACT.sue(epsilon))] for epsilon in ladder], BitChannel.one_hot_epsilon)

    @classmethod
    def oue(cls, ladder: Sequence[float], size: int) -> BitChain:
        """Build the chain of optimised unary encoding: the set bit is a coin, the others lie with 1 / (e^eps + 1)."""
        return cls.build(ladder, [[BitRun(size, EXACT.oue(epsilon))] for epsilon in ladder], BitChannel.one_hot_epsilon)

    @property
    def rungs(self) -> int:
        """Number of levels."""
        return len(self.kernels) + 1

    @cached_property
    def channels(self) -> tuple[BitChannel, ...]:
        """The exact channel of every rung, lowest first."""
        return products(self.top, self.kernels)

    @cached_property
    def probabilities(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Pr(1 | 1) and Pr(1 | 0) of every bit on every rung, arrays [rung, bit]."""
        ones = np.array([channel.ones for channel in self.channels])
        return ones, np.array([channel.zeros for channel in self.channels])

    def draw_one_hot(self, values: Indices, bits: Bits) -> Bytes:
        """Draw all rungs for one-hot vectors whose set bit is `values`; shape (rungs, values, width), packed."""
        return self._descend(self.top.sample_one_hot(values, bits), bits)

    def draw(self, packed: Bytes, bits: Bits) -> Bytes:
        """Draw all rungs for packed vectors (rows, width); shape (rungs, rows, width), packed."""
        return self._descend(self.top.sample(packed, bits), bits)

    def _descend(self, sharpest: Bytes, bits: Bits) -> Bytes:
        answers = np.empty((self.rungs, *sharpest.shape), dtype=np.uint8)
        answers[-1] = sharpest
        for rung in range(self.rungs - 2, -1, -1):
            answers[rung] = self.kernels[rung].sample(answers[rung + 1], bits)
        return answers

    def canonical(self) -> dict[str, Any]:
        """Return the integers of the top vector and of all kernels."""
        return {"top": self.top.canonical(), "kernels": [kernel.canonical() for kernel in self.kernels]}


def identity(channel: BitChannel) -> BitChannel:
    """Return the kernel that repeats every bit of `channel`."""
    return BitChannel(tuple(BitBlock(block.size, GRID, 0) for block in channel.blocks))


def _within(runs: Sequence[BitRun], above: BitChannel | None, epsilon: float, cost: Cost) -> BitChannel:
    """Return the sharpest rounding of the responses (or of the kernel to them) whose cost is at most `epsilon`."""
    pairs: list[tuple[int, Fraction, Fraction]] = []
    for i, (size, response) in enumerate(runs):
        if above is None:
            pairs.append((size, response.truth, response.lie))
        else:
            if_one, if_zero = _kernel(above.blocks[i], response)
            pairs.append((size, _clamped(if_one), _clamped(if_zero)))
    step = 0
    while True:
        rounded = BitChannel(tuple(_rounded(*pair, step) for pair in pairs))
        costs = cost(rounded if above is None else above.then(rounded))
        if costs <= epsilon:
            return rounded
        # A few units of the grid make up for rounding; probabilities that need more were meant for another level.
        step = max(1, 2 * step)
        if step > _MAX_STEP:
            raise LadderError(
                f"these probabilities cost {costs!r}, more than their level {epsilon!r}; raise the level", ()
            )


def _kernel(above: BitBlock, response: Response[Fraction]) -> tuple[Fraction, Fraction]:
    """Return Pr(lower 1 | upper 1) and Pr(lower 1 | upper 0); outside [0, 1] where there is no kernel."""
    lower_one, lower_zero = response.truth, response.lie
    upper_one, upper_zero = Fraction(above.one, above.denominator), Fraction(above.zero, above.denominator)
    gap = upper_one - upper_zero
    if gap == 0:
        return lower_one, lower_zero
    if_zero = (lower_zero * upper_one - lower_one * upper_zero) / gap
    if_one = (lower_one * (1 - upper_zero) - lower_zero * (1 - upper_one)) / gap
    return if_one, if_zero


def _check_kernel(runs: Sequence[BitRun], above: BitChannel, ladder: Sequence[float], rung: int) -> None:
    for (_, response), block in zip(runs, above.blocks, strict=True):
        pair = _kernel(block, response)
        if min(pair) < -_ROUNDING or max(pair) > 1 + _ROUNDING:
            lower = f"{float(response.truth):.6g}/{float(response.lie):.6g} (level {ladder[rung]!r})"
            upper = (
                f"{block.one / block.denominator:.6g}/{block.zero / block.denominator:.6g} (level {ladder[rung + 1]!r})"
            )
            raise LadderError(
                f"a bit with probabilities {lower} tells something that a bit with probabilities {upper} does not; "
                "leave one of them out",
                (*ladder[:rung], *ladder[rung + 1 :]),
            )


def _clamped(probability: Fraction) -> Fraction:
    return min(max(probability, Fraction(0)), Fraction(1))


def _rounded(size: int, one: Fraction, zero: Fraction, step: int) -> BitBlock:
    """Round both probabilities towards each other, by `step` units more than needed; 0 and 1 stay."""
    high, low = max(one, zero), min(one, zero)
    top = GRID if high == 1 else int(high * GRID) - step
    bottom = 0 if low == 0 else -int(-low * GRID // 1) + step
    if top < bottom:
        top = bottom = int((high + low) / 2 * GRID)
    return BitBlock(size, top, bottom) if one >= zero else BitBlock(size, bottom, top)
