"""What waits behind a transaction that nobody ended: readers of committed records see none of it.

The producers of chaos leave transactions open when the broker is away at the wrong moment; the broker ends those. One
that it does not end would stop all reading, for workers and for the oracle alike, and everything would look at rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from streams.connections import librdkafka_options
from streams.settings import Settings

logger = logging.getLogger(__name__)

HANGS_SECONDS: Final = 90.0
"""A transaction that is still open after this long hangs. Those of chaos time out after ten seconds, the broker looks
for such ones every ten, and may itself be about to start."""
_ANSWER_SECONDS: Final = 30.0


class Place(NamedTuple):
    """How far a partition can be read, and where it ends; behind the first lies what waits for a transaction."""

    stable: int
    end: int


class Hanging:
    """Tells an open transaction from one that the broker does not end.

    Args:
        clock: seconds that only grow.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[int, tuple[int, float]] = {}
        self.partitions: dict[int, int] = {}
        """By partition: the offset of the first record of a transaction that hangs."""

    def look(self, places: dict[int, Place]) -> None:
        """Take note of where the partitions stand."""
        now = self._clock()
        for partition, place in places.items():
            stable, since = self._since.get(partition, (-1, now))
            if place.stable >= place.end or place.stable != stable:
                self._since[partition] = (place.stable, now)
                if self.partitions.pop(partition, None) is not None:
                    logger.warning("partition %d: the transaction at %d ended after all", partition, stable)
            elif now - since > HANGS_SECONDS and partition not in self.partitions:
                logger.error("partition %d: the broker has not ended the transaction at %d", partition, stable)
                self.partitions[partition] = stable


def places(settings: Settings) -> dict[int, Place]:
    """Return where every partition of the reports topic stands.

    Raises:
        KafkaException: no broker answered in time.
    """
    found = []
    # The end first: a transaction that ends in between is none that waits.
    for level in ("read_uncommitted", "read_committed"):
        options = {"group.id": "chaos-places", "isolation.level": level}
        consumer = Consumer(librdkafka_options(settings) | options)
        try:
            found.append(
                {
                    partition: consumer.get_watermark_offsets(
                        TopicPartition(settings.reports_topic, partition), timeout=_ANSWER_SECONDS
                    )[1]
                    for partition in range(settings.partitions)
                }
            )
        finally:
            consumer.close()
    ends, stable = found
    return {partition: Place(min(stable[partition], end), end) for partition, end in ends.items()}


def read(settings: Settings, partition: int, begin: int, end: int, *, committed: bool) -> Iterator[bytes]:
    """Yield the messages of a part of a partition, all of them or the committed ones.

    Raises:
        RuntimeError: they cannot be read.
    """
    options = {"group.id": "chaos-oracle", "enable.auto.commit": False, "enable.partition.eof": True}
    level = "read_committed" if committed else "read_uncommitted"
    consumer = Consumer(librdkafka_options(settings) | options | {"isolation.level": level})
    topic = settings.reports_topic
    try:
        consumer.assign([TopicPartition(topic, partition, begin)])
        position = begin
        while position < end:
            message = consumer.poll(_ANSWER_SECONDS)
            error = None if message is None else message.error()
            if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                raise RuntimeError(f"{topic}[{partition}]@{position}: cannot be read back: {error or message}")
            position = message.offset() or 0
            if error is None:
                # The end comes with the next offset, behind what was aborted and the marks of transactions.
                position += 1
                yield message.value() or b""
    finally:
        consumer.close()


def read_all(settings: Settings) -> tuple[list[bytes], list[bytes]]:
    """Return every committed message that the broker has, and those that lie behind a transaction nobody ended."""
    committed: list[bytes] = []
    behind: list[bytes] = []
    for partition, place in places(settings).items():
        committed += read(settings, partition, 0, place.stable, committed=True)
        behind += read(settings, partition, place.stable, place.end, committed=False)
    return committed, behind
