"""The Faust driver: brings fetch batches to the feed and acknowledges them when it returns.

An exception that Faust handled by itself would lose records, so a failure that retrying cannot cure ends the process
before the acknowledgement; the next process reads the same records again.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

import faust
from faust.types import TP

from streams.kafka.membership import member_name
from streams.settings import Settings
from streams.worker.driver import (
    COMMIT_SECONDS,
    GATHER_SECONDS,
    HEARTBEAT_SECONDS,
    LAG_SECONDS,
    MAX_BATCHES,
    MAX_FETCH_BYTES,
    MAX_FETCH_RECORDS,
    REBALANCE_SECONDS,
    SESSION_SECONDS,
    VERIFY_SECONDS,
    ExitingFeed,
    Feed,
    exit_now,
)
from streams.worker.faust_batches import BatchApp
from streams.worker.faust_connection import faust_credentials
from streams.worker.retry import EXIT_RESTART


class FaustDriver:
    """Reads Kafka with Faust.

    Args:
        settings: the connection, the group and the name in it.
        feed: what counts.
        stopping: set when the worker is asked to stop.
    """

    def __init__(self, settings: Settings, feed: Feed, stopping: threading.Event) -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        self._app = _app(settings, ExitingFeed(feed))
        self._process = FaustProcess(self._app, stopping, loop)

    def run(self) -> int:
        """Run Faust until it ends; return the exit status."""
        try:
            self._process.execute_from_commandline()
        except SystemExit as end:
            return EXIT_RESTART if end.code else 0
        return 0

    def rejoin(self) -> None:
        """Ask the group for partitions again, from any thread."""
        self._app.rejoin()


def _app(settings: Settings, feed: ExitingFeed) -> BatchApp:
    """Return the Faust app of a worker: it connects Faust to the feed and decides nothing itself."""

    async def start_offsets(committed: Mapping[TP, int | None]) -> dict[TP, int]:
        starts = feed.start_at({(tp.topic, tp.partition): offset for tp, offset in committed.items()})
        return {TP(*place): offset for place, offset in starts.items()}

    app = BatchApp(
        f"{settings.prefix}{settings.group}",
        start_offsets=start_offsets,
        stamped=feed.stamped,
        **_options(settings, feed.topics),
    )

    async def count(stream: Any) -> None:
        async for events in stream.noack_take(MAX_BATCHES, within=GATHER_SECONDS):
            feed.handle([event.value for event in events])
            for event in events:
                event.ack()
            # Folding blocks the loop; let rebalances and timers run between two batches.
            await asyncio.sleep(0)

    app.agent(app.topic(*feed.topics), name="count")(count)

    async def watch_lag() -> None:
        feed.watch_lag(
            lambda places: {
                (tp.topic, tp.partition): lag for tp, lag in app.lags(TP(*place) for place in places).items()
            }
        )

    app.timer(LAG_SECONDS, name="lag")(watch_lag)

    async def verify() -> None:
        feed.verify()

    app.timer(VERIFY_SECONDS, name="verify")(verify)
    return app


def _options(settings: Settings, topics: Sequence[str]) -> dict[str, Any]:
    return {
        "broker": ";".join(f"kafka://{server}" for server in settings.brokers),
        "broker_credentials": faust_credentials(settings),
        "consumer_group_instance_id": member_name(settings, topics),
        "consumer_auto_offset_reset": "earliest",
        "consumer_max_fetch_size": MAX_FETCH_BYTES,
        "broker_max_poll_records": MAX_FETCH_RECORDS,
        "broker_session_timeout": SESSION_SECONDS,
        "broker_heartbeat_interval": HEARTBEAT_SECONDS,
        "broker_rebalance_timeout": REBALANCE_SECONDS,
        "broker_commit_interval": COMMIT_SECONDS,
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
