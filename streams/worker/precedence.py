"""Which of two entries of one token counts: the one of the higher rung, on the same rung the one of the greater hash.

The hash is taken only of conflicting entries. It must not depend on the order of answers: a rule such as "the greater
answer counts" moves shares towards values that are listed late. It is part of the format (docs/store.md has test
vectors) and never changes: other workers, rebuilds and recounts must pick the same entry.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from producers.wire.layout import WORD_BYTES
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.worker.words import Words, byte_at, compiled

_WITHOUT_RUNG: Final = np.uint64(~(0xFF << 8 * (RUNG_AT % WORD_BYTES)) & 0xFFFF_FFFF_FFFF_FFFF)
_RUNG_WORD: Final = RUNG_AT // WORD_BYTES
_ANSWER_SHIFT: Final = np.uint64(8 * (ANSWER_AT % WORD_BYTES))

TIE_SEED: Final = 42
"""Any number would do; with this one `xxhash64` of Spark SQL gives the same hash."""

_SEED: Final = np.uint64(TIE_SEED)
_P1: Final = np.uint64(0x9E3779B185EBCA87)
_P2: Final = np.uint64(0xC2B2AE3D27D4EB4F)
_P3: Final = np.uint64(0x165667B19E3779F9)
_P4: Final = np.uint64(0x85EBCA77C2B2AE63)
_P5: Final = np.uint64(0x27D4EB2F165667C5)
_LANES: Final = 4  # XXH64 takes 32 bytes at a time, in four lanes
_ZERO: Final = np.uint64(0)
_WORD_BITS: Final = np.uint64(64)


@compiled
def _rotated(word: np.uint64, bits: np.uint64) -> np.uint64:
    return (word << bits) | (word >> (_WORD_BITS - bits))


@compiled
def _mixed(lane: np.uint64, word: np.uint64) -> np.uint64:
    return _rotated(lane + word * _P2, np.uint64(31)) * _P1


@compiled
def _hashed_word(words: Words, row: int, column: int) -> np.uint64:
    word: np.uint64 = words[row, column]
    return word & _WITHOUT_RUNG if column == _RUNG_WORD else word


@compiled
def tie_hash(words: Words, row: int) -> np.uint64:
    """Return XXH64 with seed 42 of an entry whose rung byte is taken as 0: token, answer, group, padding."""
    size = words.shape[1]
    column = 0
    mixed = _SEED + _P5
    if size >= _LANES:
        one, two, three, four = _SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1
        while column + _LANES <= size:
            one = _mixed(one, _hashed_word(words, row, column))
            two = _mixed(two, _hashed_word(words, row, column + 1))
            three = _mixed(three, _hashed_word(words, row, column + 2))
            four = _mixed(four, _hashed_word(words, row, column + 3))
            column += _LANES
        mixed = _rotated(one, np.uint64(1)) + _rotated(two, np.uint64(7))
        mixed += _rotated(three, np.uint64(12)) + _rotated(four, np.uint64(18))
        for lane in (one, two, three, four):
            mixed = (mixed ^ _mixed(_ZERO, lane)) * _P1 + _P4
    mixed += np.uint64(WORD_BYTES * size)
    while column < size:
        mixed = _rotated(mixed ^ _mixed(_ZERO, _hashed_word(words, row, column)), np.uint64(27)) * _P1 + _P4
        column += 1
    mixed ^= mixed >> np.uint64(33)
    mixed *= _P2
    mixed ^= mixed >> np.uint64(29)
    mixed *= _P3
    return mixed ^ (mixed >> np.uint64(32))


@compiled
def tie_hashes(words: Words) -> Words:
    """Return the hash of each entry."""
    hashes = np.empty(len(words), dtype=np.uint64)
    for row in range(len(words)):
        hashes[row] = tie_hash(words, row)
    return hashes


@compiled
def compare(a: Words, row_a: int, b: Words, row_b: int) -> int:
    """Order two entries of one token by rung, then hash, then answer and group as one little-endian number.

    Return 0 if they are the same, 1 and -1 if `a` has the higher or lower rung, 2 and -2 if only the answers differ.
    """
    rung_a, rung_b = byte_at(a, row_a, RUNG_AT), byte_at(b, row_b, RUNG_AT)
    if rung_a != rung_b:
        return 1 if rung_a > rung_b else -1
    greater = 0
    for j in range(a.shape[1] - 1, 1, -1):
        if greater == 0 and a[row_a, j] != b[row_b, j]:
            greater = 2 if a[row_a, j] > b[row_b, j] else -2
    if greater == 0:
        tail_a, tail_b = a[row_a, 1] >> _ANSWER_SHIFT, b[row_b, 1] >> _ANSWER_SHIFT
        if tail_a == tail_b:
            return 0
        greater = 2 if tail_a > tail_b else -2
    hash_a, hash_b = tie_hash(a, row_a), tie_hash(b, row_b)
    if hash_a != hash_b:
        return 2 if hash_a > hash_b else -2
    return greater
