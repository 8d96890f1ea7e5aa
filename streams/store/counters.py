"""Counters of reports, typed: what became of them. How a store names them in its keys is its own matter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

FRAME_REASONS: Final = ("empty", "length", "magic", "version", "count")
"""Why a frame cannot be read at all."""

REASONS: Final = (
    *FRAME_REASONS,
    "survey",
    "shard",
    "partition",
    "window",
    "future",
    "rung",
    "early",
    "token",
    "group",
    "answer",
    "key",
)
"""Why a frame is refused and becomes a dead letter; `docs/store.md` explains each."""

UNDECODABLE: Final = "batch"
"""Why a whole record batch becomes a dead letter: it cannot be decoded, so it has no frames."""

ALL_REASONS: Final = (*REASONS, UNDECODABLE)
"""Every reason of a dead letter."""

UNKNOWN_SURVEY: Final = "unknown"
"""Stands for the survey id in counters of frames rejected before their survey was known; no real id looks like it."""


@dataclass(frozen=True)
class Counters:
    """Numbers of reports by what became of them.

    The first four are counted in the atomic step of a report log: no crash repeats them. The others may be repeated by
    a crash.
    """

    applied: int = 0
    """Changed a count."""
    duplicate: int = 0
    """Were counted already."""
    outdated: int = 0
    """Of a lower rung than the one counted."""
    conflicting: int = 0
    """Same token and rung, another answer."""
    expired: int = 0
    """Came after the survey's retention."""
    rejected: Mapping[str, int] = field(default_factory=dict)
    """Refused, by reason (one of ALL_REASONS)."""

    def __add__(self, other: Counters) -> Counters:
        rejected = dict(self.rejected)
        for reason, reports in other.rejected.items():
            rejected[reason] = rejected.get(reason, 0) + reports
        return Counters(
            self.applied + other.applied,
            self.duplicate + other.duplicate,
            self.outdated + other.outdated,
            self.conflicting + other.conflicting,
            self.expired + other.expired,
            rejected,
        )

    @property
    def counted(self) -> int:
        """Sum of the exact counters: applied, duplicate, outdated, conflicting."""
        return self.applied + self.duplicate + self.outdated + self.conflicting

    def as_data(self) -> dict[str, int]:
        """Return all but the rejected ones under the stable names of metrics, of /api/v1 and of `--json`."""
        return {
            "applied": self.applied,
            "duplicate": self.duplicate,
            "stale": self.outdated,
            "conflict": self.conflicting,
            "expired": self.expired,
        }

    @property
    def rejected_total(self) -> int:
        """Refused reports over all reasons."""
        return sum(self.rejected.values())
