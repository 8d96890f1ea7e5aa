"""Checks the keys of withdrawable surveys: SHA-256 of many short inputs at once, compiled.

`producers.wire.keys` says what is hashed; an input of 48 bytes is one block. A library hashes one input per call, under
the interpreter lock and in 700 ns; here `_LANES` of them go through every round side by side, in 100 to 150 ns each,
since the compiler turns a loop over lanes into vector instructions. The numbers of the algorithm are computed as its
standard defines them (FIPS 180-4): roots of the first primes.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from producers.wire.keys import KEY_DOMAIN, KEY_INPUT
from producers.wire.layout import KEY_BYTES, TOKEN_BYTES, WORD_BYTES
from streams.worker.words import Ints, Words, compiled, inlined

Lanes = NDArray[np.uint32]

_LANES: Final = 16
"""Inputs that are hashed together. Fewer use half of a vector register; more fill the first cache."""
_ROUNDS: Final = 64
_STATE: Final = 8
_HALF: Final = np.uint64(32)
_ALL: Final = np.uint64(0xFFFF_FFFF)
_KEY_WORDS: Final = KEY_BYTES // WORD_BYTES
_DOMAIN: Final = np.frombuffer(KEY_DOMAIN, dtype=">u4").astype(np.uint32)
_STEP_AT: Final = len(KEY_DOMAIN) // 4
_DIGEST_AT: Final = _STEP_AT + 1
_WINDOW_AT: Final = _DIGEST_AT + 2
_KEY_AT: Final = _WINDOW_AT + 2
_END_AT: Final = KEY_INPUT.size // 4
_END: Final = np.uint32(0x8000_0000)
_INPUT_BITS: Final = np.uint32(8 * KEY_INPUT.size)
_STEP_SHIFT: Final = np.uint32(24)
assert KEY_BYTES == TOKEN_BYTES
assert KEY_INPUT.size + 1 + 8 <= 4 * 16, "an input is one block"


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % prime for prime in found):
            found.append(number)
        number += 1
    return found


def _cube_root(number: int) -> int:
    low, high = 0, number
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if middle**3 <= number else (low, middle - 1)
    return low


# The first 32 bits behind the point of the roots of primes.
_START: Final = np.array([math.isqrt(prime << 64) % 2**32 for prime in _primes(_STATE)], dtype=np.uint32)
_CONSTANTS: Final = np.array([_cube_root(prime << 96) % 2**32 for prime in _primes(_ROUNDS)], dtype=np.uint32)


@inlined
def _turned(word: np.uint32, bits: int) -> np.uint32:
    return np.uint32((word >> np.uint32(bits)) | (word << np.uint32(32 - bits)))


@inlined
def _swapped(word: np.uint64) -> np.uint32:
    """Return the lower half of a word of the wire as SHA-256 reads it: most significant byte first."""
    low = np.uint32(word & _ALL)
    return np.uint32((_turned(low, 8) & np.uint32(0xFF00_FF00)) | (_turned(low, 24) & np.uint32(0x00FF_00FF)))


@compiled
def _hash(block: Lanes, state: Lanes) -> None:
    """Hash one block in every lane; `block` holds 16 words in the first of its `_ROUNDS` rows and loses the others."""
    for t in range(16, _ROUNDS):
        for lane in range(_LANES):
            early, late = block[t - 15, lane], block[t - 2, lane]
            first = _turned(early, 7) ^ _turned(early, 18) ^ np.uint32(early >> np.uint32(3))
            second = _turned(late, 17) ^ _turned(late, 19) ^ np.uint32(late >> np.uint32(10))
            block[t, lane] = np.uint32(np.uint32(block[t - 16, lane] + first) + np.uint32(block[t - 7, lane] + second))
    for i in range(_STATE):
        for lane in range(_LANES):
            state[i, lane] = _START[i]
    for t in range(_ROUNDS):
        # Instead of moving eight values along, their places turn.
        a, b, c, d = -t & 7, (1 - t) & 7, (2 - t) & 7, (3 - t) & 7
        e, f, g, h = (4 - t) & 7, (5 - t) & 7, (6 - t) & 7, (7 - t) & 7
        constant = _CONSTANTS[t]
        for lane in range(_LANES):
            x, y = state[e, lane], state[a, lane]
            chosen = np.uint32((x & state[f, lane]) ^ (~x & state[g, lane]))
            mixed = np.uint32(state[h, lane] + (_turned(x, 6) ^ _turned(x, 11) ^ _turned(x, 25)))
            one = np.uint32(mixed + np.uint32(np.uint32(chosen + constant) + block[t, lane]))
            most = np.uint32((y & state[b, lane]) ^ (y & state[c, lane]) ^ (state[b, lane] & state[c, lane]))
            two = np.uint32((_turned(y, 2) ^ _turned(y, 13) ^ _turned(y, 22)) + most)
            state[d, lane] = np.uint32(state[d, lane] + one)
            state[h, lane] = np.uint32(one + two)
    for i in range(_STATE):
        for lane in range(_LANES):
            state[i, lane] = np.uint32(state[i, lane] + _START[i])


@compiled
def mark_wrong_keys(
    words: Words, tokens: Ints, keys: Ints, windows: Ints, rungs: Ints, digest: int, wrong: NDArray[np.bool_]
) -> None:
    """Mark the reports whose key does not lead to their token in rung + 1 steps.

    Args:
        words: what tokens and keys lie in.
        tokens: by report the word its token begins at.
        keys: the same of its key.
        windows: by report the start of its window in ms.
        rungs: by report its rung; descending, so that lanes beside each other take equally many steps.
        digest: of the survey, as a word of the wire.
        wrong: where to mark them, by report.
    """
    block = np.zeros((_ROUNDS, _LANES), dtype=np.uint32)
    state = np.zeros((_STATE, _LANES), dtype=np.uint32)
    name = np.uint64(digest)
    for begin in range(0, len(rungs), _LANES):
        lanes = min(_LANES, len(rungs) - begin)
        for lane in range(lanes):
            window = np.uint64(windows[begin + lane])
            for j in range(_STEP_AT):
                block[j, lane] = _DOMAIN[j]
            block[_DIGEST_AT, lane] = _swapped(name)
            block[_DIGEST_AT + 1, lane] = _swapped(name >> _HALF)
            block[_WINDOW_AT, lane] = _swapped(window)
            block[_WINDOW_AT + 1, lane] = _swapped(window >> _HALF)
            for j in range(_KEY_WORDS):
                word = words[keys[begin + lane] + j]
                block[_KEY_AT + 2 * j, lane] = _swapped(word)
                block[_KEY_AT + 2 * j + 1, lane] = _swapped(word >> _HALF)
        for step in range(rungs[begin], -1, -1):
            for lane in range(_LANES):
                block[_STEP_AT, lane] = np.uint32(np.uint32(step) << _STEP_SHIFT)
                block[_END_AT, lane] = _END
                block[_END_AT + 1, lane] = 0
                block[_END_AT + 2, lane] = 0
                block[_END_AT + 3, lane] = _INPUT_BITS
            _hash(block, state)
            for lane in range(lanes):
                if rungs[begin + lane] >= step:
                    for j in range(2 * _KEY_WORDS):
                        block[_KEY_AT + j, lane] = state[j, lane]
        for lane in range(lanes):
            for j in range(_KEY_WORDS):
                word = words[tokens[begin + lane] + j]
                if block[_KEY_AT + 2 * j, lane] != _swapped(word):
                    wrong[begin + lane] = True
                if block[_KEY_AT + 2 * j + 1, lane] != _swapped(word >> _HALF):
                    wrong[begin + lane] = True


def wrong_keys(words: Words, tokens: Ints, keys: Ints, windows: Ints, rungs: Ints, digest: bytes) -> NDArray[np.bool_]:
    """Return which reports carry a key that does not lead to their token; arguments as of `mark_wrong_keys`, unsorted.

    >>> none: Any = np.zeros(0, dtype=np.int64)
    >>> wrong_keys(np.zeros(2, dtype=np.uint64), none, none, none, none, bytes(8)).tolist()
    []
    """
    order = np.argsort(-rungs, kind="stable")
    marked = np.zeros(len(rungs), dtype=np.bool_)
    columns = tokens[order], keys[order], windows[order], rungs[order]
    mark_wrong_keys(words, *columns, np.uint64(int.from_bytes(digest, "little")), marked)  # type: ignore[arg-type]
    wrong = np.empty_like(marked)
    wrong[order] = marked
    return wrong
