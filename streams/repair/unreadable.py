"""Rebuilds windows with an unreadable report log from Kafka, in a thread of a worker, while all others go on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyList
from producers.survey.survey import Survey
from streams.failures import OutsideError
from streams.kafka.reader import Bus, TopicReader
from streams.kafka.topic_state import TopicWatch
from streams.logs import StateLog
from streams.repair.rebuild import Rebuilder
from streams.repair.scrub import Scrub
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.contract import QueuedWindow, Store, StoreUnavailableError
from streams.store.shape import Shape
from streams.worker.topic_source import OtherClusterError, counted_since
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Between two looks for windows to rebuild."""

LOCK_MS: Final = 60_000
"""Longer: a window waits that long if the worker that rebuilds it is killed. Shorter: rebuilds that take longer are
also begun by other workers, which costs time but no counts."""

CountedSince = Callable[[], int | None]
"""Tells since when reports of the topic are counted (ms); None if no others ever were."""

OpenBus = Callable[[], AbstractContextManager[Bus]]
"""Opens the topic of reports, to be read from its start."""


class UnreadableRebuilder:
    """Rebuilds queued windows one after the other. Needs its own store connection, since it runs in its own thread."""

    def __init__(
        self,
        store: Store,
        surveys: SurveyList,
        open_bus: OpenBus,
        *,
        partitions: int,
        metrics: WorkerMetrics,
        counted_since: CountedSince = lambda: None,
        clock: Clock = system_clock,
    ) -> None:
        self._store, self._surveys, self._open_bus = store, surveys, open_bus
        self._counted_since = counted_since
        self._partitions, self._metrics, self._clock = partitions, metrics, clock
        self._scrub = Scrub(store, surveys, metrics)
        self._kafka = StateLog(logger, "Kafka (to rebuild windows)", clock=clock)

    def run(self, stop: threading.Event) -> None:
        """Look for damage in logs at rest, and for windows to rebuild, until `stop` is set."""
        while not stop.wait(LOOK_SECONDS):
            try:
                self._scrub.step(self._clock())
                self.look(stop)
                self._kafka.up()
            except StoreUnavailableError as error:
                logger.debug("no look for windows to rebuild: %s", error)
            except (OutsideError, OtherClusterError) as error:
                self._kafka.down(error)

    def look(self, stop: threading.Event | None = None) -> int:
        """Rebuild the windows that no other worker has locked; return how many are whole again.

        Raises:
            StoreUnavailableError, OutsideError, OtherClusterError: what is left to do is still in the queue.
        """
        entries = self._store.unreadable.entries()
        if not entries:
            return 0
        now_ms = self._store.now_ms()
        surveys = {survey.id: survey for survey in self._surveys.surveys(self._clock())}
        done = 0
        for queued in entries:
            survey = surveys.get(queued.survey_id)
            if survey is None or (stop is not None and stop.is_set()):
                continue
            if Shape.of(survey).expires_ms(queued.window_ms) <= now_ms:
                self._store.unreadable.remove(queued)
                continue
            secret = self._store.unreadable.lock(queued.survey_id, queued.window_ms, LOCK_MS)
            if secret is not None:
                try:
                    done += self._rebuild(survey, queued)
                finally:
                    self._store.unreadable.unlock(queued.survey_id, queued.window_ms, secret)
        return done

    def _rebuild(self, survey: Survey, queued: QueuedWindow) -> bool:
        logger.warning("%s, window %d: counting it again from Kafka", survey.id, queued.window_ms)
        since_ms = self._counted_since()
        with self._open_bus() as bus:
            rebuilder = Rebuilder(
                self._store,
                bus,
                survey,
                partitions=self._partitions,
                window_ms=queued.window_ms,
                since_ms=since_ms,
                clock=self._clock,
            )
            [count] = rebuilder.run(replace=True)
        if count.status not in ("equal", "replaced"):
            logger.warning("%s, window %d: still changing; tried again later", survey.id, queued.window_ms)
            return False
        self._metrics.rebuilt.inc()
        short = "" if count.complete else "; Kafka does not hold all of its reports, so some may be missing for good"
        logger.warning(
            "%s, window %d: whole again, %d users%s", survey.id, queued.window_ms, count.right.total_users, short
        )
        return True


def rebuild_unreadable(settings: Settings, surveys: SurveyList, metrics: WorkerMetrics, stop: threading.Event) -> None:
    """Rebuild windows with unreadable report logs until `stop` is set, as a worker's settings say."""
    store, watch = open_store(settings), TopicWatch(settings, settings.reports_topic)
    UnreadableRebuilder(
        store,
        surveys,
        lambda: TopicReader(settings, settings.reports_topic),
        partitions=settings.partitions,
        metrics=metrics,
        counted_since=lambda: counted_since(store, settings, watch.look()),
    ).run(stop)
