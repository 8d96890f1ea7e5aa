"""A topic, a store and a worker in memory, to count again from the topic."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from estimators.tally import Tally
from producers.clock import Clock
from producers.survey.survey import Survey
from streams.kafka.messages import FetchBatch
from streams.kafka.reader import Held
from streams.repair.rebuild import Rebuilder, WindowCount
from streams.store.contract import Store
from streams.store.shape import Shape
from streams.worker.applier import Applier
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    Report,
    SurveyDict,
    batch_of,
    messages_of,
    random_reports,
)

PARTITIONS = 2


class Topic:
    """A topic in memory that is read from where the last look ended; `deleted` records at its start are gone."""

    def __init__(self) -> None:
        self.log: list[list[tuple[bytes, int]]] = [[] for _ in range(PARTITIONS)]
        self.deleted = 0
        self._at = [0] * PARTITIONS
        self.before_read: Callable[[], None] = lambda: None

    def rewind(self) -> None:
        self._at = [0] * PARTITIONS

    def send(self, survey: Survey, reports: list[Report], *, window_ms: int = WINDOW, at_ms: int = NOW_MS) -> None:
        for partition, message in messages_of(survey, reports, partitions=PARTITIONS, window_ms=window_ms).items():
            self.log[partition].append((message, at_ms))

    def batches(self, starts: list[int]) -> list[FetchBatch]:
        batches = []
        for partition, records in enumerate(self.log):
            for offset in range(starts[partition], len(records)):
                value, at_ms = records[offset]
                batches.append(batch_of(value, partition=partition, start=offset, timestamp_ms=at_ms))
        return batches

    def read(self) -> Iterator[list[FetchBatch]]:
        self.before_read()
        found = self.batches([max(at, self.deleted) for at in self._at])
        self._at = [len(records) for records in self.log]
        yield found

    def held(self) -> dict[int, Held]:
        return {
            partition: Held(
                min(self.deleted, len(records)), records[self.deleted][1] if len(records) > self.deleted else None
            )
            for partition, records in enumerate(self.log)
        }


def applier_on(store: Store, survey: Survey, clock: ManualClock) -> Applier:
    """Return what counts the reports of both partitions, for a survey and those of `SURVEYS`."""
    applier = Applier(store, SurveyDict(*SURVEYS, survey), lambda _: None, partitions=PARTITIONS, clock=clock)
    applier.assigned(TOPIC, dict.fromkeys(range(PARTITIONS), 0))
    return applier


class Bench:
    """A topic, a store and a worker."""

    def __init__(self, survey: Survey = CATEGORICAL) -> None:
        self.survey, self.topic, self.clock = survey, Topic(), ManualClock(NOW_MS)
        self.store = MemoryStore(self.clock)
        self._worked = [0] * PARTITIONS
        self.applier = applier_on(self.store, survey, self.clock)

    def work(self) -> None:
        self.applier.process(self.topic.batches(self._worked))
        self._worked = [len(records) for records in self.topic.log]

    def rebuild(
        self,
        *,
        replace: bool = False,
        window_ms: int | None = None,
        since_ms: int | None = None,
        clock: Clock | None = None,
    ) -> list[WindowCount]:
        self.topic.rewind()
        self.rebuilder = Rebuilder(
            self.store,
            self.topic,
            self.survey,
            partitions=PARTITIONS,
            window_ms=window_ms,
            since_ms=since_ms,
            clock=clock or self.clock,
        )
        return self.rebuilder.run(replace=replace)

    def tally(self, window_ms: int = WINDOW) -> Tally:
        return self.store.estimates.tally(self.survey.id, window_ms, self.survey.shards, Shape.of(self.survey))


def some(survey: Survey, count: int = 40, seed: int = 1) -> list[Report]:
    return random_reports(survey, users=12, count=count, rng=random.Random(seed))
