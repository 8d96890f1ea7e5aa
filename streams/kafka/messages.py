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


class HeadedRecord(NamedTuple):
    """The same with its headers, for topics whose headers mean something."""

    offset: int
    timestamp_ms: int
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Undecodable(NamedTuple):
    """A record batch that cannot be decoded: all its offsets, why, and its bytes as the broker sent them."""

    first_offset: int
    last_offset: int
    fault: str
    raw: bytes

    @property
    def offset(self) -> int:
        """The last of its offsets."""
        return self.last_offset


class NoRecord(NamedTuple):
    """Offsets that hold no record for a reader: markers of transactions, and what was aborted."""

    first_offset: int
    offset: int
    """The last of them."""


@dataclass(frozen=True)
class FetchBatch:
    """All records that one fetch brought from one partition, in order of their offsets.

    `start` is where the previous fetch batch of the partition ended (or reading began), so fetch batches of a partition
    leave no gap between them; `next_offset` is one past the last offset that was read, which may hold no record.
    """

    topic: str
    partition: int
    start: int
    next_offset: int
    records: Sequence[Record]
    undecodable: Sequence[Undecodable] = ()
    """Record batches among them that cannot be decoded."""
    missing: int = 0
    """How many offsets from `start` on the broker no longer has."""

    @classmethod
    def of(
        cls,
        topic: str,
        partition: int,
        start: int,
        items: Sequence[Record | Undecodable | NoRecord],
        *,
        missing: int = 0,
    ) -> FetchBatch:
        """Sort what a fetch brought."""
        records = [item for item in items if type(item) is Record]
        undecodable = [item for item in items if type(item) is Undecodable]
        return cls(topic, partition, start, items[-1].offset + 1, records, undecodable, missing)


class Lag(NamedTuple):
    """Records of a partition that were not handed over yet, and those that wait for the end of a transaction."""

    records: int
    uncommitted: int


@dataclass(frozen=True)
class Outgoing:
    """One message for a topic."""

    topic: str
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class PublishError(RuntimeError):
    """The brokers did not acknowledge all messages; sending all of them again is harmless."""


class MessageTooLargeError(PublishError):
    """A message is larger than its topic, or the client, allows."""
