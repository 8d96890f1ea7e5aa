"""Reads report logs at rest, a few at a time: damage in a window that nobody works on any more is found too."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.store.contract import Store, StoreCorruptError, StoreUnavailableError
from streams.store.ladders import LongerLadderError
from streams.store.shape import Key, Shape
from streams.windows.settled import is_current
from streams.windows.unreadable import UnreadableLogs
from streams.worker.table import Table
from streams.worker_metrics import WorkerMetrics

STEP_SECONDS: Final = 0.05
"""How long one step reads, at least one group of logs. Longer: the rebuild of a window waits for it."""

SHARE: Final = 0.03
"""Share of the time that goes into reading. More: load on Redis for damage that is rare. Less: a round takes longer."""

LOGS_AT_ONCE: Final = 8
"""Read in one call. More: memory, if logs are long; fewer: round trips."""

Round = Literal["current", "old"]


class _Group(NamedTuple):
    survey: Survey
    window_ms: int
    first_shard: int

    @property
    def keys(self) -> list[Key]:
        shards = range(self.first_shard, min(self.first_shard + LOGS_AT_ONCE, self.survey.shards))
        return [Key(self.survey.id, self.window_ms, shard) for shard in shards]


class Scrub:
    """Reads every log of every window with an estimate once in a round, in an order of its own, so that workers differ.

    Current windows and old ones have rounds of their own, and every other step each: damage in a window that is looked
    at is found soon, however many old ones there are. A log that cannot be read, or contradicts its head or tally, is
    set aside and its window queued to be rebuilt.
    """

    def __init__(
        self,
        store: Store,
        surveys: SurveyList,
        metrics: WorkerMetrics,
        *,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._surveys, self._metrics, self._timer = store, surveys, metrics, timer
        self._unreadable = UnreadableLogs(store, metrics)
        self._left: dict[Round, list[_Group]] = {"current": [], "old": []}
        self._turn: Round = "old"
        self._not_before = timer()

    def step(self, now_ms: int) -> int:
        """Read some logs if it is time to; return how many.

        Raises:
            StoreUnavailableError: what was to be read comes last in the round.
        """
        started, logs = self._timer(), 0
        if started < self._not_before:
            return 0
        self._turn = "old" if self._turn == "current" else "current"
        left = self._left[self._turn] = self._left[self._turn] or self._round(self._turn, now_ms)
        while left:
            group = left.pop()
            try:
                self._read(group)
            except StoreUnavailableError:
                left.insert(0, group)
                raise
            logs += len(group.keys)
            if self._timer() - started >= STEP_SECONDS:
                break
        self._metrics.scrubbed.inc(logs)
        ended = self._timer()
        self._not_before = ended + (ended - started) / SHARE
        return logs

    def _round(self, which: Round, now_ms: int) -> list[_Group]:
        groups = [
            _Group(survey, window_ms, shard)
            for survey in self._surveys.surveys(now_ms)
            for window_ms in self._store.estimates.window_starts(survey.id)
            if is_current(survey, window_ms, now_ms) == (which == "current")
            for shard in range(0, survey.shards, LOGS_AT_ONCE)
        ]
        random.shuffle(groups)
        return groups

    def _read(self, group: _Group) -> None:
        try:
            loaded = self._store.log.load(group.keys, Shape.of(group.survey), Table.of_log)
            repaired = any(log.repaired for log in loaded.values())
        except StoreCorruptError as error:
            self._unreadable.set_aside(error)
            repaired = True  # others of the group may have been
        except LongerLadderError:
            repaired = False  # those who know the survey read it
        if repaired:
            self._store.queue.put([(group.survey.id, group.window_ms)])
