"""An applier on a store in memory, with everything around it in reach of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from streams.kafka.messages import FetchBatch
from streams.store.shape import Shape
from streams.worker.applier import Applied, Applier
from streams.worker.fold import DeadLetter
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    Report,
    SurveyDict,
    batch_of,
    messages_of,
    token_in,
)

PARTITIONS = 2
SHAPE = Shape.of(CATEGORICAL)


class Bench:
    """A worker on a store in memory, with everything around it in reach."""

    def __init__(self, store: MemoryStore | None = None, **options: Any) -> None:
        self.clock = options.pop("clock", None) or ManualClock(NOW_MS)
        self.store = store or MemoryStore(self.clock)
        self.letters: list[DeadLetter] = []
        self.trace: list[str] = []
        self.faults: Callable[[str, str], bool] = lambda method, when: False  # noqa: ARG005  # none
        self.stopping = False
        self.surveys = SurveyDict(*options.pop("surveys", SURVEYS))
        self.applier = Applier(
            FaultyStore(self.store, self._look),
            self.surveys,
            self._send,
            partitions=PARTITIONS,
            clock=self.clock,
            sleep=self.clock.sleep,
            stopping=lambda: self.stopping,
            **options,
        )
        self.starts = self.applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))

    def _look(self, method: str, when: str) -> bool:
        if when == "before":
            self.trace.append(method)
        return self.faults(method, when)

    def _send(self, letters: Sequence[DeadLetter]) -> None:
        self.trace.append("send dead letters")
        self.letters += letters

    def process(self, *batches: FetchBatch) -> Applied:
        return self.applier.process(batches)

    def offsets(self, partition: int) -> set[int]:
        return set(self.store.log.offsets(TOPIC, partition, range(partition, 64, PARTITIONS)).values())


def batches_of(survey: Any, reports: Sequence[Report], start: int = 0) -> list[FetchBatch]:
    messages = messages_of(survey, reports, partitions=PARTITIONS)
    return [batch_of(message, partition=partition, start=start) for partition, message in sorted(messages.items())]


def report(rung: int = 0, answer: bytes = b"\1", shard: int = 0, user: int = 1) -> Report:
    return Report(token_in(shard, user, CATEGORICAL), rung, answer)


def faults(*planned: tuple[str, str]) -> Callable[[str, str], bool]:
    """Return a plan of faults, each happening once, in order."""
    left = list(planned)

    def happens(method: str, when: str) -> bool:
        if left and left[0] == (method, when):
            left.pop(0)
            return True
        return False

    return happens
