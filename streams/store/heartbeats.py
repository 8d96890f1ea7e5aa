"""Heartbeats: what each worker publishes about itself, so that the page shows which workers run and how far they lag.

They are for display only: counting depends on offsets, stamps and the recompute queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

SILENT_MS: Final = 8_000
"""A worker without a heartbeat for this long is not shown as running. Shorter: a long batch looks like a crash; longer:
the page shows old numbers as current for that time."""

CLOCK_TOLERATED_MS: Final = 60_000
"""A larger difference between the clocks of a worker and of the broker is reported."""

TRANSACTION_TOLERATED_MS: Final = 5_000
"""Records that wait behind one and the same transaction for longer are reported. Most transactions last for less than a
second."""

HEARTBEAT_KEEP_MS: Final = 600_000
"""How long the last heartbeat of a worker is kept, to show since when there is none."""


class Heartbeat(msgspec.Struct, frozen=True):
    """One heartbeat of one worker. Times in ms since the epoch; null where no value exists yet."""

    worker: str
    time_ms: int
    lag_records: int | None
    """Records of its partitions that it has not read; null before partitions were assigned."""
    last_batch_ms: int | None
    latency_p50_seconds: float | None
    """From the emission of a frame to a stored estimate that contains it, since the worker started."""
    latency_p99_seconds: float | None
    lag_seconds: float | None = None
    """Age of the oldest record of its partitions that it has not read, at most; null before partitions were assigned.
    """
    kafka_up: bool | None = None
    """Whether the brokers answered when they were last asked; null before that."""
    metrics_port: int | None = None
    """Port of its metrics, on its own machine; null of an older version."""
    clock_offset_seconds: float | None = None
    """How far its clock is ahead of the broker's, as far as records prove it; null of an older version."""
    uncommitted_records: int | None = None
    """Records of its partitions that wait behind an open transaction; null before partitions were assigned."""
    transaction_open_seconds: float | None = None
    """For how long the oldest such transaction has been seen."""


class HeartbeatReader(Protocol):
    """Reads the latest heartbeat of each worker. Any call may raise StoreUnavailableError."""

    def read(self) -> list[Heartbeat]:
        """Return the latest heartbeat of every worker, by name.

        `time_ms` is when it came, by the clock of the reader: the worker's own clock may be wrong.
        """
        ...


class Heartbeats(HeartbeatReader, Protocol):
    """Reads and writes the latest heartbeat of each worker."""

    def publish(self, heartbeat: Heartbeat) -> None:
        """Replace a worker's heartbeat, and delete those older than HEARTBEAT_KEEP_MS."""
        ...

    def remove(self, worker: str) -> None:
        """Delete the heartbeat of a worker that stops as planned."""
        ...


def alive(heartbeats: Sequence[Heartbeat], now_ms: int) -> list[Heartbeat]:
    """Return the heartbeats that are younger than SILENT_MS."""
    return [heartbeat for heartbeat in heartbeats if now_ms - heartbeat.time_ms <= SILENT_MS]
