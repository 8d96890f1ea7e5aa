"""Recomputes the estimates of queued windows at every tick. No leader is needed: each window has a short lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple, cast

import msgspec

from estimators.estimates import Estimates, Floats, Population
from estimators.estimation.registry import estimator_of
from estimators.inference.pooling_result import HOMOGENEITY_ALPHA
from estimators.tally import Tally
from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.kafka.messages import Outgoing, PublishError
from streams.logs import StateLog
from streams.store.contract import (
    FoldEntries,
    LogContent,
    QueuedWindow,
    Store,
    StoreCorruptError,
    StoreUnavailableError,
)
from streams.store.shape import Shape
from streams.windows.alert_bounds import alert_bounds
from streams.windows.budget_spent import FirstWindows
from streams.windows.counted import ReportsTopic, WindowCounts
from streams.windows.history import encode_point
from streams.windows.latency import Latencies
from streams.windows.record import EstimateRecord, RecordError, decode_estimate, make_record
from streams.windows.settled import is_current, settles_ms
from streams.windows.unchanged import unchanged
from streams.windows.withheld import is_final, withheld_by, withheld_record
from streams.worker_metrics import WorkerMetrics, worker_metrics

logger = logging.getLogger(__name__)

LOCK_MS = 15_000
"""Shorter than an estimate takes: the estimate is discarded when its lock expires, and again at the next tick. Longer:
the windows of a killed worker wait for that long."""

OLD_SHARE: Final = 0.5
"""Share of a tick that may go to windows that are not current. After a restart of Redis there are thousands. Smaller:
it takes longer until all are estimated again; larger: counting and current windows wait longer."""

IDLE_SHARE: Final = 0.9
"""The same while nothing else is to be done: no frame was counted here since the last tick, and it found no current
window. Smaller: old windows wait for a worker at rest; larger: the first current window after a rest waits longer."""

Publish = Callable[[Sequence[Outgoing]], None]
"""Returns when the brokers have the messages; raises PublishError otherwise."""


class _Work(NamedTuple):
    survey: Survey
    queued: QueuedWindow
    end_ms: int


@dataclass(frozen=True)
class _Done:
    queued: QueuedWindow
    secret: bytes
    message: Outgoing | None
    whole: bool
    """Nothing is left to do for the window; otherwise it stays in the queue."""


@dataclass(frozen=True)
class _Made:
    payload: bytes
    point: bytes = b""
    """For the estimate history; empty for a record without numbers."""
    new: bool = False
    """It is to be stored; otherwise it is stored already."""
    told: bool = False
    """It need not be published, since nothing has changed."""
    whole: bool = True


def estimate(survey: Survey, tally: Tally) -> Estimates:
    """Estimate as the survey says, or stratified where the rungs contradict what it assumes or cannot be compared."""
    population = cast(Population, survey.population)
    estimate_by = partial(estimator_of(survey.mechanism).estimate, tally, population=population, alpha=survey.alpha)
    found = estimate_by(method=survey.method)
    # `pooled` turns to stratified by itself; `mle` stays the maximum of a likelihood that is wrong or unchecked.
    if found.method == "stratified":
        return found
    if contradicted(survey, found):
        why = f"rungs disagree (homogeneity p = {found.homogeneity_p:.2g})"
    elif found.method == "mle" and found.homogeneity_p is None and estimate_by(method="pooled").method == "stratified":
        why = "too few answers to test whether the rungs agree"
    else:
        return found
    instead = estimate_by(method="stratified")
    return replace(instead, notes=(*instead.notes, f"{why}: stratified, not {found.method}"))


def contradicted(survey: Survey, estimates: Estimates) -> bool:
    """Return whether the rungs of a window contradict what the survey assumes about them."""
    p = estimates.homogeneity_p
    return survey.rungs == "independent" and p is not None and p < HOMOGENEITY_ALPHA


def always_valid(survey: Survey, tally: Tally, estimates: Estimates) -> tuple[Floats, Floats] | None:
    """Return bounds that hold at every look, or None where they cannot be had.

    They need rungs that do not depend on values. A stratified estimate, asked for or chosen because the rungs disagree,
    does not assume that.
    """
    if estimates.method == "stratified":
        return None
    return estimator_of(survey.mechanism).always_valid(tally, alpha=survey.alpha)


def estimate_record(survey: Survey, window_ms: int, tally: Tally, *, settled: bool = True) -> EstimateRecord:
    """Return all of a window's record that follows from its survey and tally alone; times are 0.

    The record has no numbers where the survey publishes none yet: too few devices, or a window that is not `settled`
    of a survey that publishes totals only.
    """
    withheld = withheld_by(survey, tally, settled=settled)
    if withheld is not None:
        return withheld_record(survey, window_ms, tally, withheld)
    estimates = estimate(survey, tally)
    return make_record(
        survey,
        window_ms,
        tally,
        estimates,
        read_ms=0,
        computed_ms=0,
        always_valid=always_valid(survey, tally, estimates),
        contradicted=contradicted(survey, estimates),
        views=estimator_of(survey.mechanism).views(tally, estimates),
    )


class Recomputer:
    """Recomputes queued windows. Needs its own store connection, since it runs in its own thread."""

    def __init__(
        self,
        store: Store,
        surveys: SurveyList,
        publish: Publish,
        topic: str,
        reports: ReportsTopic,
        *,
        fold: FoldEntries[LogContent],
        clock: Clock = system_clock,
        broker_time: Clock | None = None,
        metrics: WorkerMetrics | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self._store, self._surveys, self._publish, self._topic = store, surveys, publish, topic
        self._clock = clock
        # A window is gone when both say so: a wrong clock must not drop windows, nor a broker whose time is not known.
        self._broker_time = broker_time or clock
        self._metrics = metrics or worker_metrics()
        self._latencies = latencies or Latencies()
        self._redis = StateLog(logger, "Redis (for estimates)", clock=clock)
        self._kafka = StateLog(logger, "Kafka (estimates are stored but not published)", clock=clock)
        self._failed: dict[tuple[str, int], str] = {}
        self._first_windows = FirstWindows(store.states)
        self._counts = WindowCounts(store, reports, fold=fold, clock=clock, metrics=self._metrics)
        self._round: set[tuple[str, int]] = set()
        self._frames_seen, self._current_done = 0, 0

    def run(self, stop: threading.Event, tick_seconds: float) -> None:
        """Tick until `stop` is set. Ticks start `tick_seconds` apart, or with a pause between them if they take longer.

        The pause is what old windows may not have of a tick.
        """
        pause = tick_seconds
        while not stop.wait(pause):
            started = time.monotonic()
            share = IDLE_SHARE if self._is_idle() else OLD_SHARE
            try:
                self.tick(stop, old_ms=round(tick_seconds * 1_000 * share))
                self._redis.up()
                self._kafka.up()
                self._metrics.store_up.set(1)
            except StoreUnavailableError as error:
                self._redis.down(error)
                self._metrics.store_up.set(0)
            except PublishError as error:
                self._kafka.down(error)
            pause = max(tick_seconds * (1 - share), tick_seconds - (time.monotonic() - started))

    def _is_idle(self) -> bool:
        """Tell whether nothing was counted since the last call, and the last tick found no current window."""
        seen, self._frames_seen = self._frames_seen, self._latencies.frames_noted
        return seen == self._frames_seen and not self._current_done

    def tick(self, stop: threading.Event | None = None, *, old_ms: int | None = None) -> int:
        """Recompute queued windows that no other worker has locked; return how many were done.

        1. after a restart of the store, put every window with counts into the queue: it may have lost queued windows
        2. read the queue; current windows come first, newest first, then old ones for `old_ms` (None: all of them)
        3. for each window take the lock, read the tallies of all shards, estimate, and save if the lock still holds; an
           old window whose stored estimate is that of its counts keeps it
        4. publish the estimates, stored now or before, and wait for the broker
        5. remove the windows from the queue, unless they were put again since step 2; put those again whose proof is
           not whole yet
        6. release the locks

        Steps 3 to 6 are done for current windows before the first old one is looked at. Every step may be repeated: a
        crash leaves the window in the queue for the next tick of any worker.

        Raises:
            StoreUnavailableError, PublishError: what is left to do is still in the queue.
        """
        now_ms = self._clock()
        restored = self._store.queue.put_after_restart(old_ms)
        if restored:
            logger.info("Redis restarted and may have lost queued windows; queued %d with counts again", restored)
        current, old = self._queued(now_ms)
        self._current_done = self._recompute_all(current, stop, None, old=False)
        old_done = 0
        if old:
            until_ms = None if old_ms is None else self._clock() + old_ms
            old_done = self._recompute_all(old, stop, until_ms, old=True)
        self._settle_others()
        return self._current_done + old_done

    def _queued(self, now_ms: int) -> tuple[list[_Work], list[_Work]]:
        """Return the queued windows of known surveys, current and old ones, in the order in which they are taken.

        A window that is to be rebuilt has no estimate until then: part of its reports would be missing from it.
        """
        rebuilt_first = {queued[:2] for queued in self._store.unreadable.entries()}
        surveys = {survey.id: survey for survey in self._surveys.surveys(now_ms)}
        current: list[_Work] = []
        old: list[_Work] = []
        gone_ms = min(now_ms, self._broker_time())
        for queued in self._store.queue.entries():
            survey = surveys.get(queued.survey_id)
            if survey is None:
                continue  # another worker may know it, or its file comes later
            if queued[:2] in rebuilt_first:
                continue
            if Shape.of(survey).expires_ms(queued.window_ms) <= gone_ms:
                self._store.queue.remove(queued)
                self._latencies.forget((queued.survey_id, queued.window_ms))
                continue
            work = _Work(survey, queued, survey.windows.end(queued.window_ms))
            (current if is_current(survey, queued.window_ms, now_ms) else old).append(work)
        for works in (current, old):
            works.sort(key=lambda work: -work.end_ms)
        # Old windows that are queued again and again must not keep the others waiting: each has one turn in a round.
        waiting = [work for work in old if work.queued[:2] not in self._round]
        if not waiting:
            self._round.clear()
        return current, waiting or old

    def _recompute_all(
        self, windows: Iterable[_Work], stop: threading.Event | None, until_ms: int | None, *, old: bool
    ) -> int:
        """Recompute windows until `until_ms`, at least one; return how many were done.

        Old ones have had their turn in this round then, and keep a stored estimate that is that of their counts.
        """
        done: list[_Done] = []
        try:
            for survey, queued, _ in windows:
                if stop is not None and stop.is_set():
                    break
                if old:
                    self._round.add(queued[:2])
                secret = self._store.queue.lock(queued.survey_id, queued.window_ms, LOCK_MS)
                if secret is not None and not (old and self._keep(survey, queued, secret, done)):
                    self._recompute(survey, queued, secret, done)
                if until_ms is not None and self._clock() >= until_ms:
                    break
            self._publish([work.message for work in done if work.message is not None])
            for work in done:
                if work.whole:
                    self._store.queue.remove(work.queued)
                else:
                    # It has an estimate of this moment: its waiting begins anew.
                    self._store.queue.put([work.queued[:2]])
        finally:
            self._unlock(done)
        return len(done)

    def _keep(self, survey: Survey, queued: QueuedWindow, secret: bytes, done: list[_Done]) -> bool:
        """Keep the stored estimate of a window if it is that of its counts; return whether it was kept."""
        payload = self._store.estimates.read(*queued[:2])
        if payload is None or not unchanged(self._store.estimates, survey, queued.window_ms, payload):
            return False
        # Published again: it may have been stored by a worker that ended before it could publish.
        done.append(_Done(queued, secret, self._message(queued, payload), whole=True))
        return True

    def _message(self, queued: QueuedWindow, payload: bytes) -> Outgoing:
        key = f"{queued.survey_id}:{queued.window_ms}".encode()
        return Outgoing(self._topic, payload, key, (("schema", b"thaw.estimate.v1"),))

    def _recompute(self, survey: Survey, queued: QueuedWindow, secret: bytes, done: list[_Done]) -> None:
        window = (queued.survey_id, queued.window_ms)
        shape = Shape.of(survey)
        with self._metrics.recompute_seconds.time():
            read_ms = self._clock()
            try:
                made = self._make(survey, queued.window_ms, read_ms)
            except StoreUnavailableError:
                raise
            except StoreCorruptError:
                # Logged where it was set aside. It stays in the queue, to be taken when it is rebuilt.
                self._store.queue.unlock(*window, secret)
                self._metrics.recompute_failures.inc()
                return
            except Exception as error:
                # A window that cannot be estimated must not stop the others; it stays in the queue.
                self._store.queue.unlock(*window, secret)
                self._metrics.recompute_failures.inc()
                if self._failed.get(window) != str(error):
                    self._failed[window] = str(error)
                    logger.exception("%s, window %d: no estimate (%s); it stays in the queue", *window, error)
                return
            self._failed.pop(window, None)
            expires_ms = shape.expires_ms(queued.window_ms)
            if made.new and not self._store.estimates.save(*window, secret, made.payload, expires_ms, point=made.point):
                logger.info(
                    "%s, window %d: lock expired during the estimate; discarded, the window is recomputed", *window
                )
                return
        self._settle(window, read_ms, self._clock())
        self._first_windows.note(survey, queued.window_ms, self._clock())
        message = None if made.told else self._message(queued, made.payload)
        done.append(_Done(queued, secret, message, made.whole))

    def _make(self, survey: Survey, window_ms: int, read_ms: int) -> _Made:
        """Return the record to be stored and published, or the stored one where that is final.

        The window is locked, so nobody else can publish a total between the look at the stored one and the new one.
        """
        payload = self._store.estimates.read(survey.id, window_ms) if survey.publication.totals_only else None
        if payload is not None and is_final(survey, decode_estimate(payload)):
            return _Made(payload)
        counted = self._counts.read(survey, window_ms)
        settled = self._clock() >= settles_ms(survey, window_ms) and counted.whole
        record = estimate_record(survey, window_ms, counted.tally, settled=settled)
        published = record.withheld is None
        alerts = alert_bounds(survey, window_ms, counted.tally, record.method, self._store.states) if published else []
        record = msgspec.structs.replace(
            record, read_ms=read_ms, computed_ms=self._clock(), alerts=alerts, proof=counted.proof
        )
        if record.withheld is not None and record.withheld.reason == "unsettled":
            # It is looked at in every tick until it settles; what was said before is not said again.
            same = payload is not None and decode_estimate(payload).withheld == record.withheld
            return _Made(record.encode(), new=not same, told=same, whole=False)
        return _Made(record.encode(), encode_point(record) if published else b"", new=True, whole=counted.whole)

    def _unlock(self, done: Sequence[_Done]) -> None:
        for work in done:
            try:
                self._store.queue.unlock(work.queued.survey_id, work.queued.window_ms, work.secret)
            except StoreUnavailableError:
                return  # they expire

    def _settle(self, window: tuple[str, int], read_ms: int, stored_ms: int) -> None:
        for emission in self._latencies.settle(window, read_ms):
            seconds = max(0, stored_ms - emission.sent_ms) / 1_000
            self._metrics.latency.observe_many(seconds, emission.frames)

    def _settle_others(self) -> None:
        """Settle frames applied here whose estimate another worker computed, or read the counts just before the note.

        A frame is noted after Redis has acknowledged it, so an estimate that contains it may have read the counts
        earlier than the note says. A window that is not queued has an estimate of all its frames.
        """
        windows = self._latencies.windows()
        if not windows:
            return
        now_ms = self._clock()
        queued = {(entry.survey_id, entry.window_ms) for entry in self._store.queue.entries()}
        for window in windows:
            payload = self._store.estimates.read(*window)
            if payload is not None:
                try:
                    record = decode_estimate(payload)
                    read_ms = record.read_ms if window in queued else max(record.read_ms, now_ms)
                    self._settle(window, read_ms, record.computed_ms)
                except RecordError as error:
                    logger.warning("%s, window %d: %s", *window, error)
                    self._latencies.forget(window)
