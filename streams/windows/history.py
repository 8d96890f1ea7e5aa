"""The estimate history of a window: how estimate and band changed while rungs opened, as compact points.

A point is stored with every estimate, in the same atomic step; `EstimateStore.save` bounds their number.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streams.windows.record import EstimateRecord

HISTORY_VALUES: Final = 24
"""Values kept per point, the most frequent of that moment. More: a survey with many values costs more memory for its
histories than for its counts."""


class HistoryPoint(msgspec.Struct, frozen=True, array_like=True):
    """Estimates at one moment; the lists run in parallel, `values` holds positions in the survey's list of values."""

    time_ms: int
    users_per_rung: list[int]
    values: list[int]
    estimate: list[float | None]
    lower: list[float | None]
    upper: list[float | None]
    candidates: str = ""
    """Which candidates the positions mean, where the survey's list of values may change."""


def encode_point(record: EstimateRecord, candidates: str = "") -> bytes:
    """Return the point of an estimate as it is stored: its time, a blank, JSON without names."""
    rows = list(enumerate(record.values))
    if len(rows) > HISTORY_VALUES:
        rows.sort(key=lambda item: -(item[1].estimate or 0.0))
        rows = sorted(rows[:HISTORY_VALUES], key=lambda item: item[0])
    body = [
        record.users_per_rung,
        [position for position, _ in rows],
        [_short(row.estimate) for _, row in rows],
        [_short(row.lower) for _, row in rows],
        [_short(row.upper) for _, row in rows],
        *([candidates] if candidates else []),
    ]
    return b"%d %s" % (record.computed_ms, msgspec.json.encode(body))


def decode_point(raw: bytes) -> HistoryPoint | None:
    """Read what `encode_point` wrote; None if it is something else."""
    time, _, body = raw.partition(b" ")
    try:
        point = msgspec.convert([int(time), *msgspec.json.decode(body)], HistoryPoint)
    except (ValueError, TypeError, msgspec.MsgspecError):
        return None
    return point if len(point.values) == len(point.estimate) == len(point.lower) == len(point.upper) else None


def _short(number: float | None) -> float | None:
    # Six digits are more than a screen shows.
    return None if number is None else float(f"{number:.6g}")
