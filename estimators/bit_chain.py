"""Chains of bit vectors: one top vector of bit channels, and a kernel per bit for every rung below it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from estimators.bits import BitBlock, BitChannel
from estimators.channel import Indices
from estimators.exact import GRID, exp_decimal
from estimators.lazy import Bytes
from estimators.randomness import Bits
from estimators.relaxation import LadderError, check_ladder

Real = Fraction | Decimal | float | int

# A kernel entry that is negative by less than this is a rounding of zero.
_ROUNDING = Fraction(1, 10**12)
_MAX_STEP = GRID >> 40


class Odds(NamedTuple):
    """What a run of `size` bits should do at one level: Pr(1 | 1) = one, Pr(1 | 0) = zero."""

    size: int
    one: Real
    zero: Real


Cost = Callable[[BitChannel], float]
"""What a vector of bits costs the person, for example BitChannel.one_hot_epsilon."""


@dataclass(frozen=True)
class BitChain:
    """A top vector and the kernels below it: kernels[i] takes the answer of rung i + 1 to the answer of rung i."""

    top: BitChannel
    kernels: tuple[BitChannel, ...]

    @classmethod
    def build(cls, ladder: Sequence[float], levels: Sequence[Sequence[Odds]], cost: Cost) -> BitChain:
        """Build the chain whose rung i has the odds levels[i] and costs at most ladder[i].

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
                kernel = _within(levels[rung], above, ladder[rung], cost, ladder[rung + 1])
            kernels.append(kernel)
            above = above.then(kernel)
        return cls(top, tuple(reversed(kernels)))

    @classmethod
    def sue(cls, ladder: Sequence[float], size: int) -> BitChain:
        """Build the chain of symmetric unary encoding (one-hot RAPPOR): every bit has eps / 2."""
        return cls.build(ladder, [[Odds(size, *sue_odds(epsilon))] for epsilon in ladder], BitChannel.one_hot_epsilon)

    @classmethod
    def oue(cls, ladder: Sequence[float], size: int) -> BitChain:
        """Build the chain of optimised unary encoding: the set bit is a coin, the others lie with 1 / (e^eps + 1)."""
        return cls.build(ladder, [[Odds(size, *oue_odds(epsilon))] for epsilon in ladder], BitChannel.one_hot_epsilon)

    @property
    def rungs(self) -> int:
        """Number of levels."""
        return len(self.kernels) + 1

    @cached_property
    def channels(self) -> tuple[BitChannel, ...]:
        """The exact channel of every rung, lowest first."""
        channels = [self.top]
        for kernel in reversed(self.kernels):
            channels.append(channels[-1].then(kernel))
        return tuple(reversed(channels))

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


def sue_odds(epsilon: float) -> tuple[Fraction, Fraction]:
    """Return Pr(1 | 1) and Pr(1 | 0) of symmetric unary encoding for a record at `epsilon`."""
    return binary_odds(epsilon / 2)


def oue_odds(epsilon: float) -> tuple[Fraction, Fraction]:
    """Return Pr(1 | 1) and Pr(1 | 0) of optimised unary encoding for a record at `epsilon`."""
    return Fraction(1, 2), binary_odds(epsilon)[1]


def binary_odds(epsilon: float) -> tuple[Fraction, Fraction]:
    """Return Pr(1 | 1) and Pr(1 | 0) of binary randomized response at `epsilon`, to 80 digits."""
    growth = Fraction(exp_decimal(epsilon))
    return growth / (growth + 1), 1 / (growth + 1)


def _within(
    odds: Sequence[Odds], above: BitChannel | None, epsilon: float, cost: Cost, upper: float = 0.0
) -> BitChannel:
    """Return the sharpest rounding of the odds (or of the kernel to them) whose cost is at most `epsilon`."""
    pairs = []
    for i, (size, one, zero) in enumerate(odds):
        pair = Fraction(one), Fraction(zero)
        pairs.append((size, *(pair if above is None else _kernel(above.blocks[i], *pair, epsilon, upper))))
    step = 0
    while True:
        rounded = BitChannel(tuple(_rounded(size, one, zero, step) for size, one, zero in pairs))
        if cost(rounded if above is None else above.then(rounded)) <= epsilon:
            return rounded
        # A few units of the grid make up for rounding; odds that need more were meant for another level.
        step = max(1, 2 * step)
        if step > _MAX_STEP:
            costs = cost(rounded if above is None else above.then(rounded))
            raise LadderError(f"these odds cost {costs!r}, more than their level {epsilon!r}; raise the level", ())


def _kernel(above: BitBlock, one: Fraction, zero: Fraction, epsilon: float, upper: float) -> tuple[Fraction, Fraction]:
    one_above, zero_above = Fraction(above.one, above.denominator), Fraction(above.zero, above.denominator)
    gap = one_above - zero_above
    if gap == 0:
        return one, zero
    if_zero = (zero * one_above - one * zero_above) / gap
    if_one = (one * (1 - zero_above) - zero * (1 - one_above)) / gap
    if min(if_zero, if_one) < -_ROUNDING or max(if_zero, if_one) > 1 + _ROUNDING:
        raise LadderError(
            f"a bit with odds {float(one):.6g}/{float(zero):.6g} (level {epsilon!r}) tells something that a bit with "
            f"odds {float(one_above):.6g}/{float(zero_above):.6g} (level {upper!r}) does not; leave one of them out",
            (upper,),
        )
    return min(max(if_one, Fraction(0)), Fraction(1)), min(max(if_zero, Fraction(0)), Fraction(1))


def _rounded(size: int, one: Fraction, zero: Fraction, step: int) -> BitBlock:
    """Round both odds towards each other, by `step` units more than needed; an impossible or sure answer stays so."""
    high, low = max(one, zero), min(one, zero)
    top = GRID if high == 1 else int(high * GRID) - step
    bottom = 0 if low == 0 else -int(-low * GRID // 1) + step
    if top < bottom:
        top = bottom = int((high + low) / 2 * GRID)
    return BitBlock(size, top, bottom) if one >= zero else BitBlock(size, bottom, top)
