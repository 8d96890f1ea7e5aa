"""Reads a topic from its start to its end, outside the consumer group of the workers: nothing is committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, cast

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from streams.connections import librdkafka_options
from streams.kafka.messages import FetchBatch, Record
from streams.settings import Settings

_TIMEOUT_SECONDS = 5.0
_WAIT_SECONDS = 0.1
_MESSAGES_AT_ONCE = 1_000


class ReadError(RuntimeError):
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


class TopicReader:
    """A `Bus` on Kafka. Use as a context manager."""

    def __init__(self, settings: Settings, topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            librdkafka_options(settings)
            | {
                # Required by the client, and never used: nothing is committed and no group is joined.
                "group.id": f"{settings.prefix}thaw-readers",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                # Requests for offsets wait behind a fetch on the same connection, one for each partition.
                "fetch.wait.max.ms": 20,
            }
        )
        self._assigned = False
        self._held: dict[int, Held] = {}
        self._next: dict[int, int] = {}

    def __enter__(self) -> TopicReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic.

        Raises:
            ReadError: no broker answered, or it has no such topic.
        """
        return len(self._held or self._look())

    def held(self) -> dict[int, Held]:
        """Return what the broker held of each partition when reading began; complete after the first `read`."""
        return self._held or self._look()

    def _look(self) -> dict[int, Held]:
        try:
            found = self._consumer.list_topics(self._topic, timeout=_TIMEOUT_SECONDS).topics[self._topic]
            if found.error is not None:
                raise ReadError(f"the broker has no topic {self._topic}; create it with `thaw topics create`")
            for partition in found.partitions:
                low, _ = self._watermarks(partition)
                self._held[partition] = Held(low, None)
                self._next[partition] = low
        except KafkaException as error:
            raise ReadError(f"no broker answered ({error.args[0].str()}); check THAW_KAFKA") from error
        return self._held

    def _watermarks(self, partition: int) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        return self._consumer.get_watermark_offsets(place, timeout=_TIMEOUT_SECONDS)

    def read(self) -> Iterator[list[FetchBatch]]:
        """Return what came since the last call, in batches, up to the end at this moment.

        Raises:
            ReadError: the broker stopped answering.
        """
        for messages in self.messages():
            batches: dict[int, list[Record]] = {}
            for message in messages:
                _, timestamp_ms = message.timestamp()
                record = Record(cast(int, message.offset()), timestamp_ms, cast(Any, message.value()))
                batches.setdefault(cast(int, message.partition()), []).append(record)
            yield [
                FetchBatch(self._topic, partition, records[0].offset, records[-1].offset + 1, records)
                for partition, records in batches.items()
            ]

    def messages(self) -> Iterator[list[Message]]:
        """Return the same as plain messages, headers and all."""
        if not self._held:
            self._look()
        try:
            ends = {partition: self._watermarks(partition)[1] for partition in self._held}
            if not self._assigned:
                self._consumer.assign([TopicPartition(self._topic, p, OFFSET_BEGINNING) for p in self._held])
                self._assigned = True
            open_partitions = {partition for partition, end in ends.items() if self._next[partition] < end}
            silent = 0
            while open_partitions:
                found = self._consumer.consume(_MESSAGES_AT_ONCE, timeout=_WAIT_SECONDS)
                silent = 0 if found else silent + 1
                if silent * _WAIT_SECONDS > 3 * _TIMEOUT_SECONDS:
                    raise ReadError(f"the broker stopped sending {self._topic}; check that it runs")
                good = [message for message in found if not self._is_end(message, ends, open_partitions)]
                if good:
                    yield good
        except KafkaException as error:
            raise ReadError(f"{self._topic} cannot be read: {error.args[0].str()}") from error

    def _is_end(self, message: Message, ends: dict[int, int], open_partitions: set[int]) -> bool:
        """Note how far a partition was read; tell whether this is the end of a partition instead of a record."""
        partition, error = cast(int, message.partition()), message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ReadError(f"{self._topic} cannot be read: {error.str()}")
        offset = cast(int, message.offset())
        # The end of a partition comes with the next offset, which may lie beyond deleted records.
        self._next[partition] = max(self._next[partition], offset if error is not None else offset + 1)
        if self._next[partition] >= ends[partition]:
            open_partitions.discard(partition)
        if error is not None:
            return True
        held = self._held[partition]
        if held.first_ms is None:
            self._held[partition] = Held(held.first_offset, message.timestamp()[1])
        return False


def end_offsets(settings: Settings, topic: str, partitions: int) -> dict[int, int]:
    """Return the end of every partition: the offset that the next record will get.

    Raises:
        KafkaException: no broker answered in time.
    """
    consumer = Consumer(librdkafka_options(settings) | {"group.id": f"{settings.prefix}thaw-readers"})
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_TIMEOUT_SECONDS)[1]
            for partition in range(partitions)
        }
    finally:
        consumer.close()
