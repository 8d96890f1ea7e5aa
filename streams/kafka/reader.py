"""Reads a topic from its start to its end, outside the consumer group of the workers: nothing is committed.

What is read is decoded as workers decode it (`streams.kafka.batches`), so that both judge every record batch alike.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import aiokafka
from aiokafka.errors import KafkaError, TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaException, TopicPartition

from streams.connections import aiokafka_options, librdkafka_options
from streams.failures import UnavailableError
from streams.kafka.batches import MakeRecord, decode_here, headed, plain
from streams.kafka.errors import DENIED, Troubles
from streams.kafka.messages import FetchBatch, HeadedRecord, NoRecord, Record, Undecodable
from streams.settings import Settings

logger = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 5.0
_WAIT_MS = 100
_FETCH_BYTES = 4 << 20
_RECORDS_AT_ONCE = 20_000

_Result = TypeVar("_Result")


class ReadError(UnavailableError):
    """A topic cannot be read; the message says why."""


@dataclass(frozen=True)
class Held:
    """What the broker still holds of a partition: its first offset, and the timestamp of that record, None if empty."""

    first_offset: int
    first_ms: int | None


class Bus(Protocol):
    """A topic that is read repeatedly up to its end; `TopicReader` is one."""

    def read(self) -> Iterator[list[FetchBatch]]:
        """Return what came since the last call (at first: everything), in batches, up to the end at this moment."""
        ...

    def held(self) -> dict[int, Held]:
        """Return what the broker holds of each partition."""
        ...


def readers_group(settings: Settings) -> str:
    """Return the consumer group that readers name, as the client requires; none is joined, nothing is committed."""
    return f"{settings.prefix}thaw-readers"


class TopicReader:
    """A `Bus` on Kafka. Use as a context manager.

    Args:
        settings: where the brokers are.
        topic: which topic is read.
        start: by partition, from which offset on; what the broker no longer has is left out. None: all that it has.
    """

    def __init__(self, settings: Settings, topic: str, *, start: Mapping[int, int] | None = None) -> None:
        self._settings, self._topic = settings, topic
        self._begin = start or {}
        self._troubles = Troubles(settings)
        self._consumer: Consumer = self._troubles.client(
            Consumer,
            **{
                "group.id": readers_group(settings),
                "enable.auto.commit": False,
                # The end of a partition is the first record of an open transaction.
                "isolation.level": "read_committed",
            },
        )
        self._loop = asyncio.new_event_loop()
        self._reader: Any = None
        self._held: dict[int, Held] = {}
        self._next: dict[int, int] = {}

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._run(self._reader.stop())
        self._loop.close()
        self._consumer.close()

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic.

        Raises:
            ReadError: the broker has no such topic.
            KafkaDownError, KafkaDeniedError: no broker answered, or it refuses this user.
        """
        return len(self._held or self._look())

    def held(self) -> dict[int, Held]:
        """Return what the broker held of each partition when reading began; complete after the first `read`."""
        return self._held or self._look()

    def _look(self) -> dict[int, Held]:
        answer = self._troubles.asked(
            self._consumer, lambda seconds: self._consumer.list_topics(self._topic, timeout=seconds), _TIMEOUT_SECONDS
        )
        found = answer.topics[self._topic]
        if found.error is not None:
            if found.error.code() in DENIED:
                raise self._troubles.denied(f"describe the topic {self._topic}")
            raise ReadError(f"the broker has no topic {self._topic}; create it with `thaw topics create`")
        try:
            for partition in found.partitions:
                low, _ = self._watermarks(partition)
                self._held[partition] = Held(low, None)
                self._next[partition] = max(low, self._begin.get(partition, 0))
        except KafkaException as error:
            raise self._troubles.explained(error.args[0], f"describe the topic {self._topic}") from error
        return self._held

    def ends(self) -> dict[int, int]:
        """Return by partition the end of what can be read at this moment.

        Raises:
            ReadError, KafkaDownError, KafkaDeniedError: as for `partitions`.
        """
        if not self._held:
            self._look()
        try:
            return {partition: self._watermarks(partition)[1] for partition in self._held}
        except KafkaException as error:
            raise self._troubles.explained(error.args[0], f"describe the topic {self._topic}") from error

    def _watermarks(self, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        return self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_SECONDS)

    def read(self) -> Iterator[list[FetchBatch]]:
        """Return what came since the last call, in batches, up to the end at this moment.

        Raises:
            ReadError: the broker stopped answering.
            KafkaDeniedError: this user has no right to read it.
        """
        for fetched in self._fetches(plain):
            yield [FetchBatch.of(self._topic, partition, start, items) for partition, (start, items) in fetched.items()]

    def records(self) -> Iterator[tuple[int, list[HeadedRecord]]]:
        """Return the same as plain records with their headers, by partition; a reader does one or the other."""
        for fetched in self._fetches(headed):
            for partition, (_, items) in fetched.items():
                yield partition, [item for item in items if type(item) is HeadedRecord]

    def _fetches(self, make: MakeRecord) -> Iterator[dict[int, tuple[int, list[Any]]]]:
        """Return by partition where a fetch began and what it brought."""
        if not self._held:
            self._look()
        try:
            ends = {partition: self._watermarks(partition)[1] for partition in self._held}
            if self._reader is None:
                self._start(make)
            deadline = time.monotonic() + 3 * _TIMEOUT_SECONDS
            while any(self._next[partition] < end for partition, end in ends.items()):
                found = self._run(self._reader.getmany(timeout_ms=_WAIT_MS, max_records=_RECORDS_AT_ONCE))
                if found:
                    deadline = time.monotonic() + 3 * _TIMEOUT_SECONDS
                    yield {tp.partition: self._taken(tp.partition, items) for tp, items in found.items()}
                elif time.monotonic() > deadline:
                    raise ReadError(f"the broker stopped sending {self._topic}; check that it runs")
        except KafkaException as error:
            raise ReadError(f"{self._topic} cannot be read: {error.args[0].str()}") from error
        except TopicAuthorizationFailedError as error:
            raise self._troubles.denied(f"read the topic {self._topic}") from error
        except KafkaError as error:
            raise ReadError(f"{self._topic} cannot be read: {error}") from error

    def _start(self, make: MakeRecord) -> None:
        self._reader = self._run(self._started(make))

    async def _started(self, make: MakeRecord) -> Any:
        reader = aiokafka.AIOKafkaConsumer(
            **aiokafka_options(self._settings),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=_WAIT_MS,
        )
        try:
            await reader.start()
            decode_here(reader, make)
            places = {aiokafka.TopicPartition(self._topic, p): offset for p, offset in self._next.items()}
            reader.assign(list(places))
            for place, offset in places.items():
                reader.seek(place, offset)
        except BaseException:
            await reader.stop()
            raise
        return reader

    def _run(self, action: Awaitable[_Result]) -> _Result:
        return self._loop.run_until_complete(action)

    def _taken(
        self, partition: int, items: list[Record | HeadedRecord | Undecodable | NoRecord]
    ) -> tuple[int, list[Any]]:
        """Note how far a partition was read."""
        start, self._next[partition] = self._next[partition], items[-1].offset + 1
        held = self._held[partition]
        first = items[0]
        begin = first.first_offset if isinstance(first, Undecodable | NoRecord) else first.offset
        if begin > start:
            # Retention deleted what lay between while the topic was read.
            self._held[partition] = held = Held(begin, None)
        for item in items:
            if isinstance(item, Undecodable):
                logger.warning(
                    "%s[%d]@%d-%d: the record batch cannot be decoded (%s); left out, as workers do",
                    self._topic,
                    partition,
                    item.first_offset,
                    item.last_offset,
                    item.fault,
                )
            elif held.first_ms is None and not isinstance(item, NoRecord):
                self._held[partition] = held = Held(held.first_offset, item.timestamp_ms)
        return start, items


def end_offsets(settings: Settings, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of every partition: the offset that the next record will get, also behind an open transaction.

    Raises:
        KafkaException: no broker answered in time.
    """
    options = {"group.id": readers_group(settings), "isolation.level": "read_uncommitted"}
    consumer = Consumer(librdkafka_options(settings) | options)
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_SECONDS)[1]
            for partition in range(partitions)
        }
    finally:
        consumer.close()
