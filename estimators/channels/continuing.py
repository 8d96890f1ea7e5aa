"""Continuing a chain above its top: one forward step for each rung that a longer ladder has.

The longer ladder has a chain of its own, for devices that draw it whole. Its lower channels are exact products and may
differ from those of the shorter one in the last of 64 bits; more than that is another question. Whatever the device
holds was drawn from the shorter chain, and every step is exact from there on, so all answers together cost exactly what
the channel of the last of them costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import BitChannel
from estimators.channels.chain import Chain, LadderError
from estimators.channels.channel import Channel, ChannelError, DenseChannel, RetentionChannel
from estimators.channels.forward import BitStep, DenseStep, RetentionStep
from estimators.exact.randomness import Bits

_ROUNDING = 1e-9
"""Probabilities that differ by more than this were meant to."""


class Step(Protocol):
    """Draws the sharper answers from the true values and the answers already given."""

    def draw(self, values: NDArray[Any], answers: NDArray[Any], bits: Bits, /) -> NDArray[Any]:
        """Draw one answer per value."""
        ...


def steps(earlier: Chain | BitChain, later: Chain | BitChain) -> tuple[Step, ...]:
    """Return the forward steps from the top of a chain to the rungs that the later one has above it, lowest first.

    Raises:
        LadderError: the later chain has no rung more, other channels on the rungs of both, or an answer on its new
            rungs does not contain what the answers below it tell; or its channels have no forward step.
    """
    above = later.channels[earlier.rungs :]
    if not above:
        raise LadderError("there is no level above those of the earlier ladder", ())
    for rung in range(earlier.rungs):
        if not _alike(earlier.channels[rung], later.channels[rung]):
            raise LadderError(f"rung {rung} has other probabilities than before", ())
    try:
        return tuple(_step(lower, upper) for lower, upper in pairwise((earlier.channels[-1], *above)))
    except ChannelError as error:
        raise LadderError(str(error), ()) from error


def _alike(before: Channel | BitChannel, after: Channel | BitChannel) -> bool:
    numbers = [_numbers(channel) for channel in (before, after)]
    same = len(numbers[0]) == len(numbers[1])
    return same and all(
        one.shape == other.shape and np.allclose(one, other, rtol=0, atol=_ROUNDING)
        for one, other in zip(*numbers, strict=True)
    )


def _numbers(channel: Channel | BitChannel) -> Sequence[NDArray[np.float64]]:
    """Return what tells one channel from another, without a matrix of millions."""
    if isinstance(channel, BitChannel):
        return channel.ones, channel.zeros
    if isinstance(channel, RetentionChannel):
        return (np.array([channel.size, channel.pool, channel.retention, channel.lie]),)
    return (channel.matrix,)


def _step(lower: Channel | BitChannel, upper: Channel | BitChannel) -> Step:
    match lower, upper:
        case RetentionChannel(), RetentionChannel():
            return RetentionStep(lower, upper)
        case DenseChannel(), DenseChannel():
            return DenseStep.solve(lower, upper)
        case BitChannel(), BitChannel():
            step = BitStep(lower, upper)
            _ = step.odds  # refuses a step that is not possible
            return step
    raise ChannelError("answers of this kind have no forward step")
