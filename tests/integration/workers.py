"""A worker on real services for tests: its topics, its process, and reports to feed it."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from numpy.typing import NDArray

from estimators.tally import Tally
from producers.clock import system_clock
from producers.survey.survey import Survey, parse_survey
from producers.wire.transport import frames_of
from streams.connections import librdkafka_options
from streams.kafka.topics import Topics, wanted
from streams.local.process import Child, free_ports
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.contract import StoreError
from streams.store.redis import RedisStore
from streams.store.shape import Shape
from tests.support.deadline import END_SECONDS, until
from tests.support.surveys import survey_text

MINUTE_MS = 60_000
THAW = (sys.executable, "-m", "streams.cli")


@dataclass(frozen=True)
class Reports:
    """Made-up answers of many devices in one window, one per device."""

    survey: Survey
    window_ms: int
    tokens: NDArray[np.uint8]
    answers: NDArray[np.uint8]
    rungs: NDArray[np.uint8]

    @classmethod
    def draw(cls, known: Survey, count: int, *, seed: int, window_ms: int) -> "Reports":
        rng = np.random.default_rng(seed)
        return cls(
            known,
            window_ms,
            rng.integers(0, 256, size=(count, 16), dtype=np.uint8),
            rng.integers(0, len(known.mechanism.labels), size=count).astype(np.uint8),
            rng.integers(0, known.mechanism.rungs, size=count).astype(np.uint8),
        )

    def tally(self) -> Tally:
        """Count without any of the project's folding: one device, one answer."""
        tally = Tally.empty(self.survey.mechanism.rungs, 1, len(self.survey.mechanism.labels))
        for rung in range(len(tally.users)):
            answers = self.answers[self.rungs == rung]
            tally.counts[rung, 0] = np.bincount(answers, minlength=tally.counts.shape[2])
            tally.users[rung, 0] = len(answers)
        return tally

    def messages(self, partitions: int, *, limit_bytes: int = 1 << 20) -> dict[int, list[bytes]]:
        return frames_of(
            self.survey,
            self.window_ms,
            system_clock(),
            self.tokens,
            self.answers,
            self.rungs,
            partitions=partitions,
            limit_bytes=limit_bytes,
        )


def newest_open_window(survey: Survey) -> int:
    """Return the start of the newest window whose rungs are all open: reports of any rung count."""
    return survey.windows.latest(system_clock() - survey.windows.size_ms - survey.opens_ms[-1])


class System:
    """Topics, store and survey of one test on shared real services."""

    def __init__(
        self,
        kafka: str,
        redis_url: str,
        prefix: str,
        folder: Path,
        *,
        text: str | None = None,
        redis_ca: str = "",
    ) -> None:
        text = survey_text(retention='retention = "30m"') if text is None else text
        self.survey = parse_survey(text, "colour.toml")
        (folder / "colour.toml").write_text(text)
        self.settings = Settings(
            kafka=kafka, redis=redis_url, redis_ca=redis_ca, prefix=prefix, surveys=str(folder), tick_ms=200
        )
        self.folder = folder
        self.store: RedisStore = open_store(self.settings)
        self.window_ms = newest_open_window(self.survey)
        self._producer = Producer(librdkafka_options(self.settings) | {"message.max.bytes": 2 << 20})
        self._workers = 0

    def create_topics(self) -> None:
        Topics(self.settings).create(wanted(self.settings, [self.survey]))

    def reports(self, count: int, *, seed: int = 1) -> Reports:
        return Reports.draw(self.survey, count, seed=seed, window_ms=self.window_ms)

    def produce(self, messages: Mapping[int, Sequence[bytes]]) -> None:
        """Send and wait for the broker."""
        for partition, values in messages.items():
            for value in values:
                self._producer.produce(self.settings.reports_topic, value, partition=partition)
        assert self._producer.flush(END_SECONDS) == 0

    @contextmanager
    def worker(
        self, *, instance: str = "one", port: int | None = None, command: Sequence[str] = THAW, **settings: Any
    ) -> Iterator[Child]:
        """Run `thaw worker` in a process of its own; it is killed at the end unless the test stopped it."""
        self._workers += 1
        shown = self.settings
        env = {
            "THAW_KAFKA": shown.kafka,
            "THAW_REDIS": shown.redis,
            "THAW_REDIS_CA": shown.redis_ca,
            "THAW_PREFIX": shown.prefix,
            "THAW_SURVEYS": shown.surveys,
            "THAW_TICK_MS": str(shown.tick_ms),
            "THAW_WORKER_PORT": str(port or free_ports(1)[0]),
            "THAW_INSTANCE": instance,
            **{f"THAW_{name.upper()}": str(value) for name, value in settings.items()},
        }
        child = Child(
            f"worker {instance}",
            [*command, "worker"],
            log=self.folder / f"worker-{self._workers}.log",
            env=env,
        )
        try:
            yield child
        finally:
            child.kill()

    def tally(self) -> Tally:
        return self.store.estimates.tally(self.survey.id, self.window_ms, self.survey.shards, Shape.of(self.survey))

    def wait_for_tally(self, expected: Tally, worker: Child, *, seconds: float = 60) -> None:
        """Wait for exactly this tally; a worker that ends fails the test at once."""

        def reached() -> bool:
            worker.check()
            try:
                return self.tally() == expected
            except StoreError:
                return False  # damaged by the test, and not repaired yet

        until(reached, seconds, f"a tally of {expected.total_users} users")

    def read(self, topic: str, count: int, *, seconds: float = 30) -> list[Message]:
        """Return the first `count` messages of a topic, from all partitions."""
        consumer = Consumer(librdkafka_options(self.settings) | {"group.id": "unused", "enable.auto.commit": False})
        try:
            partitions = Topics(self.settings).partitions()[topic]
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            found: list[Message] = []

            def more() -> bool:
                message = consumer.poll(0.2)
                if message is not None and message.error() is None:
                    found.append(message)
                return len(found) >= count

            until(more, seconds, f"{count} messages in {topic}", poll_seconds=0)
            return found
        finally:
            consumer.close()


def headers(message: Message) -> dict[str, bytes]:
    """Return the headers of a message."""
    return dict(cast(list[tuple[str, bytes]], message.headers() or []))


def run_thaw(
    settings: Settings, *arguments: str, command: Sequence[str] = THAW, **env: str
) -> "subprocess.CompletedProcess[str]":
    """Run a command of the command line to its end."""
    told = {
        "THAW_KAFKA": settings.kafka,
        "THAW_REDIS": settings.redis,
        "THAW_REDIS_CA": settings.redis_ca,
        "THAW_PREFIX": settings.prefix,
        "THAW_SURVEYS": settings.surveys,
    }
    return subprocess.run(
        [*command, *arguments],
        env={**os.environ, **told, **env},
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
    )
