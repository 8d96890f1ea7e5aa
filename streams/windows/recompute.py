"""Recomputes the estimates of queued windows at every tick. No leader is needed: each window has a short lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, cast

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
from streams.windows.history import encode_point
from streams.windows.latency import Latencies
from streams.windows.record import EstimateRecord, RecordError, decode_estimate, make_record
from streams.windows.settled import is_current
from streams.windows.unreadable import UnreadableLogs
from streams.worker_metrics import WorkerMetrics, worker_metrics

logger = logging.getLogger(__name__)

LOCK_MS = 15_000
"""Shorter than an estimate takes: the estimate is discarded when its lock expires, and again at the next tick. Longer:
the windows of a killed worker wait for that long."""

OLD_SHARE: Final = 0.5
"""Share of a tick that may go to windows that are not current. After a restart of Redis there are thousands. Smaller:
it takes longer until all are estimated again; larger: current windows wait longer."""

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
    message: Outgoing


def estimate(survey: Survey, tally: Tally) -> Estimates:
    """Estimate as the survey says, or stratified where the rungs contradict what it assumes about them."""
    estimator, population = estimator_of(survey.mechanism), cast(Population, survey.population)
    found = estimator.estimate(tally, method=survey.method, population=population, alpha=survey.alpha)
    if not contradicted(survey, found) or found.method == "stratified":
        return found
    # `pooled` turns to stratified by itself; `mle` stays the maximum of a likelihood that does not hold.
    note = f"rungs disagree (homogeneity p = {found.homogeneity_p:.2g}): stratified, not {found.method}"
    instead = estimator.estimate(tally, method="stratified", population=population, alpha=survey.alpha)
    return replace(instead, notes=(*instead.notes, note))


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


class Recomputer:
    """Recomputes queued windows. Needs its own store connection, since it runs in its own thread."""

    def __init__(
        self,
        store: Store,
        surveys: SurveyList,
        publish: Publish,
        topic: str,
        *,
        fold: FoldEntries[LogContent],
        clock: Clock = system_clock,
        broker_time: Clock | None = None,
        metrics: WorkerMetrics | None = None,
        latencies: Latencies | None = None,
    ) -> None:
        self._store, self._surveys, self._publish, self._topic = store, surveys, publish, topic
        self._fold, self._clock = fold, clock
        # A window is gone when both say so: a wrong clock must not drop windows, nor a broker whose time is not known.
        self._broker_time = broker_time or clock
        self._metrics = metrics or worker_metrics()
        self._latencies = latencies or Latencies()
        self._redis = StateLog(logger, "Redis (for estimates)", clock=clock)
        self._failed: dict[tuple[str, int], str] = {}
        self._first_windows = FirstWindows(store.states)
        self._unreadable = UnreadableLogs(store, self._metrics)
        self._round: set[tuple[str, int]] = set()

    def run(self, stop: threading.Event, tick_seconds: float) -> None:
        """Tick until `stop` is set. Ticks start `tick_seconds` apart, or with half of that between them if longer."""
        pause = tick_seconds
        while not stop.wait(pause):
            started = time.monotonic()
            try:
                self.tick(stop, old_ms=round(tick_seconds * 1_000 * OLD_SHARE))
                self._redis.up()
                self._metrics.store_up.set(1)
            except StoreUnavailableError as error:
                self._redis.down(error)
                self._metrics.store_up.set(0)
            except PublishError as error:
                logger.warning("estimates are stored but not published: %s; retrying at the next tick", error)
            pause = max(tick_seconds / 2, tick_seconds - (time.monotonic() - started))

    def tick(self, stop: threading.Event | None = None, *, old_ms: int | None = None) -> int:
        """Recompute queued windows that no other worker has locked; return how many were done.

        1. after a restart of the store, put every window with counts into the queue: it may have lost queued windows
        2. read the queue; current windows come first, newest first, then old ones for `old_ms` (None: all of them)
        3. for each window take the lock, read the tallies of all shards, estimate, and save if the lock still holds
        4. publish the estimates and wait for the broker
        5. remove the windows from the queue, unless they were put again since step 2
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
        done = self._recompute_all(current, stop, None, set())
        if old:
            until_ms = None if old_ms is None else self._clock() + old_ms
            done += self._recompute_all(old, stop, until_ms, self._round)
        self._settle_others()
        return done

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
        self, windows: Iterable[_Work], stop: threading.Event | None, until_ms: int | None, taken: set[tuple[str, int]]
    ) -> int:
        """Recompute windows until `until_ms`, at least one; note those in `taken`, and return how many were done."""
        done: list[_Done] = []
        try:
            for survey, queued, _ in windows:
                if stop is not None and stop.is_set():
                    break
                taken.add((queued.survey_id, queued.window_ms))
                secret = self._store.queue.lock(queued.survey_id, queued.window_ms, LOCK_MS)
                if secret is not None:
                    self._recompute(survey, queued, secret, done)
                if until_ms is not None and self._clock() >= until_ms:
                    break
            self._publish([work.message for work in done])
            for work in done:
                self._store.queue.remove(work.queued)
        finally:
            self._unlock(done)
        return len(done)

    def _recompute(self, survey: Survey, queued: QueuedWindow, secret: bytes, done: list[_Done]) -> None:
        window = (queued.survey_id, queued.window_ms)
        shape = Shape.of(survey)
        with self._metrics.recompute_seconds.time():
            read_ms = self._clock()
            try:
                tally = self._tally(survey, queued.window_ms)
                record = self._record(survey, queued.window_ms, tally, read_ms)
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
            payload = record.encode()
            expires_ms = shape.expires_ms(queued.window_ms)
            if not self._store.estimates.save(*window, secret, payload, expires_ms, point=encode_point(record)):
                logger.info(
                    "%s, window %d: lock expired during the estimate; discarded, the window is recomputed", *window
                )
                return
        self._settle(window, read_ms, self._clock())
        self._first_windows.note(survey, queued.window_ms, self._clock())
        key = f"{survey.id}:{queued.window_ms}".encode()
        done.append(_Done(queued, secret, Outgoing(self._topic, payload, key, (("schema", b"thaw.estimate.v1"),))))

    def _tally(self, survey: Survey, window_ms: int) -> Tally:
        """Read the tally of a window; one that cannot be read is made again from its log.

        Raises:
            StoreCorruptError: nor can the log; it was set aside.
        """
        estimates, shape = self._store.estimates, Shape.of(survey)
        try:
            return estimates.tally(survey.id, window_ms, survey.shards, shape)
        except StoreCorruptError as error:
            try:
                self._store.log.load(list(error.logs), shape, self._fold)
            except StoreCorruptError as log_error:
                self._unreadable.set_aside(log_error)
                raise
            self._metrics.unreadable.labels("tally").inc(len(error.logs))
            logger.error(
                "%s, window %d: a tally cannot be read (%s); made again from its log", survey.id, window_ms, error
            )
            return estimates.tally(survey.id, window_ms, survey.shards, shape)

    def _record(self, survey: Survey, window_ms: int, tally: Tally, read_ms: int) -> EstimateRecord:
        estimates = estimate(survey, tally)
        bounds = always_valid(survey, tally, estimates)
        return make_record(
            survey,
            window_ms,
            tally,
            estimates,
            read_ms=read_ms,
            computed_ms=self._clock(),
            always_valid=bounds,
            contradicted=contradicted(survey, estimates),
            alerts=alert_bounds(survey, window_ms, tally, estimates.method, self._store.states),
        )

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
