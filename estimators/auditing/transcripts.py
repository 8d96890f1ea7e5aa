"""What an audit has recorded: the chains of devices whose values it chose itself."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Transcripts:
    """n whole chains. A row is one token: its true value and everything that left the device under it.

    truths are positions among the values of the declared law. Devices of equal slot in different processes, and the
    two devices of a pair of slots in one process, hold the same values window by window: equal noise shows.
    """

    truths: Ints
    answers: NDArray[np.uint8]
    """Bytes of the wire, [rung, row, width]."""
    groups: Ints
    tokens: NDArray[np.uint8]
    """[row, 16]."""
    processes: Ints
    slots: Ints
    windows: Ints
    """Number of the window, in the order of time."""
    copies: Ints

    def __len__(self) -> int:
        return len(self.truths)

    @property
    def rungs(self) -> int:
        """Number of levels."""
        return len(self.answers)
