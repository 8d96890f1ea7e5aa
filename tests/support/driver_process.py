"""A process with a driver whose feed notes every call, one JSON object a line, and does what its plan says.

    python -m tests.support.driver_process FILE PLAN TOPIC...

Settings are variables. PLAN is a JSON object: `starts` (offset by topic:partition, instead of the committed one),
`fail` ("restart", "error" or "hang" at the first batch). At SIGUSR1 it asks for partitions again.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from streams import logs
from streams.kafka.messages import FetchBatch, Lag
from streams.settings import load_settings
from streams.worker.driver import Place
from streams.worker.drivers import make_driver
from streams.worker.retry import RestartRequired


class NotingFeed:
    """Notes what a driver brings."""

    def __init__(self, topics: Sequence[str], plan: Mapping[str, Any], file: Path) -> None:
        self.topics, self._plan, self._file = topics, plan, file
        self.assigned: frozenset[Place] = frozenset()
        self._thread = threading.get_ident()
        self._stamps: dict[str, bool] = {}

    def start_at(self, committed: Mapping[Place, int | None]) -> Mapping[Place, int]:
        self.assigned = frozenset(committed)
        self._note(call="start_at", committed={name(*place): offset for place, offset in committed.items()})
        starts = self._plan.get("starts", {})
        return {place: starts.get(name(*place), offset or 0) for place, offset in committed.items()}

    def handle(self, batches: Sequence[FetchBatch]) -> None:
        for batch in batches:
            self._note(
                call="handle",
                place=name(batch.topic, batch.partition),
                start=batch.start,
                next=batch.next_offset,
                missing=batch.missing,
                values=[(record.value or b"").decode() for record in batch.records],
                undecodable=[item.fault for item in batch.undecodable],
            )
        match self._plan.get("fail"):
            case "restart":
                raise RestartRequired("the plan says so")
            case "error":
                raise ValueError("the plan says so")
            case "hang":
                threading.Event().wait()

    def watch_lag(self, lags: Mapping[Place, Lag], now_ms: int) -> None:  # noqa: ARG002  # of the protocol
        self._note(call="lags", lags={name(*place): lag.records for place, lag in lags.items()})

    def verify(self) -> None:
        self._note(call="verify")

    def stamped(self, topic: str, by_broker: bool) -> None:
        if self._stamps.get(topic) is not by_broker:
            self._stamps[topic] = by_broker
            self._write(call="stamped", topic=topic, by_broker=by_broker)

    def _note(self, **line: Any) -> None:
        assert threading.get_ident() == self._thread, "a driver calls from one thread"
        self._write(**line)

    def _write(self, **line: Any) -> None:
        with self._file.open("a") as file:
            file.write(json.dumps(line) + "\n")


def name(topic: str, partition: int) -> str:
    """Return how a partition is named in plans and notes."""
    return f"{topic}:{partition}"


def main(file: str, plan: str, *topics: str) -> int:
    """Drive until SIGTERM."""
    settings = load_settings({})
    logs.configure("info", "human")
    feed = NotingFeed(topics, json.loads(plan), Path(file))
    driver = make_driver(settings, feed, threading.Event())
    signal.signal(signal.SIGUSR1, lambda *_: driver.rejoin())
    status = driver.run()
    if settings.driver == "plain":
        assert "faust" not in sys.modules
    return status


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
