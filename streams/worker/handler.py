"""Between a driver and the applier: checks that no fetch batch is missing, and keeps the worker's metrics."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence

import numpy as np

from producers.clock import Clock, system_clock
from streams.kafka.messages import FetchBatch, Lag
from streams.kafka.topic_state import TopicState
from streams.store.heartbeats import CLOCK_TOLERATED_MS
from streams.tracing import Spans, no_spans
from streams.windows.latency import Latencies
from streams.worker.applier import Applied, Applier
from streams.worker.clock_offset import ClockOffset
from streams.worker.driver import Place
from streams.worker.lag_age import LagAges
from streams.worker.open_transactions import OpenTransactions
from streams.worker.retry import RestartRequired
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)


class BatchHandler:
    """Feeds fetch batches of one topic to the applier. Its callers run in one thread, but for `topic_looked_at` and
    what is about stamps.

    Args:
        topic: what it is fed from.
        applier: what counts.
        metrics: lags and the like, by partition.
        latencies: when reports were counted.
        beside: whether another topic is read too, so that numbers of partitions do not name a partition.
        clock: the time here, in ms; lags are told by it as long as it agrees with the broker's.
        spans: begins a span for every call of `handle`.
    """

    def __init__(
        self,
        topic: str,
        applier: Applier,
        metrics: WorkerMetrics,
        latencies: Latencies,
        *,
        beside: bool = False,
        clock: Clock = system_clock,
        spans: Spans = no_spans,
    ) -> None:
        self._topic, self._applier, self._metrics, self._latencies = topic, applier, metrics, latencies
        self._spans = spans
        self._named = f"{topic}:" if beside else ""
        self._next: dict[int, int] = {}
        self._clock, self._off_ms = clock, 0
        self._ages = LagAges(metrics.lag_seconds, self._broker_now, named=self._named)
        self._deleted = DeletedUnread(topic, metrics)
        self._transactions = OpenTransactions(topic)
        self._clock_offset, self._clock_is_off = ClockOffset(), False
        self._stamps: set[bool] = set()

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions of the last assignment."""
        return frozenset(self._next)

    def start_at(self, committed: Mapping[int, int | None]) -> dict[int, int]:
        """Return where to start reading each partition of a new assignment.

        Raises:
            RestartRequired: the store did not answer in time.
        """
        # Faust revokes everything at every rebalance. What comes back at once keeps its tables: stamps guard them.
        gone = self._next.keys() - committed.keys()
        self._applier.revoked(self._topic, gone)
        for partition in gone:
            label = f"{self._named}{partition}"
            self._metrics.lag.remove(label)
            self._metrics.uncommitted.remove(label)
            self._metrics.transaction_seconds.remove(label)
            self._ages.forget(partition)
            self._transactions.forget(partition)
        for partition in committed:
            self._ages.assigned(partition)
        starts = self._applier.assigned(self._topic, committed)
        self._next = dict(starts)
        self._deleted.assigned({partition for partition, offset in committed.items() if offset is None})
        return self._next.copy()

    def handle(self, batches: Sequence[FetchBatch]) -> None:
        """Count all records of these fetch batches; when it returns, they may be acknowledged.

        Raises:
            RestartRequired: they cannot be counted now, or a fetch batch is missing.
        """
        with self._spans("thaw.batch") as span:
            span.set_attribute("messaging.system", "kafka")
            span.set_attribute("messaging.operation.type", "process")
            span.set_attribute("messaging.destination.name", self._topic)
            span.set_attribute("messaging.batch.message_count", sum(len(batch.records) for batch in batches))
            spans = [f"{batch.partition}@{batch.start}-{batch.next_offset - 1}" for batch in batches]
            span.set_attribute("thaw.offsets", spans)
            applied = self._handle(batches)
            span.set_attribute("thaw.windows", len(applied.windows))
            span.set_attribute("thaw.reports", applied.reports)
            span.set_attribute("thaw.reports.applied", applied.counters.applied)
            span.set_attribute("thaw.reports.duplicate", applied.counters.duplicate)

    def _handle(self, batches: Sequence[FetchBatch]) -> Applied:
        received_ms = self._clock()
        for batch in batches:
            if batch.missing:
                self._deleted.up_to(batch.partition, batch.start, batch.start + batch.missing)
            expected = self._next.get(batch.partition)
            if expected is not None and batch.start > expected:
                raise RestartRequired(
                    f"{batch.topic}[{batch.partition}]: records {expected} to {batch.start - 1} were fetched but not "
                    "handed over"
                )
            if expected is not None:
                self._next[batch.partition] = max(expected, batch.next_offset)
        self._compare_clocks(batches, received_ms)
        self._ages.begin(batches)
        with self._metrics.batch_seconds.time():
            applied = self._applier.process(batches)
        now_ms = self._clock()
        self._ages.end(batches)
        self._metrics.records.inc(sum(len(batch.records) for batch in batches))
        self._metrics.reports.inc(applied.reports)
        self._metrics.last_batch.set(now_ms / 1_000)
        for window, moments in applied.frames_sent_ms.items():
            sent_ms, frames = np.unique(moments, return_counts=True)
            self._latencies.applied(window, zip(sent_ms.tolist(), frames.tolist(), strict=True), now_ms)
        return applied

    def watch_lag(self, lags: Mapping[int, Lag], now_ms: int) -> None:
        """Take note of how many records of each partition were not read yet."""
        for partition, lag in lags.items():
            label = f"{self._named}{partition}"
            self._metrics.lag.labels(label).set(lag.records)
            self._metrics.uncommitted.labels(label).set(lag.uncommitted)
            self._ages.watch(partition, lag)
        for partition, seconds in self._transactions.look(lags, now_ms).items():
            self._metrics.transaction_seconds.labels(f"{self._named}{partition}").set(seconds)

    def topic_looked_at(self, state: TopicState) -> None:
        """Take note of a state of the topic; from any thread."""
        for partition, read in self._next.copy().items():
            self._deleted.up_to(partition, read, state.first_offsets.get(partition, 0))
        self._clock_offset.asked(state.ends, state.asked_ms)
        if state.log_append_time:
            self._applier.broker_time(state.newest_ms)

    def stamped(self, by_broker: bool) -> None:
        """Take note of whose clock stamped records that were fetched; from any thread."""
        self._stamps.add(by_broker)

    def stamped_by_broker(self) -> bool | None:
        """Return whether all records since the last call were stamped by the broker; None if there were none."""
        stamps, self._stamps = self._stamps, set()
        return all(stamps) if stamps else None

    def _compare_clocks(self, batches: Sequence[FetchBatch], now_ms: int) -> None:
        """Report a clock that disagrees with the broker's, once, and once that it agrees again."""
        lasts = [(batch.partition, batch.records[-1]) for batch in batches if batch.records]
        offsets = [
            self._clock_offset.of(partition, last.offset, last.timestamp_ms, now_ms) for partition, last in lasts
        ]
        known = [offset for offset in offsets if offset is not None]
        if not known:
            return
        offset_ms = min(known, key=abs)
        self._metrics.clock_offset.set(offset_ms / 1_000)
        off = abs(offset_ms) > CLOCK_TOLERATED_MS
        if off and not self._clock_is_off:
            logger.error(
                "the clock of this worker is %d s %s the broker's; no report is judged by it, but estimates carry its "
                "time: set the clock (NTP)",
                abs(offset_ms) // 1_000,
                "ahead of" if offset_ms > 0 else "behind",
            )
        elif self._clock_is_off and not off:
            logger.warning("the clock of this worker agrees with the broker's again")
        if off != self._clock_is_off:
            self._off_ms = 0
            self._ages.clock_was_set()
        if off and abs(offset_ms) > abs(self._off_ms):
            self._off_ms = offset_ms  # what a record proves is less than the truth
        self._clock_is_off = off

    def _broker_now(self) -> int:
        """Return the broker's time as far as it is known to differ from the time here."""
        return self._clock() - self._off_ms

    def verify(self) -> None:
        """Check that the store still has what was counted, also of partitions without traffic.

        Raises:
            RestartRequired: it has not, or did not answer in time.
        """
        self._applier.verify()


