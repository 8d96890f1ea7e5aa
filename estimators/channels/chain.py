"""Chains of answers: one value, a ladder of levels, every prefix exactly as private as its last level.

The device draws the answer of the highest rung and then each lower rung from the one above by a degradation kernel
(Pan's relaxation read backwards; the joint law is the same). Only the top channel and the kernels have integer
thresholds. The channel of a lower rung is their exact product, so no rounding can make the first answers of a chain
tell more than its last one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from estimators.channels.channel import MAX_EPSILON, Channel, ChannelError, Indices, RetentionChannel
from estimators.channels.nested import NestedChannel, Retaining
from estimators.exact.randomness import Bits

# Devices per step of a draw: the words of one step fit the processor's cache, which is three times as fast.
_BLOCK = 1 << 14


class Degradable(Protocol):
    """Anything that a kernel of its own kind can follow."""

    def then(self, kernel: Self, /) -> Self:
        """Return the exact product."""


_Degradable = TypeVar("_Degradable", bound=Degradable)


def products(top: _Degradable, kernels: Sequence[_Degradable]) -> tuple[_Degradable, ...]:
    """Return the exact channel of every rung, lowest first: the top one followed by the kernels below it."""
    channels = [top]
    for kernel in reversed(kernels):
        channels.append(channels[-1].then(kernel))
    return tuple(reversed(channels))


@dataclass(frozen=True)
class Chain:
    """A top channel and the kernels below it: kernels[i] takes the answer of rung i + 1 to the answer of rung i."""

    top: Channel
    kernels: tuple[Channel, ...]

    @classmethod
    def retention(cls, ladder: Sequence[float], size: int, *, pool: int | None = None) -> Chain:
        """Build the chain of a retention channel (GRR, or uRR with a smaller pool) for an increasing ladder."""
        check_ladder(ladder)
        top = RetentionChannel.for_epsilon(ladder[-1], size, pool=pool)
        kernels: list[RetentionChannel] = []
        above: Channel = top
        upper_epsilon = ladder[-1]
        for epsilon in reversed(ladder[:-1]):
            assert isinstance(above, RetentionChannel)
            if epsilon == upper_epsilon:
                kernel = RetentionChannel(above.size, above.pool, 1 << 64, 0)
            else:
                kernel = above.kernel_to(epsilon)
            kernels.append(kernel)
            above = above.then(kernel)
            upper_epsilon = epsilon
        return cls(top, tuple(reversed(kernels)))

    @classmethod
    def nested(cls, ladder: Sequence[float], size: int, pools: Sequence[int]) -> Chain:
        """Build the chain of uRR whose rung i protects the first pools[i] values at level ladder[i]; pools shrink."""
        check_ladder(ladder)
        top = RetentionChannel.for_epsilon(ladder[-1], size, pool=pools[-1])
        if top.keep == 0 or top.base == 0:
            raise ChannelError(
                f"level {ladder[-1]!r} over {pools[-1]} protected values tells all or nothing; change it"
            )
        highest = above = NestedChannel(size, top.keep, ((top.pool, top.base),))
        kernels: list[NestedChannel] = []
        for epsilon, pool in reversed(list(zip(ladder[:-1], pools[:-1], strict=True))):
            kernels.append(above.kernel_to(epsilon, pool))
            above = above.followed_by(kernels[-1])
        return cls(highest, tuple(reversed(kernels)))

    @property
    def rungs(self) -> int:
        """Number of levels."""
        return len(self.kernels) + 1

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """The exact channel of every rung, lowest first."""
        return products(self.top, self.kernels)

    @property
    def retention_channels(self) -> tuple[Retaining, ...]:
        """The channels of a chain built by `retention` or `nested`."""
        return tuple(channel for channel in self.channels if isinstance(channel, Retaining))

    def draw(self, values: Indices, bits: Bits, *, dtype: str = "<i8") -> NDArray[Any]:
        """Draw the answers of all rungs for each value, from the top; shape (rungs, values), symbols as `dtype`."""
        answers = np.empty((self.rungs, len(values)), dtype=dtype)
        for start in range(0, len(values), _BLOCK):
            part = slice(start, start + _BLOCK)
            answer = self.top.sample(values[part], bits)
            answers[-1, part] = answer
            for rung in range(self.rungs - 2, -1, -1):
                answer = self.kernels[rung].sample(answer, bits)
                answers[rung, part] = answer
        return answers

    def canonical(self) -> dict[str, Any]:
        """Return the integers of the top channel and of all kernels."""
        return {"top": self.top.canonical(), "kernels": [kernel.canonical() for kernel in self.kernels]}


class LadderError(ValueError):
    """A ladder is not possible: why, and the nearest one that is (empty: none)."""

    def __init__(self, reason: str, nearest: Sequence[float]) -> None:
        advice = f"; the nearest possible ladder is [{', '.join(repr(level) for level in nearest)}]" if nearest else ""
        super().__init__(reason + advice)
        self.reason, self.nearest = reason, tuple(nearest)


def check_ladder(ladder: Sequence[float], *, highest: float = MAX_EPSILON) -> None:
    """Refuse a ladder that is empty, leaves [0, highest] or falls."""
    if not ladder:
        raise LadderError("a ladder needs at least one level; add one epsilon", ())
    for level in ladder:
        if not 0 <= level <= highest:
            raise LadderError(
                f"every level of a ladder must be in [0, {highest:g}]; got {level!r}",
                [other for other in sorted(set(ladder)) if 0 <= other <= highest],
            )
    for lower, upper in pairwise(ladder):
        if upper < lower:
            raise LadderError(
                f"the levels of a ladder must not fall: {upper!r} follows {lower!r}; a sharper answer can be made "
                "coarser by the server, but an answer already given cannot be taken back; sort the levels",
                sorted(set(ladder)),
            )
