"""The worker process: waits for Redis and Kafka, wires applier, recomputation and heartbeats, and runs the driver."""

from __future__ import annotations

import gc
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import start_http_server

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.lookup import SurveyList
from streams import logs
from streams.failures import OutsideError
from streams.kafka.messages import Outgoing
from streams.kafka.publisher import Publisher
from streams.kafka.topic_state import TopicWatch
from streams.kafka.topics import Topics, tier_topics
from streams.kafka.watch import watch_kafka
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.contract import StoreUnavailableError
from streams.store.redis import RedisStore
from streams.tracing import Tracing
from streams.windows.counted import ReportsTopic
from streams.windows.latency import Latencies
from streams.windows.recompute import Recomputer
from streams.worker.applier import DEFAULT_SHARDS, Applier
from streams.worker.dead_letters import DeadLetterSender
from streams.worker.driver import Driver, exit_now
from streams.worker.drivers import make_driver
from streams.worker.fold import warm_up
from streams.worker.handler import BatchHandler, TopicsFeed
from streams.worker.heartbeat import HeartbeatLoop
from streams.worker.likelihoods import LikelihoodMaker
from streams.worker.table import Table
from streams.worker.threads import start_thread
from streams.worker.topic_source import OtherClusterError, counted_since, source_of, take_source
from streams.worker.topic_watch import ReportsTopicWatch
from streams.worker_metrics import WorkerMetrics, worker_metrics

logger = logging.getLogger(__name__)

_BACKOFF_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_PUBLISH_SECONDS: Final = 5.0
"""How long a tick waits for Kafka to acknowledge estimates. Longer: current windows of this worker, and the line that
says why, wait longer when Kafka hangs. Shorter: estimates are sent again to brokers that are merely slow."""
_PUBLISH_AGAIN_SECONDS: Final = 0.2
"""How long a tick waits for Kafka if it did not answer at the tick before."""
_STOP_SECONDS: Final = 5.0
_GARBAGE_THRESHOLD: Final = 100_000
"""New objects before Python looks for cycles among them. More: cycles hold their memory for longer. Fewer: records come
and go by the hundred thousand a second, none of them in a cycle, and with the usual 700 the search for cycles takes
longer than all else that is done for a small record."""


class ConfigurationError(RuntimeError):
    """This worker must not run with these settings; the message says what to change."""


Rebuild = Callable[[Settings, SurveyList, WorkerMetrics, threading.Event], None]
"""Rebuilds windows with unreadable report logs until the event is set."""


def look_for_cycles_rarely() -> None:
    """Let Python's search for cycles leave out what is there now, and begin after many new objects only."""
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)


