"""The seam between what reads Kafka and what counts.

A driver joins the consumer group, brings fetch batches to the feed and acknowledges them when it returns. It decides
nothing about reports. There are two: `faust_driver` (the default) and `plain_driver`, which needs no Faust. Both pass
`tests/contract/test_drivers.py`.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, Protocol

from producers.clock import system_clock
from streams.kafka.messages import FetchBatch, Lag
from streams.worker.retry import EXIT_RESTART, RestartRequired

logger = logging.getLogger(__name__)

MAX_BATCHES: Final = 8
"""Fetch batches that are folded at once. More: fewer round trips to Redis, but folding delays a rebalance for longer,
and this many fetches lie in memory. Fewer: more round trips."""
GATHER_SECONDS: Final = 0.1
MAX_FETCH_BYTES: Final = 4 << 20
MAX_FETCH_RECORDS: Final = 20_000
"""Small records cost Python's time one by one. More: rebalances and commits are delayed for seconds."""
LAG_SECONDS: Final = 1.0
"""How often a worker measures how far behind it is, and what waits behind an open transaction."""
VERIFY_SECONDS: Final = 5.0
"""How often a worker checks that stored offsets did not regress. A partition with traffic finds out by its next batch;
one without would be counted short for ever. Shorter: 64 small scripts that often; longer: counts stay short longer."""
COMMIT_SECONDS: Final = 1.0
SESSION_SECONDS: Final = 10.0
"""How long the group waits for a worker that is gone. Shorter: a pause looks like a crash; longer: a crash is noticed
later."""
HEARTBEAT_SECONDS: Final = 2.0
REBALANCE_SECONDS: Final = 15.0
"""How long the group waits for workers that still fold."""

Place = tuple[str, int]
"""A topic and a partition."""


class Feed(Protocol):
    """What counts. A driver calls it from one thread, but for `stamped`."""

    @property
    def topics(self) -> Sequence[str]:
        """The topics to read."""
        ...

    @property
    def assigned(self) -> frozenset[Place]:
        """The partitions of the last assignment."""
        ...

    def start_at(self, committed: Mapping[Place, int | None]) -> Mapping[Place, int]:
        """Return where to start reading each partition of a new assignment, given Kafka's committed offsets."""
        ...

    def handle(self, batches: Sequence[FetchBatch]) -> None:
        """Count these fetch batches; when it returns, they may be acknowledged."""
        ...

    def watch_lag(self, lags: Mapping[Place, Lag], now_ms: int) -> None:
        """Take note of how many records of each partition were not read yet."""
        ...

    def verify(self) -> None:
        """Check that the store still has what was counted."""
        ...

    def stamped(self, topic: str, by_broker: bool) -> None:
        """Take note of whose clock stamped records that were fetched from a topic; from any thread."""
        ...


class Driver(Protocol):
    """Reads Kafka for a feed."""

    def run(self) -> int:
        """Read until the worker is asked to stop, or reading fails for good; return the exit status."""
        ...

    def rejoin(self) -> None:
        """Ask the group for partitions again, from any thread. Only a leader of the group causes a rebalance by it."""
        ...


def exit_now(reason: object, *, status: int = EXIT_RESTART) -> NoReturn:
    """End the process at once, without acknowledging anything.

    A clean shutdown would wait for fetch batches that will never be acknowledged.
    """
    logger.critical(
        "exiting with status %d: %s; safe to restart, the missing records are read again from Kafka", status, reason
    )
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


class ExitingFeed:
    """Calls a feed. What it raises ends the process before the acknowledgement, so the next one reads it again."""

    def __init__(self, feed: Feed, exit_process: Callable[..., NoReturn] = exit_now) -> None:
        self._feed, self._exit = feed, exit_process
        self.topics, self.stamped = feed.topics, feed.stamped

    def start_at(self, committed: Mapping[Place, int | None]) -> Mapping[Place, int]:
        """Return where to start reading each partition."""
        try:
            starts = self._feed.start_at(committed)
        except RestartRequired as error:
            self._exit(error)
        if starts:
            places = sorted(starts.items())
            logger.info("assigned %s", ", ".join(f"{topic}[{p}]@{offset}" for (topic, p), offset in places))
        return starts

    def handle(self, batches: Sequence[FetchBatch]) -> None:
        """Count these fetch batches."""
        try:
            self._feed.handle(batches)
        except RestartRequired as error:
            self._exit(error)
        except Exception:
            logger.exception("a batch could not be counted")
            self._exit("a batch could not be counted", status=1)

    def watch_lag(self, lags_of: Callable[[frozenset[Place]], Mapping[Place, Lag]]) -> None:
        """Ask for the lags of what is assigned and pass them on."""
        self._feed.watch_lag(lags_of(self._feed.assigned), system_clock())

    def verify(self) -> None:
        """Check that the store still has what was counted."""
        try:
            self._feed.verify()
        except RestartRequired as error:
            self._exit(error)
