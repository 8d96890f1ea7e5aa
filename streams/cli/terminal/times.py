"""Times as people type and read them."""

from __future__ import annotations

from datetime import UTC, datetime


def moment_ms(text: str) -> int:
    """Read a time: milliseconds since the epoch, or ISO 8601 (UTC unless it says otherwise).

    >>> moment_ms("60000"), moment_ms("1970-01-01T00:01:00Z")
    (60000, 60000)
    """
    if text.isascii() and text.isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def shown_start(window_ms: int) -> str:
    """Return the start of a window as commands print it.

    >>> shown_start(60_000)
    '1970-01-01 00:01:00 UTC'
    """
    return datetime.fromtimestamp(window_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