def run_worker(settings: Settings, rebuild: Rebuild) -> int:
    """Run a worker until SIGTERM or SIGINT; return the exit status."""
    stopping, no_more_ticks = _stopping(), threading.Event()
    patience = Patience(settings.patience_seconds, stopping)
    tracing = Tracing("thaw-worker", settings)
    metrics, latencies = worker_metrics(), Latencies()
    surveys = SurveyFolder(settings.surveys_folder, system_clock())
    server = _serve_metrics(settings, metrics)
    store = open_store(settings)
    _check_store(settings, store, patience)
    # Before Kafka answers: the heartbeat is what names a Kafka that does not.
    start_thread("kafka-watch", lambda: watch_kafka(settings, metrics.kafka_up, no_more_ticks), exit_now)
    beat = HeartbeatLoop(open_store(settings).heartbeats, settings.instance_id, metrics, port=server.server_port)
    heartbeats = start_thread("heartbeat", lambda: beat.run(no_more_ticks), exit_now)
    draining = _check_topics(settings, surveys, patience)
    reports = _take_sources(settings, store, surveys, draining, patience)
    warm_up()
    publisher = Publisher(settings)
    applier = _applier(settings, store, surveys, publisher, metrics, stopping, draining)

    def publish(messages: Sequence[Outgoing]) -> None:
        # While Kafka is away a tick must not wait for it: the page reads estimates from Redis.
        wait_seconds = _PUBLISH_SECONDS if publisher.is_up else _PUBLISH_AGAIN_SECONDS
        publisher.send(messages, wait_seconds=wait_seconds, stopping=no_more_ticks.is_set)

    recomputer = Recomputer(
        open_store(settings),
        surveys,
        publish,
        settings.estimates_topic,
        reports,
        fold=Table.of_log,
        broker_time=lambda: applier.broker_ms,
        metrics=metrics,
        latencies=latencies,
    )
    ticks = start_thread("recompute", lambda: recomputer.run(no_more_ticks, settings.tick_ms / 1_000), exit_now)
    start_thread("rebuild", lambda: rebuild(settings, surveys, metrics, no_more_ticks), exit_now)
    maker = LikelihoodMaker(open_store(settings), surveys, settings.instance_id)
    start_thread("likelihoods", lambda: maker.run(no_more_ticks), exit_now)
    handlers = {
        topic: BatchHandler(topic, applier, metrics, latencies, beside=topic in draining, spans=tracing.spans)
        for topic in (settings.reports_topic, *draining)
    }
    driver = make_driver(settings, TopicsFeed(handlers), stopping)
    _watch_topics(settings, handlers, draining, metrics, driver, no_more_ticks)
    look_for_cycles_rarely()
    status = driver.run()
    # Estimates of the last batches that are not done in time are left to another worker.
    no_more_ticks.set()
    ticks.join(_STOP_SECONDS)
    heartbeats.join(1.0)
    publisher.close(_STOP_SECONDS)
    tracing.close()
    server.shutdown()
    _say_the_end(status)
    return status


def _say_the_end(status: int) -> None:
    if status:
        logger.critical("exiting with status %d: reading stopped by itself; safe to restart, no report is lost", status)
    else:
        logger.info("stopped")


def _watch_topics(
    settings: Settings,
    handlers: Mapping[str, BatchHandler],
    draining: Mapping[str, int],
    metrics: WorkerMetrics,
    driver: Driver,
    stop: threading.Event,
) -> None:
    """Start a thread for each topic that is read, until `stop` is set."""
    for topic, handler in handlers.items():
        looking = ReportsTopicWatch(
            topic,
            draining.get(topic, settings.partitions),
            TopicWatch(settings, topic),
            open_store(settings).sources,
            handler,
            metrics,
            exit_now,
            driver.rejoin,
            draining=topic in draining,
        )
        start_thread(f"topic-watch {topic}", partial(looking.run, stop), exit_now)


