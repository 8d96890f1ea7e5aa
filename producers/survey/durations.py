"""Durations as people write them (`90s`, `5m`, `1h 30m`) and as programs count them (integer milliseconds)."""

from __future__ import annotations

import re

_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_PART = re.compile(r"(\d+)(ms|[smhd])")
_WHOLE = re.compile(rf"\s*(?:{_PART.pattern}\s*)+")

MAX_MS = 10 * 366 * 86_400_000
"""Ten years: anything longer is a typing error, and sums of durations stay far inside 64 bits."""


def parse_duration(text: str) -> int:
    """Return the milliseconds that `text` means; ValueError for anything but numbers with units.

    >>> parse_duration("90s"), parse_duration("1h 30m"), parse_duration("250ms")
    (90000, 5400000, 250)
    """
    if not _WHOLE.fullmatch(text):
        raise ValueError('write a duration as whole numbers with units ms, s, m, h or d, such as "90s" or "1h 30m"')
    total = sum(int(number) * _UNIT_MS[unit] for number, unit in _PART.findall(text))
    if total > MAX_MS:
        raise ValueError("no duration may be longer than ten years; check the unit")
    return total


def format_duration(duration_ms: int) -> str:
    """Return the shortest text that parse_duration reads back.

    >>> format_duration(5_400_000), format_duration(0), format_duration(1_250)
    ('1h 30m', '0s', '1s 250ms')
    """
    parts = []
    for unit, size in _UNIT_MS.items():
        number, duration_ms = divmod(duration_ms, size)
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts) or "0s"
