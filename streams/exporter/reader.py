"""What the exporter reads from the store: surveys, stored estimates, counters. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.exporter.api import CanaryScore
from streams.exporter.health import CANARY_WINDOWS, canary_score, superseded
from streams.store.contract import QueuedWindow, Store
from streams.store.counters import UNKNOWN_SURVEY, Counters
from streams.windows.budget_spent import budget_spent, first_window_ms
from streams.windows.history import HistoryPoint, decode_point
from streams.windows.record import EstimateRecord, RecordError, decode_estimate
from streams.windows.settled import is_settled, settles_ms

logger = logging.getLogger(__name__)

CLOSED_WINDOWS = 5
"""Closed windows that have series; older ones are in the API. More windows cost more series per survey."""


def windows_by_age(survey: Survey, now_ms: int) -> dict[str, int]:
    """Return the starts of the windows that have series: `open` is the one that closes next, `1` closed last."""
    windows = survey.windows
    first_open = windows.starts(now_ms)[0]
    return {"open": first_open} | {str(age): first_open - age * windows.step_ms for age in range(1, CLOSED_WINDOWS + 1)}


@dataclass(frozen=True)
class SurveyState:
    """What the store holds of one survey at one moment."""

    survey: Survey
    records: Mapping[str, EstimateRecord]
    """By age."""
    counters: Counters
    shard_reports: Sequence[int]
    last_estimate_ms: int | None
    budget_spent: float | None
    canary: CanaryScore | None
    superseded: bool
    """Another survey of the same name has taken its place: its limits and thresholds are not in force."""
    ended: bool
    """The survey's end is over: nothing is stale."""


class Reader:
    """Reads surveys, estimates and counters. The HTTP server calls it from a thread."""

    def __init__(self, store: Store, surveys: SurveyList, *, clock: Clock = system_clock) -> None:
        self._store, self._surveys, self._clock = store, surveys, clock

    def surveys(self) -> Sequence[Survey]:
        """Return all surveys in the folder."""
        return self._surveys.surveys(self._clock())

    def states(self) -> list[SurveyState]:
        """Return the state of every survey."""
        now_ms, surveys = self._clock(), self.surveys()
        last = {survey.id: self.last_estimate_ms(survey.id) for survey in surveys}
        replaced = superseded(surveys, last, now_ms)
        return [self._state(survey, last[survey.id], survey.id in replaced, now_ms) for survey in surveys]

    def _state(self, survey: Survey, last_ms: int | None, replaced: bool, now_ms: int) -> SurveyState:
        records = self.records_by_age(survey)
        return SurveyState(
            survey,
            records,
            self._store.log.counters(survey.id),
            self._store.log.shard_reports(survey.id),
            last_ms,
            budget_spent(survey, first_window_ms(self._store.states, survey.id), records, now_ms),
            self.canary(survey),
            replaced,
            survey.has_ended(now_ms),
        )

    def superseded(self) -> frozenset[str]:
        """Return the ids of surveys that another survey of the same name has replaced."""
        surveys = self.surveys()
        return superseded(surveys, {survey.id: self.last_estimate_ms(survey.id) for survey in surveys}, self._clock())

    def records_by_age(self, survey: Survey) -> dict[str, EstimateRecord]:
        """Return the stored estimates of the windows that have series, by age."""
        starts = windows_by_age(survey, self._clock())
        read = {age: self.record(survey.id, start_ms) for age, start_ms in starts.items()}
        return {age: record for age, record in read.items() if record is not None}

    def last_estimate_ms(self, survey_id: str) -> int | None:
        """Return when the newest of a survey's stored estimates was computed; None if it has none.

        This is the one definition of "last estimate": the newest computation among the six newest stored windows,
        which are as many as have series. Older windows change only by late reports.
        """
        return max((record.computed_ms for record in self.windows(survey_id, CLOSED_WINDOWS + 1)), default=None)

    def counted_ms(self) -> int | None:
        """Return when the newest stored estimate of any survey was computed: reports sent before are counted."""
        last = (self.last_estimate_ms(survey.id) for survey in self.surveys())
        return max((last_ms for last_ms in last if last_ms is not None), default=None)

    def canary(self, survey: Survey) -> CanaryScore | None:
        """Score the newest settled windows of a canary; None for other surveys, or before a window has settled."""
        if survey.canary is None:
            return None
        now_ms, counted_ms = self._clock(), self.counted_ms()
        starts = [start_ms for start_ms in self.starts(survey.id) if settles_ms(survey, start_ms) <= now_ms]
        read = [self.record(survey.id, start_ms) for start_ms in starts[-CANARY_WINDOWS:]]
        settled = [record for record in read if record is not None and is_settled(survey, record, now_ms, counted_ms)]
        return canary_score(survey, settled)

    def unknown_survey_counters(self) -> Counters:
        """Return the counters of frames that were rejected before their survey was known."""
        return self._store.log.counters(UNKNOWN_SURVEY)

    def counters(self, survey_id: str) -> Counters:
        """Return the counters of a survey."""
        return self._store.log.counters(survey_id)

    def recompute_queue(self) -> list[QueuedWindow]:
        """Return the windows whose counts changed since their estimate, oldest change first."""
        return self._store.queue.entries()

    def starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        return self._store.estimates.window_starts(survey_id)

    def windows(self, survey_id: str, limit: int) -> list[EstimateRecord]:
        """Return the stored estimates of a survey, newest window first."""
        records = (self.record(survey_id, start_ms) for start_ms in reversed(self.starts(survey_id)[-limit:]))
        return [record for record in records if record is not None]

    def history(self, survey_id: str, start_ms: int) -> list[HistoryPoint]:
        """Return how the estimate of a window changed, oldest point first."""
        points = (decode_point(raw) for raw in self._store.estimates.history(survey_id, start_ms))
        return [point for point in points if point is not None]

    def record(self, survey_id: str, start_ms: int) -> EstimateRecord | None:
        """Return the stored estimate of a window; None if there is none that can be read."""
        payload = self._store.estimates.read(survey_id, start_ms)
        if payload is None:
            return None
        try:
            return decode_estimate(payload)
        except RecordError as error:
            logger.warning("%s, window %d: %s", survey_id, start_ms, error)
            return None
