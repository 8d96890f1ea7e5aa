"""A budget for several looks: split into fresh answers, or released gradually along one chain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.channels.rows import channel_matrix
from estimators.inference.inversion import dense_covariance

Floats = NDArray[np.float64]


def repeated_channel(channel: Floats, times: int) -> Floats:
    """Return the channel of several independent answers about one value."""
    joint = channel
    for _ in range(times - 1):
        joint = np.einsum("va,vb->vab", joint, channel).reshape(len(channel), -1)
    return joint


def even_variance(channel: Floats) -> float:
    """Return the variance of one share for one device when all values are equally common.

    It is that of the unbiased linear estimate with the smallest variance.
    """
    size = len(channel)
    return float(dense_covariance(channel, np.full(size, 1.0 / size), 1.0, "fleet")[0, 0])


def split_channel(budget: float, looks: int, look: int, size: int) -> Floats:
    """Return the channel of all answers up to a look, each fresh and with an equal part of the budget."""
    return repeated_channel(channel_matrix(budget / looks, size), look)


def split_variance(budget: float, looks: int, look: int, size: int) -> float:
    """Return the variance after a look when each look has an equal part of the budget."""
    return even_variance(split_channel(budget, looks, look, size))


def gradual_variance(budget: float, looks: int, look: int, size: int) -> float:
    """Return the variance after a look of a chain: that of its last answer."""
    return even_variance(channel_matrix(budget * look / looks, size))


def final_ratio(budget: float, looks: int, size: int) -> float:
    """Return how many times as large the variance of the split is after the last look."""
    return split_variance(budget, looks, looks, size) / gradual_variance(budget, looks, looks, size)
