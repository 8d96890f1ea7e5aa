"""The end of what the e-process rejects by halving alone: slow, and plain to check; the twin of sequence_ends."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from estimators.intervals.always_valid import GRID_POINTS, Side, YesNo, log_e

HALVINGS: Final = 20


def halved(tally: YesNo, alpha: float, *, side: Side = "above", points: int = GRID_POINTS) -> NDArray[np.float64]:
    """Return what `confidence_sequence` returns, up to 2**-20."""
    enough = math.log(1.0 / alpha)
    safe, unsafe = (np.full(tally.values, end) for end in ((0.0, 1.0) if side == "above" else (1.0, 0.0)))
    for _ in range(HALVINGS):
        middle = (safe + unsafe) / 2
        beyond = log_e(tally, middle, side=side, points=points) >= enough
        safe, unsafe = np.where(beyond, middle, safe), np.where(beyond, unsafe, middle)
    return np.asarray(safe)
