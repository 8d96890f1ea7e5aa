"""What is made up in the simulation: the broker's log, the network of the devices, and crashes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from producers.survey.survey import Survey
from producers.survey.tiers import Tier
from producers.wire.transport import Message, TransportError
from streams.kafka.messages import FetchBatch, Outgoing, PublishError, Record
from streams.kafka.reader import Held
from streams.settings import Settings
from streams.worker.record_walk import runs_of
from tests.support.clock import ManualClock
from tests.support.reports import Report
from tests.support.surveys import survey

PARTITIONS = 2
WORKERS = 2
DEVICES = 3
SETTINGS = Settings(partitions=PARTITIONS)
TOPIC = SETTINGS.reports_topic
VALUES = 24

SURVEY: Survey = survey(
    # Close to the plain truth and far more values than devices: what is counted twice or not at all shows as such.
    values=f"values = {[f'v{value}' for value in range(VALUES)]}",
    ladder="ladder = [6.0, 12.0, 20.0]",
    retention='retention = "2m"',
    shards="shards = 4",
    lifetime="lifetime = 1e6",
)


def continuing_pair() -> tuple[Survey, Survey]:
    """Return a survey, and one that continues it."""
    values, ladder = f"values = {[f'v{value}' for value in range(VALUES)]}", [6.0, 12.0, 20.0]
    common = {"values": values, "retention": 'retention = "2m"', "lifetime": "lifetime = 1e6"}
    shorter = survey(**common, ladder=f"ladder = {ladder[:2]}", opens='opens = ["0s", "10s"]', shards="shards = 4")
    named = f'continues = "{shorter.id}"\nshards = 4'
    return shorter, survey(**common, ladder=f"ladder = {ladder}", shards=named)


WITHDRAWABLE: Survey = replace(SURVEY, withdrawable=True)
STANDING: Survey = replace(SURVEY, standing=True)
TIERED: Survey = replace(WITHDRAWABLE, tiers=(Tier("public", 0), Tier("partners", 1), Tier("owner", 2)))
"""What may be known of answers that are taken back, too: a withdrawal concerns every tier."""
SHORTER, CONTINUING = continuing_pair()
"""A survey with the first two of the levels, and one that adds the third while windows are answered."""
WINDOW_MS = SURVEY.windows.size_ms


class Crash(BaseException):
    """The process dies here."""


class Stored(NamedTuple):
    """One record of the broker. `genuine` is what honest senders put into it, for the oracle."""

    offset: int
    timestamp_ms: int
    value: bytes
    genuine: tuple[tuple[int, Report], ...]


class Bus:
    """The broker: partitions, the group's commits and its generation, dead letters, estimates."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.log: list[list[Stored]] = [[] for _ in range(PARTITIONS)]
        self.committed: dict[int, int] = {}
        self.generation = 0
        self.away_until_ms = 0
        self.published: list[Outgoing] = []
        self.limbo: list[Message] = []

    @property
    def away(self) -> bool:
        return self._clock() < self.away_until_ms

    def append(
        self, partition: int, value: bytes, genuine: Iterable[tuple[int, Report]] | None = None
    ) -> tuple[int, int]:
        """Store a message; without `genuine` it is one of a device, which holds one report in one frame."""
        found = (reports_of_device(value),) if genuine is None else tuple(genuine)
        records = self.log[partition]
        records.append(Stored(len(records), self._clock(), value, found))
        return partition, len(records) - 1

    def send(self, messages: Sequence[Outgoing], **_: Any) -> None:
        """Take what workers publish, like `Publisher.send`."""
        if messages and self.away:
            raise PublishError("the broker is away")
        self.published += messages


def fetched(partition: int, start: int, records: Sequence[Stored]) -> FetchBatch:
    """Return what a fetch from `start` on brings: at every other offset in columns, as compiled code walks a batch."""
    if start % 2:
        return FetchBatch.of(TOPIC, partition, start, [Record(*stored[:3]) for stored in records])
    batch = DefaultRecordBatchBuilder(2, 0, False, -1, 0, 0, 1 << 30)
    for number, stored in enumerate(records):
        batch.append(number, stored.timestamp_ms, None, stored.value, [])
    raw = batch.build()
    raw[:8] = records[0].offset.to_bytes(8, "big")  # as a broker does
    runs = runs_of(bytes(raw))
    assert runs is not None
    return FetchBatch.of(TOPIC, partition, start, runs)


class Reading:
    """The topic of reports as somebody reads it who has no other right, from its start to its end."""

    def __init__(self, bus: Bus) -> None:
        self._log = bus.log

    def read(self) -> Iterator[list[FetchBatch]]:
        yield [
            FetchBatch(TOPIC, partition, 0, len(records), [Record(*stored[:3]) for stored in records])
            for partition, records in enumerate(self._log)
        ]

    def held(self) -> dict[int, Held]:
        return dict.fromkeys(range(PARTITIONS), Held(0, None))


def reports_of_device(frame: bytes) -> tuple[int, Report]:
    """Read the one report of a device's frame by its place, without the project's own decoder."""
    window_ms = int.from_bytes(frame[16:24], "little", signed=True)
    return window_ms, Report(token=frame[40:56], answer=frame[56:57], rung=frame[64])


class Wire:
    """A device's transport. `crash` is where the device dies during the next send; `held`: the network is slow."""

    partitions = PARTITIONS

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.crash = ""
        self.held = False

    def send(self, messages: Sequence[Message]) -> None:
        crash, self.crash = self.crash, ""
        if crash == "before send":
            raise Crash
        if self._bus.away:
            raise TransportError("the broker is away")
        if self.held:
            self._bus.limbo += messages
            raise TransportError("no answer in time; the messages are on their way all the same")
        for message in messages:
            self._bus.append(*message)
        if crash == "after send":
            raise Crash
