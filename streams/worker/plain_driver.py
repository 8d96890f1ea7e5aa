"""The plain driver: a consumer of aiokafka in a thread of its own, and nothing else. It needs no Faust.

aiokafka keeps the membership in the group, fetches, and decodes by our rules (`streams.kafka.batches`). The rest is
here, in two threads: the reader owns the consumer, hands fetch batches to the main thread and commits what that has
acknowledged; the main thread calls the feed. So folding delays no heartbeat, and all calls of the feed come from one
thread. Decision 0360 compares the drivers.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import signal
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import FrameType
from typing import Any, Final

import aiokafka
from aiokafka.errors import (
    CommitFailedError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaError,
    TopicAuthorizationFailedError,
)

from streams.connections import aiokafka_options
from streams.kafka.batches import decode_here
from streams.kafka.errors import Troubles
from streams.kafka.membership import member_name
from streams.kafka.messages import FetchBatch, Item, Lag, first_offset, since
from streams.logs import StateLog
from streams.settings import Settings
from streams.worker.driver import (
    COMMIT_SECONDS,
    GATHER_SECONDS,
    HEARTBEAT_SECONDS,
    LAG_SECONDS,
    MAX_BATCHES,
    MAX_FETCH_BYTES,
    MAX_FETCH_RECORDS,
    REBALANCE_SECONDS,
    SESSION_SECONDS,
    VERIFY_SECONDS,
    ExitingFeed,
    Feed,
    Place,
    exit_now,
)
from streams.worker.record_walk import runs_of
from streams.worker.threads import start_thread
from streams.worker.unread import lag_of

logger = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.2
"""How long one look for records takes at most. Longer: a stop is noticed later."""
_AGAIN_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 3_600.0
"""aiokafka leaves the group if records are not asked for in this time; a full queue is no reason to leave."""


class _Assignment:
    """Kafka's committed offsets of an assignment, and the promise of where to start reading."""

    def __init__(self, committed: Mapping[Place, int | None]) -> None:
        self.committed = committed
        self.starts: Future[Mapping[Place, int]] = Future()


_Work = FetchBatch | _Assignment


