"""What is read from Kafka and what is sent to it, as plain data. Imports no Kafka client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Record(NamedTuple):
    """One Kafka record: its offset, the broker's timestamp (LogAppendTime), its bytes."""

    offset: int
    timestamp_ms: int
    value: bytes | None


@dataclass(frozen=True)
class FetchBatch:
    """All records that one fetch brought from one partition, in order of their offsets.

    `start` is where the previous fetch batch of the partition ended (or reading began), so fetch batches of a partition
    leave no gap between them; `next_offset` is one past the last record.
    """

    topic: str
    partition: int
    start: int
    next_offset: int
    records: Sequence[Record]


@dataclass(frozen=True)
class Outgoing:
    """One message for a topic."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class PublishError(RuntimeError):
    """The brokers did not acknowledge all messages; sending all of them again is harmless."""
