"""RAPPOR as published: a permanent noisy copy of the bits, sampled for each report. The baseline of gradual release."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import BitBlock, BitChannel
from estimators.channels.response import EXACT
from estimators.exact.randomness import Bits
from estimators.exact.rounding import GRID

Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class PermanentResponse:
    """Bits are kept once with level `permanent`, then each report tells the kept bits with level `sample`, per bit.

    What K reports cost, and how far their mean scatters, is in noisy_sampling.py.
    """

    kept: BitChannel
    told: BitChannel

    @classmethod
    def for_levels(cls, permanent: float, sample: float, size: int) -> PermanentResponse:
        """Build for vectors of `size` bits; both levels are per bit."""
        return cls(_flips(permanent, size), _flips(sample, size))

    def keep(self, packed: Bytes, bits: Bits) -> Bytes:
        """Draw the permanent copy of packed vectors; once per value, for good."""
        return self.kept.sample(packed, bits)

    def report(self, kept: Bytes, bits: Bits) -> Bytes:
        """Draw one report from the permanent copy."""
        return self.told.sample(kept, bits)

    def shares(self, ones: NDArray[np.int64], users: int, reports: int) -> NDArray[np.float64]:
        """Return the unbiased share of every bit from its ones in all reports of all users (Pan, Appendix F)."""
        told = (ones / (users * reports) - self.told.zeros) / (self.told.ones - self.told.zeros)
        return np.asarray((told - self.kept.zeros) / (self.kept.ones - self.kept.zeros))


def _flips(epsilon: float, size: int) -> BitChannel:
    zero = -int(-EXACT.grr(epsilon, 2).lie * GRID // 1)
    return BitChannel((BitBlock(size, GRID - zero, zero),))
