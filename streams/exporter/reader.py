"""What the exporter reads from the store: surveys, stored estimates, counters. Blocking."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.exporter.api import CanaryScore, EpsilonAudit
from streams.exporter.health import CANARY_WINDOWS, canary_score, epsilon_audit, superseded
from streams.store.contract import QueuedWindow, Store
from streams.store.counters import UNKNOWN_SURVEY, Counters
from streams.store.heartbeats import Heartbeat, HeartbeatReader
from streams.windows.budget_spent import budget_spent, first_window_ms
from streams.windows.epsilon_audit import read_audit
from streams.windows.history import HistoryPoint, decode_point
from streams.windows.likelihood import Likelihood, Likelihoods
from streams.windows.record import EstimateRecord, RecordError, decode_estimate
from streams.windows.settled import counted_until_ms, is_settled, settles_ms

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
    epsilon: EpsilonAudit | None = None
    """What the answers of a canary have shown of their epsilon."""


@dataclass(frozen=True)
class Snapshot:
    """What the store held at one moment, read in one pass."""

    states: Sequence[SurveyState]
    unknown_survey: Counters
    """Frames that were rejected before their survey was known."""
    queue: Sequence[QueuedWindow]
    """The windows whose counts changed since their estimate, oldest change first."""
    unreadable: int
    """Windows that wait to be rebuilt because a report log could not be read."""
    heartbeats: Sequence[Heartbeat]
    counted_ms: int | None
    """The time before which all reports are counted, None if not known."""


class Reader:
    """Reads surveys, estimates and counters; safe to share between threads, except `snapshot`."""

    def __init__(
        self,
        store: Store,
        surveys: SurveyList,
        *,
        heartbeats: HeartbeatReader | None = None,
        clock: Clock = system_clock,
    ) -> None:
        self._store, self._surveys, self._heartbeats, self._clock = store, surveys, heartbeats, clock
        self._decoded: dict[tuple[str, int], tuple[bytes, EstimateRecord | None]] = {}

    def surveys(self) -> Sequence[Survey]:
        """Return all surveys in the folder."""
        return self._surveys.surveys(self._clock())

    def snapshot(self) -> Snapshot:
        """Read all that metrics, health and alerts need. One caller at a time."""
        now_ms, surveys = self._clock(), self.surveys()
        starts = {survey.id: self.starts(survey.id) for survey in surveys}
        records = self._read_again(
            [place for survey in surveys for place in _needed(survey, starts[survey.id], now_ms)]
        )
        last = {survey.id: last_estimate_ms(records, survey.id, starts[survey.id]) for survey in surveys}
        replaced, queue, heartbeats = superseded(surveys, last, now_ms), self._store.queue.entries(), self.heartbeats()
        counted_ms = counted_until_ms(surveys, heartbeats, queue, _newest(last.values()), now_ms)
        states = []
        for survey in surveys:
            by_age = {
                age: record
                for age, start_ms in windows_by_age(survey, now_ms).items()
                if (record := records.get((survey.id, start_ms))) is not None
            }
            first_ms = first_window_ms(self._store.states, survey.id)
            states.append(
                SurveyState(
                    survey,
                    by_age,
                    self._store.log.counters(survey.id),
                    self._store.log.shard_reports(survey.id),
                    last[survey.id],
                    None if survey.tier is not None else budget_spent(survey, first_ms, by_age, now_ms),
                    _canary(survey, records, starts[survey.id], now_ms, counted_ms),
                    survey.id in replaced,
                    survey.has_ended(now_ms),
                    self._epsilon(survey),
                )
            )
        return Snapshot(
            states,
            self._store.log.counters(UNKNOWN_SURVEY),
            queue,
            len(self._store.unreadable.entries()),
            heartbeats,
            counted_ms,
        )

    def heartbeats(self) -> Sequence[Heartbeat]:
        """Return the last heartbeat of every worker; none where nobody asked for them."""
        return self._heartbeats.read() if self._heartbeats is not None else []

    def counted_ms(self, found: Iterable[EstimateRecord]) -> int | None:
        """Return the time before which all reports are counted; without workers, when the newest of these was made."""
        newest_ms = _newest(record.computed_ms for record in found)
        queue = self._store.queue.entries()
        return counted_until_ms(self.surveys(), self.heartbeats(), queue, newest_ms, self._clock())

    def _epsilon(self, survey: Survey) -> EpsilonAudit | None:
        return epsilon_audit(survey, read_audit(self._store.states, survey.id)) if survey.canary is not None else None

    def _read_again(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], EstimateRecord]:
        """Read estimates; those that did not change since the last time are not decoded again."""
        found: dict[tuple[str, int], tuple[bytes, EstimateRecord | None]] = {}
        for place, payload in zip(places, self._store.estimates.read_many(places), strict=True):
            if payload is not None:
                before = self._decoded.get(place)
                unchanged = before is not None and before[0] == payload
                found[place] = (
                    before if before is not None and unchanged else (payload, decoded_record(*place, payload))
                )
        self._decoded = found
        return {place: record for place, (_, record) in found.items() if record is not None}

    def starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        return self._store.estimates.window_starts(survey_id)

    def windows(self, survey_id: str, limit: int) -> list[EstimateRecord]:
        """Return the stored estimates of a survey, newest window first."""
        return self.records(survey_id, self.starts(survey_id)[: -limit - 1 : -1])

    def records(self, survey_id: str, starts: Sequence[int]) -> list[EstimateRecord]:
        """Return the stored estimates of windows, in their order, without those that there are none of."""
        read = zip(starts, self.payloads(survey_id, starts), strict=True)
        decoded = (decoded_record(survey_id, start_ms, payload) for start_ms, payload in read if payload is not None)
        return [record for record in decoded if record is not None]

    def payloads(self, survey_id: str, starts: Sequence[int]) -> list[bytes | None]:
        """Return the stored estimates of windows as they are, in their order."""
        return self._store.estimates.read_many([(survey_id, start_ms) for start_ms in starts])

    def likelihood(self, survey: Survey, record: EstimateRecord, *, ask: bool) -> Likelihood | None:
        """Return the likelihood of a window's reports, and ask for it if it is not there; None if nobody asked."""
        likelihoods = Likelihoods(self._store.states)
        if ask:
            return likelihoods.ask(survey, record.window_start_ms, record.users, self._clock())
        return likelihoods.read(survey, record.window_start_ms)

    def history(self, survey_id: str, start_ms: int) -> list[HistoryPoint]:
        """Return how the estimate of a window changed, oldest point first."""
        points = (decode_point(raw) for raw in self._store.estimates.history(survey_id, start_ms))
        return [point for point in points if point is not None]


