"""Recomputes the estimates of queued windows at every tick. No leader is needed: each window has a short lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.kafka.messages import Outgoing, PublishError
from streams.logs import StateLog
from streams.settings_topics import tier_topic
from streams.store.contract import (
    QueuedWindow,
    Store,
    StoreCorruptError,
    StoreUnavailableError,
)
from streams.store.log_content import FoldEntries, LogContent
from streams.store.shape import Shape
from streams.windows.alert_bounds import alert_bounds
from streams.windows.budget_spent import FirstWindows
from streams.windows.candidates import CandidateWatch
from streams.windows.counted import ReportsTopic, WindowCounts
from streams.windows.history import encode_point
from streams.windows.latency import Latencies
from streams.windows.published import EstimatePublisher, Publish
from streams.windows.record import AlertBound, RecordError, decode_estimate
from streams.windows.settled import is_current
from streams.windows.unchanged import unchanged
from streams.windows.waiting import Waiting
from streams.windows.window_record import estimate_record
from streams.windows.withdrawals import counted, false_alarm_share
from streams.windows.withheld import is_final, total_is_due
from streams.worker_metrics import WorkerMetrics, worker_metrics

logger = logging.getLogger(__name__)

LOCK_MS = 15_000
"""Shorter than an estimate takes: the estimate is discarded when its lock expires, and again at the next tick. Longer:
the windows of a killed worker wait for that long."""

OLD_SHARE: Final = 0.5
"""Share of a tick that may go to windows that are not current. After a restart of Redis there are thousands. Smaller:
it takes longer until all are estimated again; larger: counting and current windows wait longer."""

IDLE_SHARE: Final = 0.9
"""The same at rest: no frame was counted here since the last tick, and it found no current window. Smaller: old windows
wait for nothing; larger: the first current window after a rest waits longer."""

REREAD_MS: Final = 100
"""How long a look at the queue serves while windows are taken, for each thousand of windows in it. Longer: two workers
take more windows that the other has just done; shorter: reading a long queue takes time from estimates."""


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
        self._store, self._surveys, self._topic = store, surveys, topic
        self._clock = clock
        # A window is gone when both say so: a wrong clock must not drop windows, nor a broker whose time is not known.
        self._broker_time = broker_time or clock
        self._metrics = metrics or worker_metrics()
        self._publish = EstimatePublisher(publish, self._metrics, clock=clock)
        self._latencies = latencies or Latencies()
        self._redis = StateLog(logger, "Redis (for estimates)", clock=clock)
        self._kafka = StateLog(logger, "Kafka (estimates are stored but not published)", clock=clock)
        self._failed: dict[tuple[str, int], str] = {}
        self._first_windows = FirstWindows(store.states)
        self._counts = WindowCounts(store, reports, fold=fold, clock=clock, metrics=self._metrics)
        self._candidates = CandidateWatch(store)
        self._round: set[tuple[str, int]] = set()
        self._waiting = Waiting()
        self._queue_seen: frozenset[tuple[str, int]] = frozenset()
        self._queue_read_ms = 0
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
                tick_ms = tick_seconds * 1_000
                self.tick(stop, old_ms=round(tick_ms * share), current_ms=round(tick_ms))
                self._redis.up()
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

    def tick(
        self, stop: threading.Event | None = None, *, old_ms: int | None = None, current_ms: int | None = None
    ) -> int:
        """Recompute queued windows that no other worker has locked; return how many were done.

        1. put into the queue: after a restart of the store every window with counts, since it may have lost some,
           and windows whose estimates were made with other candidates than those of this moment
        2. read the queue; current windows come first, for `current_ms` (None: all of them), those first that have
           waited longest, of them the newest; if none is left, then old ones for `old_ms`
        3. for each window take the lock, read the tallies of all shards, estimate, and save if the lock still holds; an
           old window whose stored estimate is that of its counts keeps it
        4. publish the estimates, stored now or before, and wait for the broker; one that is larger than its topic takes
           stays as it is stored
        5. remove the windows from the queue, unless they were put again since step 2; put those again whose proof is
           not whole yet
        6. release the locks

        Steps 3 to 6 are done for current windows before the first old one is looked at. A window that another worker
        has locked has its turn there, so several workers share what is overdue. Every step may be repeated: a
        crash leaves the window in the queue for the next tick of any worker.

        Raises:
            StoreUnavailableError, PublishError: what is left to do is still in the queue.
        """
        now_ms = self._clock()
        restored = self._store.queue.put_after_restart(old_ms)
        if restored:
            logger.info("Redis restarted and may have lost queued windows; queued %d with counts again", restored)
        self._candidates.queue_changed(self._surveys.surveys(now_ms))
        current, old = self._queued(now_ms)
        self._waiting.look((work.queued[:2] for work in current), now_ms)
        current.sort(key=lambda work: (self._waiting.since_ms(work.queued[:2]), -work.end_ms))
        until_ms = None if current_ms is None else now_ms + current_ms
        self._current_done, old_done = self._recompute_all(current, stop, until_ms, old=False), 0
        delay_ms = self._waiting.longest_ms((work.queued[:2] for work in current), self._clock())
        self._metrics.recompute_delay.set(delay_ms / 1_000)
        if old and (until_ms is None or self._clock() < until_ms):
            until_ms = None if old_ms is None else self._clock() + old_ms
            old_done = self._recompute_all(old, stop, until_ms, old=True)
        self._settle_others()
        return self._current_done + old_done

    def _queued(self, now_ms: int) -> tuple[list[_Work], list[_Work]]:
        """Return the queued windows of known surveys, current and old ones, these in the order in which they are taken.

        A window that is to be rebuilt has no estimate until then: part of its reports would be missing from it.
        """
        rebuilt_first = {queued[:2] for queued in self._store.unreadable.entries()}
        surveys = {survey.id: survey for survey in self._surveys.surveys(now_ms)}
        current: list[_Work] = []
        old: list[_Work] = []
        gone_ms = min(now_ms, self._broker_time())
        for queued in self._read_queue():
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
        old.sort(key=lambda work: -work.end_ms)
        # Old windows that are queued again and again must not keep the others waiting: each has one turn in a round.
        waiting = [work for work in old if work.queued[:2] not in self._round]
        if not waiting:
            self._round.clear()
        return current, waiting or old

    def _read_queue(self) -> list[QueuedWindow]:
        entries = self._store.queue.entries()
        self._queue_seen, self._queue_read_ms = frozenset(queued[:2] for queued in entries), self._clock()
        return entries

    def _is_queued(self, window: tuple[str, int]) -> bool:
        """Tell whether a window waits still, or did a moment ago."""
        if self._clock() - self._queue_read_ms >= REREAD_MS * (1 + len(self._queue_seen) // 1_000):
            self._read_queue()
        return window in self._queue_seen

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
                if not self._is_queued(queued[:2]):
                    self._waiting.taken(queued[:2], self._clock())  # by another worker
                    continue
                secret = self._store.queue.lock(queued.survey_id, queued.window_ms, LOCK_MS)
                self._waiting.taken(queued[:2], self._clock())
                if secret is not None and not (old and self._keep(survey, queued, secret, done)):
                    self._recompute(survey, queued, secret, done)
                if secret is not None and until_ms is not None and self._clock() >= until_ms:
                    break
            messages = [work.message for work in done if work.message is not None]
            refused = self._publish(messages)
            if messages and not refused:
                self._kafka.up()  # a tick without a message says nothing of Kafka
            for work in done:
                if work.message is not None and work.message.topic in refused:
                    continue
                if work.whole:
                    self._store.queue.remove(work.queued)
                else:
                    # It has an estimate of this moment: its waiting begins anew.
                    self._store.queue.put([work.queued[:2]])
            if refused:
                raise next(iter(refused.values()))
        finally:
            self._unlock(done)
        return len(done)

    def _keep(self, survey: Survey, queued: QueuedWindow, secret: bytes, done: list[_Done]) -> bool:
        """Keep the stored estimate of a window if it is that of its counts; return whether it was kept."""
        payload = self._store.estimates.read(*queued[:2])
        if payload is None or not unchanged(self._store.estimates, survey, queued.window_ms, payload):
            return False
        # Published again: it may have been stored by a worker that ended before it could publish.
        done.append(_Done(queued, secret, self._message(survey, queued, payload), whole=True))
        return True

    def _message(self, survey: Survey, queued: QueuedWindow, payload: bytes) -> Outgoing:
        key = f"{queued.survey_id}:{queued.window_ms}".encode()
        topic = self._topic if survey.tier is None else tier_topic(self._topic, survey.tier.name)
        return Outgoing(topic, payload, key, (("schema", b"thaw.estimate.v1"),))

    def _recompute(self, survey: Survey, queued: QueuedWindow, secret: bytes, done: list[_Done]) -> None:
        window = (queued.survey_id, queued.window_ms)
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
            expires_ms = Shape.of(survey).expires_ms(queued.window_ms)
            if made.new and not self._store.estimates.save(*window, secret, made.payload, expires_ms, point=made.point):
                logger.info(
                    "%s, window %d: lock expired during the estimate; discarded, the window is recomputed", *window
                )
                return
        self._settle(window, read_ms, self._clock())
        self._first_windows.note(survey, queued.window_ms, self._clock())
        message = None if made.told else self._message(survey, queued, made.payload)
        done.append(_Done(queued, secret, message, made.whole))

    def _make(self, survey: Survey, window_ms: int, read_ms: int) -> _Made:
        """Return the record to be stored and published, or the stored one where that is final.

        The window is locked, so nobody else can publish a total between the look at the stored one and the new one.
        """
        payload = self._store.estimates.read(survey.id, window_ms) if survey.publication.totals_only else None
        if payload is not None and is_final(survey, decode_estimate(payload)):
            return _Made(payload)
        found = self._counts.read(survey, window_ms)
        settled = found.whole and total_is_due(survey, window_ms, self._clock, self._store.now_ms)
        record = estimate_record(survey, window_ms, found.tally, settled=settled)
        published = record.withheld is None
        counts, states = counted(survey, found.tally), self._store.states
        share = false_alarm_share(counts.withdrawn)
        alerts: list[AlertBound] = []
        if published:
            alerts = alert_bounds(survey, window_ms, counts.tally, record.method, states, share=share)
        record = msgspec.structs.replace(
            record, read_ms=read_ms, computed_ms=self._clock(), alerts=alerts, proof=found.proof
        )
        if record.withheld is not None and record.withheld.reason == "unsettled":
            # It is looked at in every tick until it settles; what was said before is not said again.
            same = payload is not None and decode_estimate(payload).withheld == record.withheld
            return _Made(record.encode(), new=not same, told=same, whole=False)
        point = encode_point(record, survey.candidates_hash) if published else b""
        return _Made(record.encode(), point, new=True, whole=found.whole)

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
