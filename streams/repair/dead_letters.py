"""Inspects dead letters, and replays those that a worker would accept now.

A dead letter is worth a replay when its fault is gone: its survey is known now, its version can be read now, its
window has begun, its rung has opened. The worker's own check decides. Replaying twice is harmless: a report counts
once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from producers.survey.lookup import SurveyLookup
from producers.wire import frames as wire
from producers.wire.layout import MAGIC, SCHEMA_HEADER, VERSION_AT
from producers.wire.shards import partition_of
from producers.wire.transport import Message as Outgoing
from streams.kafka.errors import DENIED, Troubles
from streams.kafka.messages import FetchBatch, HeadedRecord, Record
from streams.kafka.reader import ReadError, TopicReader
from streams.settings import Settings
from streams.store.counters import UNDECODABLE
from streams.worker.dead_letters import CUT_HEADER, DETAIL_HEADER, OFFSET_HEADER, REASON_HEADER
from streams.worker.fold import Checked, check

_SEND_SECONDS = 30.0
_PLACE = re.compile(
    r"(?P<topic>[A-Za-z0-9._-]{1,249})\[(?P<partition>[0-9]{1,9})\]@(?P<offset>[0-9]{1,18})(?:-[0-9]{1,18})?", re.ASCII
)


@dataclass(frozen=True)
class StoredDeadLetter:
    """One dead letter in its topic. `number` is its offset there and identifies it."""

    number: int
    received_ms: int
    reason: str
    place: str
    """Where it came from: topic[partition]@offset, or @first-last for a record batch; empty if unknown."""
    frame: bytes
    detail: str = ""
    """What the reason alone does not tell."""
    cut_from: int | None = None
    """The original size in bytes if it was cut."""

    @classmethod
    def of(cls, record: HeadedRecord) -> StoredDeadLetter:
        """Read a dead letter; other records of the topic get an empty reason and place."""
        headers = dict(record.headers)
        cut = _text(headers.get(CUT_HEADER))
        return cls(
            number=record.offset,
            received_ms=record.timestamp_ms,
            reason=_text(headers.get(REASON_HEADER)),
            place=_text(headers.get(OFFSET_HEADER)),
            frame=record.value or b"",
            detail=_text(headers.get(DETAIL_HEADER)),
            cut_from=int(cut) if cut.isascii() and cut.isdigit() else None,
        )

    @property
    def is_batch(self) -> bool:
        """Whether it is a record batch that cannot be decoded, and so has no frames."""
        return self.reason == UNDECODABLE

    @property
    def partition(self) -> int | None:
        """The partition it came from."""
        found = _PLACE.fullmatch(self.place)
        return int(found["partition"]) if found else None


def _text(raw: bytes | None) -> str:
    """Return a header as printable text: its writer is not known."""
    return "".join(sign if sign.isprintable() else "?" for sign in (raw or b"")[:300].decode("utf-8", "replace"))


def read_dead_letters(settings: Settings) -> Iterator[StoredDeadLetter]:
    """Return all dead letters that the broker still holds, oldest first.

    Raises:
        ReadError: the topic cannot be read.
    """
    with TopicReader(settings, settings.dead_letters_topic) as reader:
        for _, records in reader.records():
            yield from map(StoredDeadLetter.of, records)


@dataclass(frozen=True)
class FrameView:
    """The header of a frame, or its fault. None of it has been verified."""

    fault: str
    version: int | None = None
    digest: str = ""
    window_ms: int | None = None
    shard: int | None = None
    reports: int | None = None


def look(frame: bytes) -> list[FrameView]:
    """Read the headers of a dead letter's frames without verifying them."""
    views = []
    for item in wire.headers(frame):
        if isinstance(item, wire.FrameError):
            version = frame[VERSION_AT] if len(frame) > VERSION_AT and frame.startswith(MAGIC) else None
            views.append(FrameView(str(item), version))
        else:
            views.append(FrameView("", item.version, item.digest.hex(), item.window_ms, item.shard, item.count))
    return views


