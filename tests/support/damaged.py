"""A topic, a worker and its store, whose parts can be damaged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from producers.clock import Clock
from streams.kafka.messages import FetchBatch
from streams.repair.rebuild import Rebuilder
from streams.repair.unreadable import UnreadableRebuilder
from streams.store.contract import Store
from streams.store.redis import RedisStore
from streams.store.shape import Key, Shape
from streams.windows.counted import ReportsTopic
from streams.windows.recompute import Recomputer
from streams.worker.applier import Applier
from streams.worker.table import Table
from streams.worker_metrics import worker_metrics
from tests.support.clock import ManualClock
from tests.support.rebuild import PARTITIONS, Topic
from tests.support.reports import TOPIC, WINDOW, WINDOW_MS, SurveyDict, oracle, random_reports
from tests.support.surveys import survey

COLOUR = survey()
SHAPE = Shape.of(COLOUR)
NOW_MS = WINDOW + 100_000
"""All rungs are open."""
KEY = Key(COLOUR.id, WINDOW, 1)
OTHER = WINDOW - WINDOW_MS
SEGMENTS = {"log": 0, "last": -1}
"""Which segment of the log is damaged."""


class Damaged:
    """A topic, a worker and its store, whose parts can be damaged."""

    def __init__(self, store: Store, write: Callable[[str, bytes], None], clock: ManualClock) -> None:
        self.store, self._write, self.clock = store, write, clock
        self.topic, self.metrics = Topic(), worker_metrics()
        self.published: list[int] = []
        self._read = [0] * PARTITIONS
        self.sent = {window_ms: [] for window_ms in (WINDOW, OTHER)}  # type: dict[int, list[Any]]
        surveys = SurveyDict(COLOUR)
        self.recomputer = Recomputer(
            store,
            surveys,
            self._publish,
            "estimates",
            ReportsTopic(TOPIC, PARTITIONS),
            fold=Table.of_log,
            clock=clock,
            metrics=self.metrics,
        )
        self.since_ms: int | None = None
        self.rebuilder = self.rebuilder_at(clock)
        self.restart()

    def rebuilder_at(self, clock: Clock) -> UnreadableRebuilder:
        """Return the rebuilder of a worker with this clock."""
        return UnreadableRebuilder(
            self.store,
            SurveyDict(COLOUR),
            self._open,
            partitions=PARTITIONS,
            metrics=self.metrics,
            counted_since=lambda: self.since_ms,
            clock=clock,
        )

    def restart(self) -> None:
        self.applier = Applier(
            self.store,
            SurveyDict(COLOUR),
            lambda _: None,
            partitions=PARTITIONS,
            clock=self.clock,
            metrics=self.metrics,
        )
        self.applier.assigned(TOPIC, dict(enumerate(self._read)))

    @contextmanager
    def _open(self) -> Iterator[Topic]:
        self.topic.rewind()
        yield self.topic

    def _publish(self, messages: Any) -> None:
        self.published += [int(message.key.rpartition(b":")[2]) for message in messages]

    def send(self, *, seed: int) -> None:
        """Let reports of both windows come, and count them."""
        for window_ms, sent in self.sent.items():
            some = random_reports(COLOUR, 200, 300, random.Random(seed + window_ms))
            self.topic.send(COLOUR, some, window_ms=window_ms, at_ms=NOW_MS)
            sent += some
        self.applier.process(self.batches())
        self.clock.advance(1)

    def entries(self) -> bytes:
        return self.store.log.load([KEY], SHAPE, Table.of_log, whole=True)[KEY].entries

    def recount(self, *, replace: bool) -> str:
        """Do what `thaw rebuild` does; return the status of the window."""
        self.topic.rewind()
        rebuilder = Rebuilder(
            self.store,
            self.topic,
            COLOUR,
            partitions=PARTITIONS,
            window_ms=WINDOW,
            since_ms=self.since_ms,
            clock=self.clock,
        )
        return rebuilder.run(replace=replace)[0].status

    def topic_made_again(self) -> None:
        self.topic, self._read, self.since_ms = Topic(), [0] * PARTITIONS, NOW_MS

    def batches(self) -> list[FetchBatch]:
        found = self.topic.batches(self._read)
        self._read = [len(records) for records in self.topic.log]
        return found

    def damage(self, part: str, raw: bytes = b"something else") -> None:
        self._write(part, raw)

    def equal(self, window_ms: int = WINDOW) -> bool:
        found = self.store.estimates.tally(COLOUR.id, window_ms, COLOUR.shards, SHAPE)
        return found == oracle(COLOUR, self.sent[window_ms])

    def counted(self, part: str) -> float | None:
        return self.metrics.registry.get_sample_value("thaw_worker_unreadable_total", {"part": part})


def on_redis(real: RedisStore, clock: ManualClock) -> Damaged:
    client: Any = real._client
    log, _, tally = real.log._connection.log_keys(KEY)

    def write(part: str, raw: bytes) -> None:
        if part in SEGMENTS:
            client.lset(log, SEGMENTS[part], raw)
        else:
            client.set(tally, raw)

    return Damaged(real, write, clock)
