"""What the exporter reads from the store, and the metrics it makes of it; `streams.exporter.server` serves them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from producers.clock import Clock, system_clock
from producers.survey.survey import Survey
from streams.exporter.health import canary_scores
from streams.logs import StateLog
from streams.metrics import Families
from streams.store.contract import UNKNOWN_SURVEY, QueuedWindow, Store, StoreUnavailableError
from streams.windows.budget_spent import budget_spent, first_window_ms
from streams.windows.history import HistoryPoint, decode_point
from streams.windows.recompute import SurveyList
from streams.windows.record import EstimateRecord, RecordError, decode_estimate
from streams.worker.fold import REASONS

logger = logging.getLogger(__name__)

CLOSED_WINDOWS = 5
"""Closed windows that have series of their own; older ones are in the API. More: more series for the same survey."""

SHARD_SERIES = 64
"""Series per survey for reports by shard. More: more series; fewer: a flood of one shard drowns in the others."""

_COUNTERS = ("applied", "duplicate", "stale", "conflict", "expired")
_REJECTED = "rejected:"


def windows_by_age(survey: Survey, now_ms: int) -> dict[str, int]:
    """Return the starts of the windows that have series: `open` is the one that closes next, `1` closed last."""
    windows = survey.windows
    first_open = windows.starts(now_ms)[0]
    return {"open": first_open} | {str(age): first_open - age * windows.step_ms for age in range(1, CLOSED_WINDOWS + 1)}


@dataclass(frozen=True)
class SurveyState:
    """What the store knows of one survey at one moment."""

    survey: Survey
    records: Mapping[str, EstimateRecord]
    """By age."""
    counters: Mapping[str, int]
    shard_reports: Sequence[int] = ()
    last_estimate_ms: int | None = None
    budget_spent: float | None = None


class Reader:
    """Reads surveys, estimates and counters. Blocking; the HTTP server calls it from a thread."""

    def __init__(self, store: Store, surveys: SurveyList, *, clock: Clock = system_clock) -> None:
        self._store, self._surveys, self._clock = store, surveys, clock

    def surveys(self) -> Sequence[Survey]:
        """Return all known surveys."""
        return self._surveys.surveys(self._clock())

    def states(self) -> list[SurveyState]:
        """Return what is known of every survey."""
        now_ms = self._clock()
        found = []
        for survey in self._surveys.surveys(now_ms):
            starts = windows_by_age(survey, now_ms)
            read = {age: self.record(survey.id, start_ms) for age, start_ms in starts.items()}
            records = {age: record for age, record in read.items() if record is not None}
            found.append(
                SurveyState(
                    survey,
                    records,
                    self._store.counters(survey.id),
                    self._store.shard_reports(survey.id),
                    self._last_estimate_ms(survey.id, records),
                    budget_spent(survey, first_window_ms(self._store, survey.id), records, now_ms),
                )
            )
        return found

    def _last_estimate_ms(self, survey_id: str, records: Mapping[str, EstimateRecord]) -> int | None:
        """Return when anything was estimated last, also if all windows are too old to have series."""
        known = list(records.values()) or self.windows(survey_id, 1)
        return max((record.computed_ms for record in known), default=None)

    def strangers(self) -> Mapping[str, int]:
        """Return the counters of what was rejected before its survey was known."""
        return self._store.counters(UNKNOWN_SURVEY)

    def counters(self, survey_id: str) -> Mapping[str, int]:
        """Return the counters of a survey."""
        return self._store.counters(survey_id)

    def marks(self) -> list[QueuedWindow]:
        """Return the windows whose estimate is older than their counts, oldest mark first."""
        return self._store.dirty()

    def starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        return self._store.window_starts(survey_id)

    def windows(self, survey_id: str, limit: int) -> list[EstimateRecord]:
        """Return the stored estimates of a survey, newest window first."""
        records = (self.record(survey_id, start_ms) for start_ms in reversed(self.starts(survey_id)[-limit:]))
        return [record for record in records if record is not None]

    def life(self, survey_id: str, start_ms: int) -> list[HistoryPoint]:
        """Return how the estimate of a window changed, oldest point first."""
        points = (decode_point(raw) for raw in self._store.life(survey_id, start_ms))
        return [point for point in points if point is not None]

    def record(self, survey_id: str, start_ms: int) -> EstimateRecord | None:
        """Return the stored estimate of a window; None if there is none that can be read."""
        payload = self._store.estimate(survey_id, start_ms)
        if payload is None:
            return None
        try:
            return decode_estimate(payload)
        except RecordError as error:
            logger.warning("%s, window %d: %s", survey_id, start_ms, error)
            return None


class ThawCollector(Collector):
    """Makes all metrics anew at every scrape, so that a series ends with what it told about."""

    def __init__(self, reader: Reader, *, value_limit: int) -> None:
        self._reader, self._value_limit = reader, value_limit
        self._redis = StateLog(logger, "Redis")

    def collect(self) -> Iterator[Metric]:
        """Return all families; only `thaw_store_up` has a sample if the store does not answer."""
        families = Families()
        try:
            states = self._reader.states()
            dirty = len(self._reader.marks())
            strangers = self._reader.strangers()
        except StoreUnavailableError as error:
            self._redis.down(error)
            families.add("thaw_store_up", 0)
        else:
            self._redis.up()
            families.add("thaw_store_up", 1)
            families.add("thaw_dirty_windows", dirty)
            _add_rejected(families, UNKNOWN_SURVEY, strangers)
            for state in states:
                self._add(families, state)
        yield from families.all()

    def _add(self, families: Families, state: SurveyState) -> None:
        survey = state.survey
        families.add("thaw_survey_info", 1, survey.id, survey.name, survey.mechanism.name)
        for name in _COUNTERS:
            families.add(f"thaw_reports_{name}_total", state.counters.get(name, 0), survey.id)
        _add_rejected(families, survey.id, state.counters)
        for shard, count in enumerate(folded(state.shard_reports)):
            families.add("thaw_shard_reports_total", count, survey.id, str(shard))
        families.add("thaw_last_estimate_timestamp_seconds", _seconds(state.last_estimate_ms), survey.id)
        families.add("thaw_budget_spent_ratio", state.budget_spent, survey.id)
        for rule in survey.alerts:
            families.add("thaw_alert_threshold_ratio", rule.threshold, survey.id, rule.value, rule.side)
            families.add("thaw_alert_false_alarm_ratio", rule.alpha, survey.id, rule.value, rule.side)
        shown = chosen_values(survey.mechanism.labels, state.records.values(), self._value_limit)
        families.add("thaw_frequency_values_left_out", len(survey.mechanism.labels) - len(shown), survey.id)
        for age, record in state.records.items():
            families.add("thaw_window_end_timestamp_seconds", record.window_end_ms / 1_000, survey.id, age)
            families.add("thaw_estimate_timestamp_seconds", record.computed_ms / 1_000, survey.id, age)
            families.add("thaw_homogeneity_p_ratio", record.homogeneity_p, survey.id, age)
            for rung, users in enumerate(record.users_per_rung):
                families.add("thaw_users", users, survey.id, age, str(rung))
            for alert in record.alerts:
                families.add("thaw_alert_bound_ratio", alert.bound, survey.id, alert.value, alert.side, age)
            for z, value in canary_scores(survey, record):
                if value in shown:
                    families.add("thaw_canary_z_score", z, survey.id, value, age)
            for row in record.values:
                if row.value in shown:
                    place = (survey.id, row.value, age)
                    families.add("thaw_frequency_estimate_ratio", row.estimate, *place)
                    families.add("thaw_frequency_variance", row.variance, *place)
                    families.add("thaw_frequency_lower_bound_ratio", row.lower, *place)
                    families.add("thaw_frequency_upper_bound_ratio", row.upper, *place)
                    families.add("thaw_frequency_always_valid_lower_bound_ratio", row.always_valid_lower, *place)
                    families.add("thaw_frequency_always_valid_upper_bound_ratio", row.always_valid_upper, *place)


def _add_rejected(families: Families, survey_id: str, counters: Mapping[str, int]) -> None:
    # All reasons from the start: Prometheus does not see a counter rise that was not there before.
    rejected = dict.fromkeys(REASONS[1:], 0)
    rejected |= {name.removeprefix(_REJECTED): count for name, count in counters.items() if name.startswith(_REJECTED)}
    for reason, count in rejected.items():
        families.add("thaw_reports_rejected_total", count, survey_id, reason)


def folded(counts: Sequence[int]) -> list[int]:
    """Add the counts of shards whose numbers are equal modulo SHARD_SERIES."""
    sums = [0] * min(len(counts), SHARD_SERIES)
    for shard, count in enumerate(counts):
        sums[shard % SHARD_SERIES] += count
    return sums


def _seconds(time_ms: int | None) -> float | None:
    return None if time_ms is None else time_ms / 1_000


def chosen_values(labels: Sequence[str], records: Any, limit: int) -> frozenset[str]:
    """Return the values that get series: all, or the `limit` most frequent over the windows shown, ties as listed."""
    if len(labels) <= limit:
        return frozenset(labels)
    people = dict.fromkeys(labels, 0.0)
    for record in records:
        for row in record.values:
            people[row.value] = people.get(row.value, 0.0) + (row.estimate or 0.0) * record.users
    return frozenset(sorted(labels, key=lambda label: -people[label])[:limit])
