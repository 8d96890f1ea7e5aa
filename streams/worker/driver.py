"""The Faust driver: brings fetch batches to the handler and acknowledges them when it returns.

An exception that Faust handled by itself would lose records, so a failure that retrying cannot cure ends the process
before the acknowledgement; the next process reads the same records again.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final, NoReturn

import faust
from faust.types import TP

from producers.clock import system_clock
from streams.settings import Settings
from streams.worker.faust_batches import BatchApp
from streams.worker.faust_connection import faust_credentials
from streams.worker.handler import BatchHandler
from streams.worker.retry import EXIT_RESTART, RestartRequired

logger = logging.getLogger(__name__)

MAX_BATCHES: Final = 8
"""Fetch batches that are folded at once. More: fewer round trips to Redis, but folding delays a rebalance for longer,
and this many fetches lie in memory. Fewer: more round trips."""
GATHER_SECONDS: Final = 0.1
MAX_FETCH_BYTES: Final = 4 << 20
MAX_FETCH_RECORDS: Final = 20_000
"""Small records cost Python's time one by one. More: rebalances and commits are delayed for seconds."""
VERIFY_SECONDS: Final = 5.0
"""How often a worker checks that stored offsets did not regress. A partition with traffic finds out by its next batch;
one without would be counted short for ever. Shorter: 64 small scripts that often; longer: counts stay short longer."""


def exit_now(reason: object, *, status: int = EXIT_RESTART) -> NoReturn:
    """End the process at once, without acknowledging anything.

    A clean shutdown of Faust would wait for fetch batches that will never be acknowledged.
    """
    logger.critical(
        "exiting with status %d: %s; safe to restart, the missing records are read again from Kafka", status, reason
    )
    logging.shutdown()
    sys.stderr.flush()
    os._exit(status)


def build_app(settings: Settings, handler: BatchHandler) -> BatchApp:
    """Return the Faust app of a worker: it connects Faust to the handler and decides nothing itself."""

    async def start_offsets(committed: Mapping[TP, int | None]) -> dict[TP, int]:
        topic = settings.reports_topic
        try:
            starts = handler.start_at({tp.partition: offset for tp, offset in committed.items() if tp.topic == topic})
        except RestartRequired as error:
            exit_now(error)
        if starts:
            logger.info("assigned %s", ", ".join(f"{topic}[{p}]@{offset}" for p, offset in sorted(starts.items())))
        return {TP(topic, partition): offset for partition, offset in starts.items()}

    app = BatchApp(f"{settings.prefix}{settings.group}", start_offsets=start_offsets, **_options(settings))

    async def count(stream: Any) -> None:
        async for events in stream.noack_take(MAX_BATCHES, within=GATHER_SECONDS):
            try:
                handler.handle([event.value for event in events])
            except RestartRequired as error:
                exit_now(error)
            except Exception:
                logger.exception("a batch could not be counted")
                exit_now("a batch could not be counted", status=1)
            for event in events:
                event.ack()
            # Folding blocks the loop; let rebalances and timers run between two batches.
            await asyncio.sleep(0)

    app.agent(app.topic(settings.reports_topic), name="count")(count)

    async def watch_lag() -> None:
        partitions = {TP(settings.reports_topic, partition) for partition in handler.assigned}
        handler.watch_lag({tp.partition: lag for tp, lag in app.lags(partitions).items()}, system_clock())

    app.timer(1.0, name="lag")(watch_lag)

    async def verify() -> None:
        try:
            handler.verify()
        except RestartRequired as error:
            exit_now(error)

    app.timer(VERIFY_SECONDS, name="verify")(verify)
    return app


def _options(settings: Settings) -> dict[str, Any]:
    return {
        "broker": ";".join(f"kafka://{server}" for server in settings.brokers),
        "broker_credentials": faust_credentials(settings),
        "consumer_group_instance_id": settings.instance_id,
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": MAX_FETCH_BYTES,
        "broker_max_poll_records": MAX_FETCH_RECORDS,
        "broker_session_timeout": 10.0,
        "broker_heartbeat_interval": 2.0,
        "broker_rebalance_timeout": 15.0,
        "broker_commit_interval": 1.0,
        "stream_buffer_maxsize": 2 * MAX_BATCHES,
        "stream_wait_empty": True,
        "topic_allow_declare": False,
        "topic_disable_leader": True,
        "web_enabled": False,
        "worker_redirect_stdouts": False,
        "autodiscover": False,
    }


class FaustProcess(faust.Worker):
    """Faust's worker, stopped by real signal handlers.

    asyncio's own run in the loop, which is blocked while the applier waits for Redis.
    """

    def __init__(self, app: BatchApp, stopping: threading.Event, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(app, loop=loop, quiet=True, override_logging=False, redirect_stdouts=False)
        self.spinner = None
        self._asked_to_stop = stopping

    def install_signal_handlers(self) -> None:
        """Handle SIGTERM and SIGINT: the first stops cleanly, the second exits at once."""

        def handle(number: int, _frame: FrameType | None) -> None:
            if self._asked_to_stop.is_set():
                exit_now("second stop signal")
            self._asked_to_stop.set()
            self.loop.call_soon_threadsafe(self._schedule_shutdown, signal.Signals(number))

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)
        # A signal between the last check and here would otherwise be lost.
        if self._asked_to_stop.is_set():
            exit_now("stopped while starting")