def judge(
    dead_letter: StoredDeadLetter, surveys: SurveyLookup, partitions: int, now_ms: int, *, broker_ms: int | None = None
) -> tuple[list[Outgoing], list[str]]:
    """Return the messages that a worker would accept now, and the reasons of the frames that stay dead.

    Every frame goes to the partition that its shard belongs to, wherever it was found. The broker would
    stamp it now, so a report whose survey accepts no more answers stays dead as `expired`.

    Args:
        dead_letter: the dead letter.
        surveys: the surveys that are known now.
        partitions: number of partitions of the topic of reports.
        now_ms: the time here.
        broker_ms: the newest timestamp of the broker; None if it is not known. A frame that is refused by the time here
            and not by this one is sent: a wrong clock here must not keep it dead, and the worker decides.
    """
    alive: list[Outgoing] = []
    dead: list[str] = []
    if dead_letter.is_batch or dead_letter.cut_from is not None:
        return alive, [dead_letter.reason]
    for item in wire.headers(dead_letter.frame):
        if isinstance(item, wire.FrameError):
            dead.append(item.reason)
            continue
        frame = dead_letter.frame[item.start : item.start + item.length]
        partition = partition_of(item.shard, partitions)
        outgoing = Outgoing(partition, frame)
        moments = [now_ms] if broker_ms is None else [now_ms, broker_ms]
        verdicts = [_verdict(outgoing, surveys, partitions, now_ms, stamped_ms) for stamped_ms in moments]
        if any(checked.reports for checked in verdicts):
            alive.append(outgoing)
        else:
            dead += [refused.reason for refused in verdicts[0].dead_letters] or ["expired"]
    return alive, dead


def _verdict(frame: Outgoing, surveys: SurveyLookup, partitions: int, now_ms: int, stamped_ms: int) -> Checked:
    """Return how a worker judges a frame that the broker stamps with this time."""
    batch = FetchBatch("", frame.partition, 0, 1, [Record(0, stamped_ms, frame.value)])
    return check([batch], surveys, partitions, now_ms, broker_ms=stamped_ms)


@dataclass(frozen=True)
class Replayed:
    """What a replay did, in frames: sent, skipped as copies of others, still dead by reason."""

    sent: int
    copies: int
    still_dead: Mapping[str, int]


def replay(
    dead_letters: Iterable[StoredDeadLetter],
    surveys: SurveyLookup,
    send: Callable[[Sequence[Outgoing]], None],
    *,
    partitions: int,
    now_ms: int,
    broker_ms: int | None = None,
) -> Replayed:
    """Send what would be accepted now; a dead letter that was published twice (a worker crashed) is sent once."""
    sent, copies, still_dead = 0, 0, Counter[str]()
    known: set[bytes] = set()
    for dead_letter in dead_letters:
        alive, dead = judge(dead_letter, surveys, partitions, now_ms, broker_ms=broker_ms)
        still_dead.update(dead)
        fresh = [message for message in alive if message.value not in known]
        known.update(message.value for message in fresh)
        send(fresh)
        sent, copies = sent + len(fresh), copies + len(alive) - len(fresh)
    return Replayed(sent, copies, dict(still_dead))


class ReportsProducer:
    """Sends frames to the topic of reports as devices do: a partition, no key, no header but the schema."""

    def __init__(self, settings: Settings) -> None:
        self._topic = settings.reports_topic
        self._troubles = Troubles(settings)
        self._producer: Producer = self._troubles.client(
            Producer,
            **{"acks": "all", "message.max.bytes": 8 << 20, "message.timeout.ms": int(_SEND_SECONDS * 1_000)},
        )
        self._errors: list[KafkaError] = []

    def __call__(self, messages: Sequence[Outgoing]) -> None:
        """Hand messages over; `finish` raises unless they arrived."""
        for message in messages:
            while True:
                try:
                    self._producer.produce(
                        self._topic,
                        value=message.value,
                        partition=message.partition,
                        headers=[SCHEMA_HEADER],
                        on_delivery=self._delivered,
                    )
                    break
                except BufferError:
                    self._producer.poll(0.1)
                except KafkaException as error:
                    raise ReadError(f"{self._topic} refused a message: {error.args[0].str()}") from error

    def finish(self) -> None:
        """Wait for the broker.

        Raises:
            ReadError: it does not have everything; sending all of it again is harmless.
        """
        left = self._producer.flush(_SEND_SECONDS)
        if self._errors and self._errors[0].code() in DENIED:
            raise self._troubles.denied(f"write the topic {self._topic}")
        if left or self._errors:
            why = self._errors[0].str() if self._errors else "no acknowledgement in time"
            failed = left + len(self._errors)
            raise ReadError(f"{failed} frames did not reach {self._topic} ({why}); replay again, copies are harmless")

    def _delivered(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._errors.append(error)
