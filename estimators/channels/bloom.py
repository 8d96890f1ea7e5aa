"""Bloom filters with cohorts: how RAPPOR turns any string into a few bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float64]

MAX_HASHES = 8
"""One digest of 64 bytes gives eight positions."""


def positions(text: str, cohort: int, *, bits: int, hashes: int) -> tuple[int, ...]:
    """Return the bits that a string sets in a cohort; hash functions may agree, so there can be fewer than `hashes`.

    >>> positions("thaw", 0, bits=64, hashes=2) == positions("thaw", 0, bits=64, hashes=2)
    True
    """
    # Part of what decoding depends on: another hash would be another survey.
    digest = hashlib.blake2b(
        text.encode(), digest_size=8 * hashes, salt=cohort.to_bytes(16, "little"), person=b"thaw bloom"
    ).digest()
    words = np.frombuffer(digest, dtype="<u8")
    return tuple(sorted({int(word) % bits for word in words}))


@lru_cache(maxsize=65536)
def packed_filter(text: str, cohort: int, bits: int, hashes: int) -> bytes:
    """Return the packed filter of a string in a cohort, bit j in byte j // 8 at position j % 8."""
    row = np.zeros(bits, dtype=np.bool_)
    row[list(positions(text, cohort, bits=bits, hashes=hashes))] = True
    return np.packbits(row, bitorder="little").tobytes()


def design_matrix(texts: Sequence[str], cohorts: int, *, bits: int, hashes: int) -> Floats:
    """Return which bits each string sets in each cohort, as 0.0 and 1.0; shape (cohorts, bits, strings)."""
    matrix = np.zeros((cohorts, bits, len(texts)))
    for cohort in range(cohorts):
        for column, text in enumerate(texts):
            matrix[cohort, list(positions(text, cohort, bits=bits, hashes=hashes)), column] = 1.0
    return matrix


def fill_chance(bits: int, hashes: int) -> float:
    """Return the chance that an unknown string sets a given bit: 1 - (1 - 1/bits)^hashes."""
    return float(-np.expm1(hashes * np.log1p(-1.0 / bits))) if bits > 1 else 1.0