def last_estimate_ms(
    records: Mapping[tuple[str, int], EstimateRecord], survey_id: str, starts: Sequence[int]
) -> int | None:
    """Return when the newest of a survey's stored estimates was computed; None if it has none.

    This is the one definition of "last estimate": the newest computation among the six newest stored windows, which are
    as many as have series. Older windows change only by late reports.
    """
    newest = ((survey_id, start_ms) for start_ms in starts[-CLOSED_WINDOWS - 1 :])
    return _newest(records[place].computed_ms for place in newest if place in records)


def _needed(survey: Survey, starts: Sequence[int], now_ms: int) -> list[tuple[str, int]]:
    """Return the windows that metrics, health and alerts are made of."""
    wanted = {
        *starts[-CLOSED_WINDOWS - 1 :],
        *windows_by_age(survey, now_ms).values(),
        *_scored(survey, starts, now_ms),
    }
    return [(survey.id, start_ms) for start_ms in sorted(wanted)]


def _scored(survey: Survey, starts: Sequence[int], now_ms: int) -> Sequence[int]:
    """Return the windows of a canary that may count for its score."""
    if survey.canary is None:
        return ()
    return [start_ms for start_ms in starts if settles_ms(survey, start_ms) <= now_ms][-CANARY_WINDOWS:]


def _canary(
    survey: Survey,
    records: Mapping[tuple[str, int], EstimateRecord],
    starts: Sequence[int],
    now_ms: int,
    counted_ms: int | None,
) -> CanaryScore | None:
    """Score the newest settled windows of a canary; None for other surveys, or before a window has settled."""
    read = [records.get((survey.id, start_ms)) for start_ms in _scored(survey, starts, now_ms)]
    return canary_score(survey, [found for found in read if found and is_settled(survey, found, now_ms, counted_ms)])


def _newest(moments: Iterable[int | None]) -> int | None:
    return max((moment for moment in moments if moment is not None), default=None)


def decoded_record(survey_id: str, start_ms: int, payload: bytes) -> EstimateRecord | None:
    """Decode a stored estimate; None, and a line in the log, for one that cannot be read."""
    try:
        return decode_estimate(payload)
    except RecordError as error:
        logger.warning("%s, window %d: %s", survey_id, start_ms, error)
        return None