class PlainDriver:
    """Reads Kafka with a consumer alone.

    Args:
        settings: the connection, the group and the name in it.
        feed: what counts.
        stopping: set when the worker is asked to stop.
    """

    def __init__(self, settings: Settings, feed: Feed, stopping: threading.Event) -> None:
        self._feed, self._stopping = ExitingFeed(feed), stopping
        self._work: queue.SimpleQueue[_Work] = queue.SimpleQueue()
        self._reader = _Reader(settings, self._feed, self._work)

    def run(self) -> int:
        """Count until the worker is asked to stop; return the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        thread = start_thread("kafka-reader", self._reader.run, exit_now)
        lag_at = verify_at = time.monotonic()
        while not self._stopping.is_set():
            work = self._gather()
            for item in work:
                if isinstance(item, _Assignment):
                    item.starts.set_result(self._feed.start_at(item.committed))
            batches = [item for item in work if isinstance(item, FetchBatch)]
            if batches:
                self._feed.handle(batches)
                self._reader.acknowledge(batches)
            now = time.monotonic()
            if now >= lag_at:
                self._feed.watch_lag(self._reader.lags)
                lag_at = now + LAG_SECONDS
            if now >= verify_at:
                self._feed.verify()
                verify_at = now + VERIFY_SECONDS
        self._reader.stop()
        thread.join(_STOP_SECONDS)
        return 0

    def rejoin(self) -> None:
        """Ask the group for partitions again, from any thread."""
        self._reader.rejoin()

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping.is_set():
            exit_now("second stop signal")
        self._stopping.set()

    def _gather(self) -> list[_Work]:
        """Return an assignment, or what comes within a moment, at most as much as is folded at once."""
        found: list[_Work] = []
        limit = time.monotonic() + GATHER_SECONDS
        try:
            while len(found) < MAX_BATCHES:
                found.append(self._work.get(timeout=max(0.0, limit - time.monotonic())))
                if isinstance(found[-1], _Assignment):
                    break  # nothing is fetched before it is answered
        except queue.Empty:
            pass
        return found


class _Reader(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]  # untyped
    """The thread of the consumer. What begins with an underscore runs in its loop."""

    def __init__(self, settings: Settings, feed: ExitingFeed, work: queue.SimpleQueue[_Work]) -> None:
        self._settings, self._topics, self._work = settings, feed.topics, work
        self._stamped = feed.stamped
        self._group = f"{settings.prefix}{settings.group}"
        self._troubles, self._state = Troubles(settings), StateLog(logger, "reading from Kafka")
        self._loop = asyncio.new_event_loop()
        self._consumer: Any = None
        self._stopping, self._assigned = False, False
        self._generation = 0
        """Raised at both ends of a rebalance: what was fetched before belongs to an assignment that is over."""
        self._open, self._limit = 0, 2 * MAX_BATCHES
        """Fetch batches that were handed over and are not counted yet."""
        self._goes_on, self._idle = asyncio.Event(), asyncio.Event()
        self._next: dict[Place, int] = {}
        self._acknowledged: dict[Place, int] = {}
        self._gaps: dict[Place, int] = {}
        """Where offsets were missing behind the last fetch batch, to be read once more."""

    def run(self) -> None:
        """Read until `stop` is called."""
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._loop.close()

    def stop(self) -> None:
        """Commit what was acknowledged and end; from any thread."""

        def stop() -> None:
            self._stopping = True
            self._update()

        self._call(stop)

    def acknowledge(self, batches: Sequence[FetchBatch]) -> None:
        """Take note that these fetch batches were counted; from any thread."""
        places = [((batch.topic, batch.partition), batch.next_offset) for batch in batches]

        def done() -> None:
            self._open -= len(places)
            for place, offset in places:
                if place in self._next:
                    self._acknowledged[place] = max(offset, self._acknowledged.get(place, 0))
            self._update()

        self._call(done)

    def rejoin(self) -> None:
        """Ask the group for partitions again; from any thread."""
        if self._consumer is not None:
            self._call(self._consumer._coordinator.request_rejoin)

    def lags(self, places: Iterable[Place]) -> dict[Place, Lag]:
        """Return how far behind each partition is, without those of which that is unknown; from any thread."""
        found = {}
        for place in places:
            lag = lag_of(self._consumer, aiokafka.TopicPartition(*place), self._next.get(place))
            if lag is not None:
                found[place] = lag
        return found

    def _call(self, action: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(action)

    def _update(self) -> None:
        """Set the events to what is true now."""
        goes_on = self._stopping or (self._assigned and self._open < self._limit)
        (self._goes_on.set if goes_on else self._goes_on.clear)()
        idle = self._stopping or not self._open
        (self._idle.set if idle else self._idle.clear)()

    async def _main(self) -> None:
        self._update()
        self._consumer = consumer = aiokafka.AIOKafkaConsumer(
            **aiokafka_options(self._settings),
            group_id=self._group,
            group_instance_id=member_name(self._settings, self._topics),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=MAX_FETCH_BYTES,
            session_timeout_ms=int(SESSION_SECONDS * 1_000),
            heartbeat_interval_ms=int(HEARTBEAT_SECONDS * 1_000),
            rebalance_timeout_ms=int(REBALANCE_SECONDS * 1_000),
            max_poll_interval_ms=int(_IDLE_SECONDS * 1_000),
        )
        try:
            try:
                await consumer.start()
            except KafkaError as error:
                exit_now(f"no broker answered at {self._settings.kafka} ({error})")
            decode_here(consumer, walk=runs_of, stamped=self._stamped)
            consumer.subscribe(list(self._topics), listener=self)
            commits = asyncio.create_task(self._commit_regularly())
            await self._read()
            commits.cancel()
            await asyncio.wait_for(self._commit(), _STOP_SECONDS)
        except TimeoutError:
            logger.warning("the last offsets were not committed in time; the store has them")
        finally:
            await consumer.stop()

    async def _read(self) -> None:
        while True:
            await self._goes_on.wait()
            if self._stopping:
                return
            generation = self._generation
            try:
                fetched = await self._consumer.getmany(
                    timeout_ms=int(_POLL_SECONDS * 1_000), max_records=MAX_FETCH_RECORDS
                )
            except KafkaError as error:
                # aiokafka goes on by itself once the error was seen.
                self._state.down(self._explained(error))
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            self._state.up()
            if generation == self._generation:
                for tp, items in fetched.items():
                    self._hand_over((tp.topic, tp.partition), items)
            else:
                self._read_again(fetched)

    def _read_again(self, fetched: Iterable[Any]) -> None:
        """Go back to where the assignment starts: aiokafka may answer a request of before it with records of it."""
        for tp in fetched:
            start = self._next.get((tp.topic, tp.partition))
            if start is not None:
                self._consumer.seek(tp, start)

    def _gap_is_real(self, place: Place, start: int) -> bool:
        """Tell whether offsets are missing in the log itself: deleted by retention, or never given to a record.

        Read again once to confirm it, since the other explanation is that fetched records were dropped here.
        """
        if self._gaps.get(place) != start:
            self._gaps[place] = start
            self._consumer.seek(aiokafka.TopicPartition(*place), start)
            return False
        del self._gaps[place]
        return True

    def _hand_over(self, place: Place, items: Sequence[Item]) -> None:
        start = self._next[place]
        first = first_offset(items[0])
        if first > start and not self._gap_is_real(place, start):
            return
        if first < start:
            # The topic was made again, and whoever watches it ends the process; or a batch began before `start`.
            items = since(items, start)
            if not items:
                return
            first = start
        batch = FetchBatch.of(*place, start, items, missing=first - start)
        self._next[place] = batch.next_offset
        self._open += 1
        self._update()
        self._work.put(batch)

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:  # noqa: ARG002  # all are
        """Wait until what was handed over is counted, and commit it, before others read on there."""
        self._assigned = False
        self._generation += 1
        self._update()
        await self._idle.wait()
        await self._commit()
        self._next, self._acknowledged = {}, {}

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        """Start reading where the feed says."""
        try:
            committed = {(tp.topic, tp.partition): await self._consumer.committed(tp) for tp in assigned}
            assignment = _Assignment(committed)
            self._work.put(assignment)
            starts = await asyncio.wrap_future(assignment.starts)
            for place, offset in starts.items():
                self._consumer.seek(aiokafka.TopicPartition(*place), offset)
        except Exception as error:
            # aiokafka would log it, and go on reading from elsewhere.
            exit_now(f"an assignment could not be taken ({self._explained(error)})")
        self._next, self._acknowledged, self._gaps = dict(starts), {}, {}
        self._generation += 1
        self._assigned = True
        self._update()

    async def _commit_regularly(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_SECONDS)
            if self._assigned:
                await self._commit()

    async def _commit(self) -> None:
        """Commit what was acknowledged since the last time; what fails is committed with the next one."""
        offsets, self._acknowledged = self._acknowledged, {}
        if not offsets:
            return
        try:
            await self._consumer.commit({aiokafka.TopicPartition(*place): offset for place, offset in offsets.items()})
        except CommitFailedError:
            logger.info("offsets not committed: the partitions were given to another worker meanwhile")
        except KafkaError as error:
            logger.debug("offsets not committed: %s", error)
            self._acknowledged = offsets | self._acknowledged

    def _explained(self, error: Exception) -> object:
        if isinstance(error, InconsistentGroupProtocolError):
            return (
                f"the consumer group {self._group} has workers with another THAW_DRIVER; stop them, and start all with "
                f"the same one"
            )
        if isinstance(error, TopicAuthorizationFailedError):
            return self._troubles.denied(f"read the topic {' or '.join(self._topics)}")
        if isinstance(error, GroupAuthorizationFailedError):
            return self._troubles.denied(f"read the consumer group {self._group}")
        return error
