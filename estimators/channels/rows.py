"""Channels as matrices of floats, rows are true values, columns answers; devices use exact integers instead."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from estimators.channels.response import REAL
from estimators.estimates import Floats

Rows = tuple[tuple[float, ...], ...]


def loss_of_rows(rows: Sequence[Sequence[float]]) -> float:
    """Return max_j ln(max_i P_ij / min_i P_ij) of a channel given in floats; inf where a column mixes 0 and more."""
    worst = 0.0
    for column in zip(*rows, strict=True):
        low, high = min(column), max(column)
        if high > 0.0:
            worst = max(worst, math.log(high / low) if low > 0.0 else math.inf)
    return worst


def club_rows(p1: float, p2: float, q: float) -> Floats:
    """RR3-club: 0 is kept with p1; 1 and 2 stay non-zero with p2, and then keep their sign with q."""
    a, b = (1.0 - p1) / 2.0, 1.0 - p2
    return np.array([[p1, a, a], [b, p2 * q, p2 * (1.0 - q)], [b, p2 * (1.0 - q), p2 * q]])


def channel_matrix(epsilon: float, size: int) -> Floats:
    """Return generalised randomized response at a real level (Pan, Eq. 5); rows are true values."""
    truth, lie = REAL.grr(epsilon, size).truth, REAL.grr(epsilon, size).lie
    matrix = np.full((size, size), lie)
    np.fill_diagonal(matrix, truth)
    return matrix
