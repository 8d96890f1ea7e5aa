"""How far from the truth the full likelihood of unary reports is as a whole, simulated at shares like those found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import BitChannel
from estimators.inference.ascent import Told
from estimators.inference.em_bits import reports_mle
from estimators.mechanism import OneHot

Floats = NDArray[np.float64]

DRAWS: Final = 4
"""Simulated windows. A distance of two thousandths more or less decides nothing."""
_MOST_BITS: Final = 40_000_000
"""Bits of the reports of one window up to which it is simulated: seconds."""
_ROWS: Final = 8_192


def likelihood_distance(
    one_hot: OneHot, users: Sequence[int], shares: Floats, *, told: Told | None = None
) -> float | None:
    """Return the mean distance in total variation from the truth of the likelihood of so many reports.

    `shares`, by label, are taken for the truth. None where that would take too long. Always the same draws.

    Args:
        one_hot: what the reports are.
        users: reports of every rung.
        shares: of the labels, a distribution.
        told: hears how much is done, 0 to 1; what it raises ends the simulation.
    """
    size = one_hot.channels[0].size
    if sum(users) * size > _MOST_BITS or not sum(users):
        return None
    truth = np.zeros(size)
    truth[one_hot.places] = shares
    rng = np.random.default_rng(size)
    rungs = np.repeat(np.arange(len(users)), users)
    found = []
    for draw in range(DRAWS):
        if told is not None:
            told(draw / DRAWS)
        drawn = [_reports(channel, count, truth, rng) for channel, count in zip(one_hot.channels, users, strict=True)]
        maximum = reports_mle(one_hot.channels, np.concatenate(drawn), rungs, sensitive=one_hot.shielded)
        if maximum is None or maximum.stopped == "iterations":
            return None
        found.append(float(np.abs(maximum.shares - truth).sum()) / 2)
    return float(np.mean(found))


def _reports(channel: BitChannel, count: int, truth: Floats, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Draw packed reports of people whose values have these shares."""
    values = rng.choice(len(truth), size=count, p=truth / truth.sum())
    packed = np.empty((count, channel.width), dtype=np.uint8)
    for first in range(0, count, _ROWS):
        some = values[first : first + _ROWS]
        bits = rng.random((len(some), channel.size)) < channel.zeros
        bits[np.arange(len(some)), some] = rng.random(len(some)) < channel.ones[some]
        packed[first : first + _ROWS] = np.packbits(bits, axis=1, bitorder="little")
    return packed
