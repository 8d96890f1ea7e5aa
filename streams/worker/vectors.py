"""Answers of more than two bytes, a word at a time: copy one into an entry, count its bits.

A loop over whole words without branches is turned into vector instructions by the compiler: eleven times as fast as a
loop over bits for 1,024 of them. `tests.bench.bitwise` has the plain loops.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from producers.wire.layout import WORD_BYTES
from streams.store.entry import ANSWER_AT
from streams.worker.words import Ints, Words, compiled, inlined

_WORD_BITS: Final = 8 * WORD_BYTES
_FIRST_WORD: Final = ANSWER_AT // WORD_BYTES
_FIRST_SHIFT: Final = 8 * (ANSWER_AT % WORD_BYTES)
_FIRST_BITS: Final = _WORD_BITS - _FIRST_SHIFT
_FIRST_BYTES: Final = _FIRST_BITS // 8
_ONE: Final = np.uint64(1)
_ZERO: Final = np.uint64(0)


@compiled
def _bytes_from(words: Words, at: int, count: int) -> np.uint64:
    """Return up to 8 bytes from byte `at` on, without a look at a word that holds none of them."""
    word, begin = at >> 3, at & 7
    found = words[word] >> np.uint64(begin << 3)
    if begin + count > WORD_BYTES:
        found |= words[word + 1] << np.uint64((WORD_BYTES - begin) << 3)
    if count < WORD_BYTES:
        found &= (_ONE << np.uint64(count << 3)) - _ONE
    return found  # type: ignore[no-any-return]  # compiled: machine types


@compiled
def copy_answer(words: Words, at: int, width: int, out: Words, row: int) -> None:
    """Write the answer of `width` bytes at byte `at` into an entry of three words or more; the bytes after it are 0."""
    first = min(width, _FIRST_BYTES)
    out[row, _FIRST_WORD] |= _bytes_from(words, at, first) << np.uint64(_FIRST_SHIFT)
    at += first
    whole = (width - first) >> 3
    source, shift = at >> 3, np.uint64((at & 7) << 3)
    target = _FIRST_WORD + 1
    if shift == _ZERO:
        for j in range(whole):
            out[row, target + j] = words[source + j]
    else:
        back = np.uint64(_WORD_BITS) - shift
        for j in range(whole):
            out[row, target + j] = (words[source + j] >> shift) | (words[source + j + 1] << back)
    for j in range(target + whole, out.shape[1]):
        out[row, j] = _ZERO
    left = width - first - (whole << 3)
    if left:
        out[row, target + whole] = _bytes_from(words, at + (whole << 3), left)


@inlined
def _has_bits_beyond(words: Words, row: int, size: int, width: int) -> bool:
    """Return whether an answer of `width` bytes has a bit at or behind position `size`."""
    position = size
    while position < 8 * width:
        place = ANSWER_AT * 8 + position
        bits = min(_WORD_BITS - (place & (_WORD_BITS - 1)), 8 * width - position)
        found = words[row, place >> 6] >> np.uint64(place & (_WORD_BITS - 1))
        if bits < _WORD_BITS:
            found &= (_ONE << np.uint64(bits)) - _ONE
        if found != _ZERO:
            return True
        position += bits
    return False


@inlined
def _add_bits(numbers: Ints, first: int, word: np.uint64, bits: int, sign: int) -> None:
    # Unsigned: a place that might be negative would be looked at before every step, and no vector be made.
    place = np.uint64(first)
    for bit in range(bits):
        numbers[place + np.uint64(bit)] += sign * np.int64((word >> np.uint64(bit)) & _ONE)


@inlined
def count_bits(numbers: Ints, first: int, words: Words, row: int, sign: int, size: int, width: int) -> bool:
    """Add `sign` to the numbers from `first` on where the answer of an entry has a bit; False if it has too many."""
    if _has_bits_beyond(words, row, size, width):
        return False
    cell = min(size, _FIRST_BITS)
    _add_bits(numbers, first, words[row, _FIRST_WORD] >> np.uint64(_FIRST_SHIFT), cell, sign)
    j = _FIRST_WORD + 1
    while cell + _WORD_BITS <= size:
        _add_bits(numbers, first + cell, words[row, j], _WORD_BITS, sign)
        cell += _WORD_BITS
        j += 1
    if cell < size:
        _add_bits(numbers, first + cell, words[row, j], size - cell, sign)
    return True