class TopicsFeed:
    """What a driver feeds: one handler for each topic that is read."""

    def __init__(self, handlers: Mapping[str, BatchHandler]) -> None:
        self._handlers = handlers

    @property
    def topics(self) -> list[str]:
        """The topics to read."""
        return list(self._handlers)

    @property
    def assigned(self) -> frozenset[Place]:
        """The partitions of the last assignment."""
        return frozenset((topic, part) for topic, handler in self._handlers.items() for part in handler.assigned)

    def start_at(self, committed: Mapping[Place, int | None]) -> dict[Place, int]:
        """Return where to start reading each partition of a new assignment.

        Raises:
            RestartRequired: the store did not answer in time.
        """
        starts: dict[Place, int] = {}
        for topic, handler in self._handlers.items():
            own = {partition: offset for (name, partition), offset in committed.items() if name == topic}
            starts |= {(topic, partition): offset for partition, offset in handler.start_at(own).items()}
        return starts

    def handle(self, batches: Sequence[FetchBatch]) -> None:
        """Count all records of these fetch batches; when it returns, they may be acknowledged.

        Raises:
            RestartRequired: they cannot be counted now, or a fetch batch is missing.
        """
        for topic, handler in self._handlers.items():
            own = [batch for batch in batches if batch.topic == topic]
            if own:
                handler.handle(own)

    def watch_lag(self, lags: Mapping[Place, Lag], now_ms: int) -> None:
        """Take note of how many records of each partition were not read yet."""
        for topic, handler in self._handlers.items():
            handler.watch_lag({part: lag for (name, part), lag in lags.items() if name == topic}, now_ms)

    def verify(self) -> None:
        """Check that the store still has what was counted, also of partitions without traffic.

        Raises:
            RestartRequired: it has not, or did not answer in time.
        """
        # All handlers share one applier, which knows the offsets of all topics.
        next(iter(self._handlers.values())).verify()

    def stamped(self, topic: str, by_broker: bool) -> None:
        """Take note of whose clock stamped records that were fetched from a topic; from any thread."""
        self._handlers[topic].stamped(by_broker)


class DeletedUnread:
    """Counts records that the broker deleted before they were read, each once, whoever notices first."""

    def __init__(self, topic: str, metrics: WorkerMetrics) -> None:
        self._topic, self._metrics = topic, metrics
        self._lock = threading.Lock()
        self._told: dict[int, int] = {}
        self._fresh: set[int] = set()

    def assigned(self, fresh: set[int]) -> None:
        """Take note of partitions of which nothing was ever read: what they lack was not lost here."""
        with self._lock:
            self._fresh = set(fresh)

    def up_to(self, partition: int, read: int, first: int) -> None:
        """Report the records from `read` up to the first one that the broker still has."""
        with self._lock:
            begin = max(read, self._told.get(partition, 0))
            if first <= begin:
                if read > 0:
                    self._fresh.discard(partition)
                return
            fresh = partition in self._fresh
            self._told[partition] = first
        if fresh:
            logger.info("%s[%d] begins at %d; what came before was deleted", self._topic, partition, first)
            return
        self._metrics.deleted_unread.inc(first - begin)
        logger.error(
            "%s[%d]: records %d to %d were deleted unread and are not counted; start more workers, or set a longer "
            "retention.ms of the topic",
            self._topic,
            partition,
            begin,
            first - 1,
        )
