"""Which report of a token counts, in plain Python that shares nothing with `streams.worker.precedence`."""

from __future__ import annotations

_P1, _P2, _P3, _P4, _P5 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
_MASK = (1 << 64) - 1

Ranked = tuple[int, bytes]
"""A rung, and the bytes of answer and group as an entry holds them."""


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> 64 - bits) & _MASK


def _mixed(lane: int, word: int) -> int:
    return _rotated((lane + word * _P2) & _MASK, 31) * _P1 & _MASK


def xxh64(raw: bytes, seed: int) -> int:
    """Return XXH64 as its specification has it, for any length."""
    at, length = 0, len(raw)
    if length >= 32:
        lanes = [seed + _P1 + _P2 & _MASK, seed + _P2 & _MASK, seed, seed - _P1 & _MASK]
        while length - at >= 32:
            for i in range(4):
                lanes[i] = _mixed(lanes[i], int.from_bytes(raw[at : at + 8], "little"))
                at += 8
        found = sum(_rotated(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
        for lane in lanes:
            found = ((found ^ _mixed(0, lane)) * _P1 + _P4) & _MASK
    else:
        found = seed + _P5 & _MASK
    found = found + length & _MASK
    for _ in range((length - at) // 8):
        found = (_rotated(found ^ _mixed(0, int.from_bytes(raw[at : at + 8], "little")), 27) * _P1 + _P4) & _MASK
        at += 8
    if length - at >= 4:
        found ^= int.from_bytes(raw[at : at + 4], "little") * _P1 & _MASK
        found = (_rotated(found, 23) * _P2 + _P3) & _MASK
        at += 4
    for byte in raw[at:]:
        found = _rotated(found ^ byte * _P5 & _MASK, 11) * _P1 & _MASK
    found = (found ^ found >> 33) * _P2 & _MASK
    found = (found ^ found >> 29) * _P3 & _MASK
    return found ^ found >> 32


def tie_hash(token: bytes, answer: bytes) -> int:
    """Return the hash that decides between two answers of one rung; `answer` includes the group, if there is one."""
    raw = token[:13] + b"\0" + answer
    return xxh64(raw + bytes(-len(raw) % 8), 42)


def winner(token: bytes, held: Ranked | None, new: Ranked) -> Ranked:
    """Return the one of two reports of a token that counts. Hashes only where it must: it is slow."""
    if held is None or held == new:
        return new
    if held[0] != new[0]:
        return max(held, new)
    return max(held, new, key=lambda report: (tie_hash(token, report[1]), report[1][::-1]))
