"""The worker: Faust brings fetch batches, the applier counts them, a thread turns counts into estimates.

The order of side effects for some fetch batches, each of which may be repeated without harm:

1. check that no fetch batch before it is missing;
2. `Applier.process`: decode, send dead letters and wait for the broker, fold, apply with the stamp check, mark windows;
3. acknowledge the fetch batches to Faust, which commits their offsets.

Any failure that retrying cannot cure ends the process with status 75 before step 3, so nothing is lost: whoever starts
it again reads the same records again. An exception that Faust handled by itself would lose them.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn

import faust
import numpy as np
from faust.types import TP
from prometheus_client import start_http_server

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams import logs
from streams.connections import faust_credentials, open_redis, open_store
from streams.kafka.messages import FetchBatch, Outgoing
from streams.kafka.publisher import Publisher
from streams.kafka.topics import TopicError, Topics
from streams.metrics import WorkerMetrics, worker_metrics
from streams.settings import Settings
from streams.store.contract import StoreUnavailableError
from streams.store.heartbeats import Heartbeats, start_beating
from streams.windows.latency import Latencies
from streams.windows.recompute import Recomputer
from streams.worker.applier import EXIT_RESTART, Applier, RestartRequired
from streams.worker.dead_letters import DeadLetterSender
from streams.worker.faust_batches import BatchApp
from streams.worker.fold import warm_up

logger = logging.getLogger(__name__)

# Chunks that are folded at once. More: fewer round trips to Redis, but a batch holds up a rebalance for longer, and
# this many fetches lie in memory. Fewer: more round trips.
MAX_BATCHES = 8
GATHER_SECONDS = 0.1
MAX_FETCH_BYTES = 4 << 20
# Small records cost Python's time one by one: more of them at once would hold up rebalances and commits for seconds.
MAX_FETCH_RECORDS = 20_000
# How often a worker asks whether Redis went back in time. A partition with traffic finds out by its next batch; one
# that rests would be counted short for ever. Shorter: 64 small scripts that often; longer: counts are short for longer.
VERIFY_SECONDS = 5.0
_BACKOFF_SECONDS = (0.1, 0.2, 0.5, 1.0, 2.0)
_PUBLISH_SECONDS = 10.0
_STOP_SECONDS = 5.0
# New objects before Python looks for cycles among them. More: cycles hold their memory for longer. Fewer: more looks.
_GARBAGE_THRESHOLD = 100_000


def leave(reason: object, *, status: int = EXIT_RESTART) -> NoReturn:
    """End the process at once, without acknowledging anything.

    A clean shutdown of Faust would wait for fetch batches that will never be acknowledged.
    """
    logger.critical("leaving with status %d: %s; start me again, nothing is lost", status, reason)
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


class BatchHandler:
    """Feeds fetch batches to the applier and keeps count of what was fed. Its callers run in the main thread."""

    def __init__(self, settings: Settings, applier: Applier, metrics: WorkerMetrics, latencies: Latencies) -> None:
        self._settings, self._applier, self._metrics, self._latencies = settings, applier, metrics, latencies
        self._next: dict[int, int] = {}

    @property
    def assigned(self) -> frozenset[int]:
        """The partitions of the last assignment."""
        return frozenset(self._next)

    def start_at(self, committed: Mapping[int, int | None]) -> dict[int, int]:
        """Return where to start reading each partition of a new assignment.

        Raises:
            RestartRequired: the store did not answer in time.
        """
        topic = self._settings.reports_topic
        # Faust revokes everything at every rebalance. What comes back at once keeps its tables: stamps guard them.
        gone = self._next.keys() - committed.keys()
        self._applier.revoked(topic, gone)
        starts = self._applier.assigned(topic, committed)
        self._next = dict(starts)
        for partition in gone:
            self._metrics.lag.remove(str(partition))
        return self._next.copy()

    def handle(self, batches: Sequence[FetchBatch]) -> None:
        """Count all records of these fetch batches; returns when they are in the store.

        Raises:
            RestartRequired: they cannot be counted now, or a fetch batch is missing.
        """
        for batch in batches:
            expected = self._next.get(batch.partition)
            if expected is not None and batch.start > expected:
                raise RestartRequired(
                    f"{batch.topic}[{batch.partition}]: records {expected} to {batch.start - 1} were fetched but "
                    "never handed over"
                )
            if expected is not None:
                self._next[batch.partition] = max(expected, batch.next_offset)
        with self._metrics.batch_seconds.time():
            applied = self._applier.process(batches)
        now_ms = system_clock()
        self._metrics.records.inc(sum(len(batch.records) for batch in batches))
        self._metrics.reports.inc(applied.reports)
        self._metrics.last_batch.set(now_ms / 1_000)
        for window, moments in applied.frames_sent_ms.items():
            sent_ms, frames = np.unique(moments, return_counts=True)
            self._latencies.applied(window, zip(sent_ms.tolist(), frames.tolist(), strict=True), now_ms)

    def verify(self) -> None:
        """Make sure that the store still has what was counted, also in partitions that nothing comes from.

        Raises:
            RestartRequired: it has not, or did not answer in time.
        """
        self._applier.verify()


def build_app(settings: Settings, handler: BatchHandler, metrics: WorkerMetrics) -> BatchApp:
    """Return the Faust app of a worker. Nothing in it decides anything: it wires Faust to the handler."""

    async def start_offsets(committed: Mapping[TP, int | None]) -> dict[TP, int]:
        topic = settings.reports_topic
        try:
            starts = handler.start_at({tp.partition: offset for tp, offset in committed.items() if tp.topic == topic})
        except RestartRequired as error:
            leave(error)
        if starts:
            logger.info("assigned %s", ", ".join(f"{topic}[{p}]@{offset}" for p, offset in sorted(starts.items())))
        return {TP(topic, partition): offset for partition, offset in starts.items()}

    app = BatchApp(
        f"{settings.prefix}{settings.group}",
        start_offsets=start_offsets,
        broker=";".join(f"kafka://{server}" for server in settings.brokers),
        broker_credentials=faust_credentials(settings),
        consumer_group_instance_id=settings.instance_id,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=MAX_FETCH_BYTES,
        broker_max_poll_records=MAX_FETCH_RECORDS,
        broker_session_timeout=10.0,
        broker_heartbeat_interval=2.0,
        broker_rebalance_timeout=15.0,
        broker_commit_interval=1.0,
        stream_buffer_maxsize=2 * MAX_BATCHES,
        stream_wait_empty=True,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        worker_redirect_stdouts=False,
        autodiscover=False,
    )

    async def count(stream: Any) -> None:
        async for events in stream.noack_take(MAX_BATCHES, within=GATHER_SECONDS):
            try:
                handler.handle([event.value for event in events])
            except RestartRequired as error:
                leave(error)
            except Exception:
                logger.exception("a batch could not be counted")
                leave("a batch could not be counted", status=1)
            for event in events:
                event.ack()
            # Folding blocks the loop; let rebalances and timers have their turn between two batches.
            await asyncio.sleep(0)

    app.agent(app.topic(settings.reports_topic), name="count")(count)

    async def watch_lag() -> None:
        partitions = {TP(settings.reports_topic, partition) for partition in handler.assigned}
        for tp, lag in app.lags(partitions).items():
            metrics.lag.labels(str(tp.partition)).set(lag)

    app.timer(1.0, name="lag")(watch_lag)

    async def verify() -> None:
        try:
            handler.verify()
        except RestartRequired as error:
            leave(error)

    app.timer(VERIFY_SECONDS, name="verify")(verify)
    return app


class _Process(faust.Worker):
    """Faust's worker, told by real signal handlers to stop.

    asyncio's own run in the loop, which is blocked while the applier waits for Redis.
    """

    def __init__(self, app: BatchApp, stopping: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(app, loop=loop, quiet=True, override_logging=False, redirect_stdouts=False)
        self.spinner = None
        self._told_to_stop = stopping

    def install_signal_handlers(self) -> None:
        """Handle SIGTERM and SIGINT: the first stops cleanly, the second leaves at once."""

        def handle(number: int, _frame: FrameType | None) -> None:
            if self._told_to_stop.is_set():
                leave("told to stop a second time")
            self._told_to_stop.set()
            self.loop.call_soon_threadsafe(self._schedule_shutdown, signal.Signals(number))

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)
        # Between the last look at it and here nobody would have noticed.
        if self._told_to_stop.is_set():
            leave("stopped while starting")


def wait_for(what: str, probe: Callable[[], str | None], stopping: threading.Event, *, errors: type[Exception]) -> None:
    """Call `probe` with backoff until it returns None; what it returns, or an error, is told as the reason to wait."""
    state = logs.StateLog(logger, what)
    attempt = 0
    while not stopping.is_set():
        try:
            reason = probe()
        except errors as error:
            reason = str(error)
        if reason is None:
            state.up()
            return
        state.down(reason)
        stopping.wait(_BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)])
        attempt += 1
    leave(f"stopped while waiting for {what}")


class ConfigurationError(RuntimeError):
    """This worker must not run like this; the message says what to change."""


def _check_store(settings: Settings, store: Any, stopping: threading.Event) -> None:
    warnings: list[str] = []

    def probe() -> None:
        warnings[:] = store.durability_warnings()

    wait_for("Redis", probe, stopping, errors=StoreUnavailableError)
    for warning in warnings:
        logger.warning("Redis: %s", warning)
    if warnings and settings.strict:
        raise ConfigurationError("THAW_STRICT=1 refuses this Redis: " + "; ".join(warnings))


def _check_topics(settings: Settings, stopping: threading.Event) -> None:
    topics = Topics(settings, timeout_seconds=5.0)

    def probe() -> str | None:
        found = topics.partitions()
        missing = [
            name
            for name in (settings.reports_topic, settings.estimates_topic, settings.dead_letters_topic)
            if name not in found
        ]
        if missing:
            return f"no topic {', '.join(missing)}; `thaw topics create` makes them"
        if found[settings.reports_topic] != settings.partitions:
            raise ConfigurationError(
                f"{settings.reports_topic} has {found[settings.reports_topic]} partitions, THAW_PARTITIONS says "
                f"{settings.partitions}; set it to what the topic has, on producers and workers alike"
            )
        return None

    wait_for("Kafka", probe, stopping, errors=TopicError)


def run_worker(settings: Settings) -> int:
    """Run a worker until SIGTERM or SIGINT; return the exit status."""
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stopping.set())
    metrics = worker_metrics()
    latencies = Latencies()
    surveys = SurveyFolder(settings.surveys_folder, system_clock())
    store = open_store(settings)
    _check_store(settings, store, stopping)
    _check_topics(settings, stopping)
    warm_up()
    publisher = Publisher(settings)
    office = DeadLetterSender(
        publisher,
        settings.dead_letters_topic,
        metrics,
        patience_seconds=settings.patience_seconds,
        stopping=stopping.is_set,
    )
    applier = Applier(
        store,
        surveys,
        office,
        partitions=settings.partitions,
        cache_bytes=settings.cache_mib << 20,
        patience_seconds=settings.patience_seconds,
        stopping=stopping.is_set,
    )

    def publish(messages: Sequence[Outgoing]) -> None:
        publisher.send(messages, wait_seconds=_PUBLISH_SECONDS, stopping=no_more_ticks.is_set)

    no_more_ticks = threading.Event()
    recomputer = Recomputer(
        open_store(settings), surveys, publish, settings.estimates_topic, metrics=metrics, latencies=latencies
    )
    ticks = threading.Thread(
        target=recomputer.run, args=(no_more_ticks, settings.tick_ms / 1_000), name="recompute", daemon=True
    )
    server, _ = start_http_server(settings.worker_port, settings.bind, registry=metrics.registry)
    logger.info("worker %s; metrics on http://%s:%d", settings.instance_id, settings.bind, server.server_port)
    ticks.start()
    board = Heartbeats(open_redis(settings), prefix=settings.prefix)
    beats = start_beating(board, settings.instance_id, metrics, no_more_ticks)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    handler = BatchHandler(settings, applier, metrics, latencies)
    process = _Process(build_app(settings, handler, metrics), stopping, loop)
    # Records come and go by the hundred thousand a second, none of them in a cycle. With the usual threshold of 700 the
    # search for cycles takes longer than all else that is done for a small record.
    gc.freeze()
    gc.set_threshold(_GARBAGE_THRESHOLD)
    status = 0
    try:
        process.execute_from_commandline()
    except SystemExit as end:
        status = EXIT_RESTART if end.code else 0
    # The counts of the last batches deserve their estimates; whatever is not done in time, another worker does.
    no_more_ticks.set()
    ticks.join(_STOP_SECONDS)
    beats.join(1.0)
    publisher.close(_STOP_SECONDS)
    server.shutdown()
    if status:
        logger.critical("Faust gave up; leaving with status %d; start me again, nothing is lost", status)
    else:
        logger.info("stopped")
    return status
