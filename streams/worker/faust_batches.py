"""Faust with one event per partition and fetch.

A stock Faust process handles a few thousand messages a second whatever their body costs, since each passes through
several asyncio tasks. Here all records that one fetch brought from one partition travel as one event, a
*fetch batch*; app, agents, acknowledgement, commits, rebalances stay Faust's own. Private methods of Faust are
overridden, so the version is pinned and `tests/unit/streams/worker/test_faust_contract.py` fails when one of them
changes (decision 0011).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import faust
from aiokafka import ConsumerRecord
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from streams.kafka.batches import Stamped, decode_here
from streams.kafka.messages import FetchBatch, Item, Lag, first_offset, since
from streams.worker.record_walk import runs_of
from streams.worker.unread import lag_of

logger = logging.getLogger(__name__)
_STEPS = logging.getLogger("faust.batches")
"""For the lines that Faust's services log at every step; limited like those of Faust itself."""

StartOffsets = Callable[[Mapping[TP, int | None]], Awaitable[Mapping[TP, int]]]
"""Given Kafka's committed offsets (None: never committed), returns where to start reading."""


class BatchThread(driver.AIOKafkaConsumerThread):
    """Faust's thread of aiokafka's consumer, which reads what is committed and decodes it by our rules."""

    app: BatchApp

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Check nothing: Faust measures since the start of the process, not since a partition was assigned.

        So a worker that has run for minutes and takes over a partition would log twenty lines of error for it. A worker
        that hangs shows in its lag and in the time of its last batch.
        """

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Faust ties it to its own transactions, which are not used here.
        consumer._isolation_level = "read_committed"
        return consumer

    async def _fetch_records(
        self, consumer: Any, active_partitions: Any, timeout: float | None = None, max_records: int | None = None
    ) -> Any:
        decode_here(consumer, walk=runs_of, stamped=self.app.stamped)
        return await super()._fetch_records(consumer, active_partitions, timeout=timeout, max_records=max_records)


class BatchConsumer(driver.Consumer):
    """Hands over whole fetch batches and starts reading at the stored offsets."""

    app: BatchApp
    logger = _STEPS

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._gap_seen: dict[TP, int] = {}

    def _new_consumer_thread(self) -> BatchThread:
        return BatchThread(self, loop=self.loop, beacon=self.beacon)

    # With Faust's own buffer rules a full buffer makes the fetcher sleep for a second. A full queue stops the hand-over
    # below all the same, because putting into it blocks.
    def on_buffer_full(self, tp: TP) -> None:
        """Keep the partition active."""

    def on_buffer_drop(self, tp: TP) -> None:
        """Keep the partition active."""

    async def seek_to_committed(self) -> Mapping[TP, int]:
        """Seek every assigned partition to its start offset; return the offsets."""
        thread = self._thread
        consumer = thread._ensure_consumer()
        committed = await thread.call_thread(_committed, consumer)
        starts = await self.app.start_offsets(committed)
        await thread.call_thread(_seek, consumer, starts)
        return dict(starts)

    def _new_offset(self, tp: TP) -> int | None:
        # One agent acknowledges the fetch batches of a partition in order, so everything below the highest is done.
        acked = self._acked[tp]
        if not acked:
            return None
        highest = max(acked)
        acked.clear()
        self._acked_index[tp].clear()
        return int(highest) + 1

    async def _drain_messages(self, fetcher: Any) -> None:
        try:
            while not (self._stopped.is_set() or fetcher._stopped.is_set()):
                await asyncio.sleep(0)
                generation = self.app.consumer_generation_id
                fetched, active = await self._wait_next_records(timeout=1.0)
                if self.should_stop or not fetched:
                    continue
                for tp, records in fetched.items():
                    outdated = generation != self.app.consumer_generation_id or not self.flow_active
                    if outdated or (active is not None and tp not in active):
                        await self._rewind(tp)
                    else:
                        await self._hand_over(tp, records)
        except self.consumer_stopped_errors:
            if not self.transport.app.should_stop:
                raise
        except asyncio.CancelledError:
            if not self.transport.app.should_stop:
                raise

    async def _hand_over(self, tp: TP, items: Sequence[Item]) -> None:
        expected = self._read_offset[tp]
        first = first_offset(items[0])
        if expected is None:
            expected = first
        if first < expected:
            items = since(items, expected)
            if not items:
                return
            first = first_offset(items[0])
        if first > expected and not await self._gap_is_real(tp, expected):
            return
        batch: Any = FetchBatch.of(tp.topic, tp.partition, expected, items, missing=max(0, first - expected))
        last_offset = items[-1].offset
        timestamp_ms = batch.records[-1].timestamp_ms if batch.records else 0
        # Faust acknowledges and commits by the offset of the last record.
        message = self._to_message(
            tp, ConsumerRecord(tp.topic, tp.partition, last_offset, timestamp_ms, 1, None, batch, None, -1, -1, ())
        )
        await self.wait_first(self.callback(message), self.suspend_flow.wait())
        # If the flow was suspended the fetch batch may or may not be in the queue. Reading it again is harmless.
        if not self.suspend_flow.is_set():
            self._read_offset[tp] = last_offset + 1

    async def _gap_is_real(self, tp: TP, expected: int) -> bool:
        """Tell whether offsets are missing in the log itself: deleted by retention, or never given to a record.

        Read again once to confirm it, since the other explanation is that fetched records were dropped here.
        """
        if self._gap_seen.get(tp) != expected:
            self._gap_seen[tp] = expected
            await self._rewind(tp)
            return False
        del self._gap_seen[tp]
        return True

    async def _rewind(self, tp: TP) -> None:
        """Fetch again from where the last fetch batch ended; a revoked partition has none and is skipped."""
        offset = self._read_offset.get(tp)
        if offset is not None:
            await self._thread.call_thread(_seek, self._thread._ensure_consumer(), {tp: offset})


async def _committed(consumer: Any) -> dict[TP, int | None]:
    return {TP(*tp): await consumer.committed(tp) for tp in consumer.assignment()}


async def _seek(consumer: Any, offsets: Mapping[TP, int]) -> None:
    # A rebalance may have come in between; its own recovery will seek.
    assigned = consumer.assignment()
    for tp, offset in offsets.items():
        found = driver.ensure_aiokafka_TP(tp)
        if found in assigned:
            consumer.seek(found, offset)


class BatchTransport(driver.Transport):
    """Faust's aiokafka transport with our consumer."""

    Consumer: ClassVar[type] = BatchConsumer