def _stopping() -> threading.Event:
    """Return what is set by SIGTERM or SIGINT."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    return stopping


def _serve_metrics(settings: Settings, metrics: WorkerMetrics) -> WSGIServer:
    try:
        server, _ = start_http_server(settings.worker_port, settings.worker_bind, registry=metrics.registry)
    except OSError as error:
        raise ConfigurationError(
            f"cannot serve metrics on {settings.worker_bind}:{settings.worker_port} ({error.strerror}); if another "
            "worker uses the port, give this one its own with --worker-port or THAW_WORKER_PORT (0: a free one)"
        ) from error
    logger.info("worker %s; metrics on http://%s:%d", settings.instance_id, settings.worker_bind, server.server_port)
    return server


def _applier(
    settings: Settings,
    store: RedisStore,
    surveys: SurveyFolder,
    publisher: Publisher,
    metrics: WorkerMetrics,
    stopping: threading.Event,
    draining: Mapping[str, int],
) -> Applier:
    sender = DeadLetterSender(
        publisher,
        settings.dead_letters_topic,
        metrics,
        patience_seconds=settings.patience_seconds,
        stopping=stopping.is_set,
    )
    return Applier(
        store,
        surveys,
        sender,
        partitions=settings.partitions,
        draining=draining,
        cache_bytes=settings.cache_mib << 20,
        patience_seconds=settings.patience_seconds,
        stopping=stopping.is_set,
        metrics=metrics,
    )


class Patience:
    """How long a starting worker waits for its services, all of them together.

    Args:
        seconds: the time for all waits, from now on.
        stopping: ends every wait.
    """

    def __init__(self, seconds: float, stopping: threading.Event) -> None:
        self._seconds, self._limit, self._stopping = seconds, time.monotonic() + seconds, stopping

    def wait_for(
        self, what: str, probe: Callable[[], str | None], *, errors: type[Exception] | tuple[type[Exception], ...]
    ) -> None:
        """Call `probe` with backoff until it returns None; a returned text or an error is logged as the reason.

        The process ends with status 75 when it is told to stop, or no time is left.
        """
        state = logs.StateLog(logger, what)
        attempt = 0
        while not self._stopping.is_set():
            try:
                reason = probe()
            except errors as error:
                reason = str(error)
            if reason is None:
                state.up()
                return
            state.down(reason)
            if time.monotonic() >= self._limit:
                exit_now(f"{what} was not ready within THAW_PATIENCE_SECONDS={self._seconds:g}: {reason}")
            self._stopping.wait(_BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)])
            attempt += 1
        exit_now(f"stopped while waiting for {what}")


def _check_store(settings: Settings, store: RedisStore, patience: Patience) -> None:
    warnings: list[str] = []

    def probe() -> None:
        warnings[:] = store.durability_warnings()

    patience.wait_for("Redis", probe, errors=StoreUnavailableError)
    for warning in warnings:
        logger.warning("Redis: %s", warning)
    if warnings and settings.strict:
        raise ConfigurationError("THAW_STRICT=1 refuses this Redis: " + "; ".join(warnings))


def _check_topics(settings: Settings, surveys: SurveyFolder, patience: Patience) -> dict[str, int]:
    """Wait for the topics; return those that are to be drained, with the number of their partitions."""
    topics = Topics(settings, timeout_seconds=5.0)
    draining: dict[str, int] = {}

    def probe() -> str | None:
        tiers = tier_topics(settings, surveys.surveys(system_clock()))
        writes = [settings.estimates_topic, *tiers, settings.dead_letters_topic]
        found = topics.partitions(settings.reports_topic, *writes)
        missing = [name for name in (settings.reports_topic, *writes) if name not in found]
        if missing:
            return f"no topic {', '.join(missing)}; create them with `thaw topics create`"
        if found[settings.reports_topic] != settings.partitions:
            raise ConfigurationError(
                f"{settings.reports_topic} has {found[settings.reports_topic]} partitions, THAW_PARTITIONS is "
                f"{settings.partitions}; set it to what the topic has, on producers and workers alike"
            )
        draining.clear()
        old = settings.draining_topic
        if old in found:
            draining[old] = found[old]
        reads = [settings.reports_topic, *draining]
        topics.check_rights(reads=reads, writes=writes, group=f"{settings.prefix}{settings.group}")
        return None

    patience.wait_for("Kafka", probe, errors=OutsideError)
    if settings.draining_topic is not None and not draining:
        logger.warning(
            "there is no topic %s, so nothing is left to drain; unset THAW_DRAINING", settings.draining_topic
        )
    return draining


def _take_sources(
    settings: Settings, store: RedisStore, surveys: SurveyFolder, draining: Iterable[str], patience: Patience
) -> ReportsTopic:
    """Check that the stored offsets are those of the topics that are read; return where reports come from.

    Raises:
        ConfigurationError: they are those of another cluster.
    """
    shards = max([DEFAULT_SHARDS, *(survey.shards for survey in surveys.surveys(system_clock()))])
    topic = settings.reports_topic
    watches = {name: TopicWatch(settings, name) for name in (topic, *draining)}
    found = ReportsTopic(topic, settings.partitions)

    def probe() -> None:
        nonlocal found
        states = {name: state for name, watch in watches.items() if (state := watch.look()) is not None}
        for name, state in states.items():
            take_source(store.sources, settings, name, state, shards=shards)
            if name != topic:
                store.sources.share(topic, source_of(states[topic]), source_of(state))
        if topic in states:
            since_ms = counted_since(store, settings, states[topic])
            found = ReportsTopic(topic, settings.partitions, states[topic].topic_id, since_ms)

    try:
        patience.wait_for("Kafka or Redis", probe, errors=(OutsideError, StoreUnavailableError))
    except OtherClusterError as error:
        raise ConfigurationError(str(error)) from error
    return found
