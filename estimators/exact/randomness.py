"""Random words behind one small protocol: secure ones for devices, seeded ones for simulation and tests."""

from __future__ import annotations

import hashlib
import ssl
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]


class Bits(Protocol):
    """A source of independent, uniform 64-bit words."""

    def words(self, count: int) -> Words:
        """Return `count` fresh words."""
        ...


class SecureBits:
    """Words of OpenSSL's generator: what every real device uses.

    It has no state of its own, so it cannot be seeded, copied or replayed; OpenSSL reseeds itself after a fork.
    """

    def words(self, count: int) -> Words:
        """Return `count` fresh words."""
        return np.frombuffer(ssl.RAND_bytes(8 * count), dtype="<u8")


class SeededBits:
    """Reproducible words for simulated fleets and tests; never for a real device.

    The stream is a function of the seed and the labels alone (counter-based Philox, keyed by a hash of both), so that
    a killed simulation that starts again draws the same words.

    >>> bool((SeededBits(1, "fleet", 7).words(3) == SeededBits(1, "fleet", 7).words(3)).all())
    True
    """

    def __init__(self, seed: int, *labels: str | int) -> None:
        digest = hashlib.sha256(repr((seed, labels)).encode()).digest()
        self._generator = np.random.Philox(key=np.frombuffer(digest[:16], dtype="<u8"))

    def words(self, count: int) -> Words:
        """Return the next `count` words of the stream."""
        return np.asarray(self._generator.random_raw(count), dtype=np.uint64)


def below(bound: int, count: int, bits: Bits) -> Words:
    """Draw `count` uniform integers in [0, bound), 1 <= bound <= 2**64, without bias.

    Words at or above the largest multiple of `bound` are drawn again: a modulo alone would favour small results.
    """
    if not 1 <= bound <= 1 << 64:
        raise ValueError(f"bound must be in [1, 2**64]; got {bound}")
    drawn = bits.words(count).copy()
    if bound & (bound - 1) == 0:
        return drawn & np.uint64(bound - 1)
    limit = np.uint64((1 << 64) // bound * bound)
    rejected = np.flatnonzero(drawn >= limit)
    while rejected.size:
        drawn[rejected] = bits.words(rejected.size)
        rejected = rejected[drawn[rejected] >= limit]
    return drawn % np.uint64(bound)