class BatchTopic(faust.Topic):
    """A topic whose values are fetch batches already."""

    def _compile_decode(self) -> None:
        async def decode(message: Any, *, propagate: bool = False) -> Any:  # noqa: ARG001  # Faust's signature
            return self._create_event(None, message.value, None, message=message)

        self.decode = decode  # type: ignore[method-assign]  # as Faust does it


class BatchApp(faust.App):
    """A Faust app that reads fetch batches, keeps nothing on disk and starts reading where `start_offsets` says."""

    logger = _STEPS
    start_offsets: StartOffsets
    stamped: Stamped

    def __init__(self, name: str, *, start_offsets: StartOffsets, stamped: Stamped, **options: Any) -> None:
        self.start_offsets, self.stamped = start_offsets, stamped
        super().__init__(name, Topic=BatchTopic, **options)

    def _new_transport(self) -> Any:
        return BatchTransport(self.conf.broker_consumer, self)

    def _create_directories(self) -> None:
        """Create none: there are no tables."""

    def rejoin(self) -> None:
        """Ask the group for partitions again, from any thread. Only a leader of the group causes a rebalance by it."""
        consumer: Any = self.consumer
        thread = consumer._thread
        thread.thread_loop.call_soon_threadsafe(thread._ensure_consumer()._coordinator.request_rejoin)

    def lags(self, partitions: Iterable[TP]) -> dict[TP, Lag]:
        """Return how far behind each partition is; without those of which that is unknown."""
        consumer: Any = self.consumer
        found = {}
        for tp in partitions:
            reader, read = consumer._thread._ensure_consumer(), consumer._read_offset.get(tp)
            lag = lag_of(reader, driver.ensure_aiokafka_TP(tp), read)
            if lag is not None:
                found[tp] = lag
        return found
