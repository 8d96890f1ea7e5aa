"""From Kafka to applied counts: one worker, beside a plain Faust agent and beside merely reading the topic.

Real Apache Kafka and Redis on free loopback ports. All messages are in Kafka beforehand: those of a simulated fleet
whose windows are over, one topic with up to 1,000 reports a message and one with a single report each. In every round
each contestant reads its topic from the start with an empty store; the best round of each counts, so that a machine
that is busy with something else disturbs all alike.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import redis
from aiokafka import AIOKafkaConsumer, TopicPartition
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # no __all__

from estimators.simulation.simulator import simulator_of
from producers.clock import system_clock
from producers.simulation.fleet import BLOCK, BlockWindow, Columns, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey, parse_survey
from producers.wire.transport import frames_of
from streams.connections import librdkafka_options
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child
from streams.local.redis import Redis
from streams.local.service import StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from streams.store.connect import open_store
from streams.worker.driver import MAX_FETCH_BYTES
from tests.bench.goals import Result
from tests.support.deadline import until

ROUNDS = 4
REPORTS_PER_MESSAGE = 1_000
# Enough that a worker is busy for seconds; the blocks of devices of one window are put into frames together.
LARGE_BLOCKS, LARGE_WINDOWS = 16, 3
SINGLE_BLOCKS, SINGLE_WINDOWS = 1, 3
NAIVE_REPORTS = 10_000

_DEADLINE_SECONDS = 180.0
_POLL_SECONDS = 0.05
_SURVEY = f"""
name = "bench"
question = "Which of a hundred?"
values = {json.dumps([f"value {number}" for number in range(100)])}
shards = 64

[mechanism]
name = "grr"

[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0, 4.0]
opens = ["0s", "10s", "20s", "30s"]
jitter = "0s"

[window]
size = "1m"
retention = "1d"

[budget]
lifetime = 1000
"""


def results() -> Iterator[Result]:
    """Measure all contestants in turns."""
    with Supervisor() as supervisor:
        bench = _Bench.start(supervisor)
        single = bench.topic("single", SINGLE_BLOCKS, SINGLE_WINDOWS, per_message=1)
        large = bench.topic("large", LARGE_BLOCKS, LARGE_WINDOWS, per_message=REPORTS_PER_MESSAGE)
        naive = bench.naive_topic("naive", NAIVE_REPORTS)
        contestants: dict[str, Callable[[], float]] = {
            "plain Faust": lambda: bench.naive(naive, NAIVE_REPORTS),
            "drain": lambda: bench.drain(large),
            "pipeline-1000": lambda: bench.worker(large),
            "pipeline-1": lambda: bench.worker(single),
        }
        best = dict.fromkeys(contestants, 0.0)
        for number in range(ROUNDS):
            for name, measure in contestants.items():
                rate = measure()
                print(f"round {number + 1} of {ROUNDS}: {name} {rate:,.0f} reports/s", file=sys.stderr)
                best[name] = max(best[name], rate)
    faust, drain, thousand, one = (rate / 1e6 for rate in best.values())
    yield Result("pipeline-1000", thousand, "M/s", "plain Faust", faust, least_ratio=2_000)
    yield Result("pipeline-1000-of-drain", thousand, "M/s", "raw aiokafka drain", drain, least_ratio=0.3)
    yield Result("pipeline-1", one, "M/s", "plain Faust", faust, least_ratio=100)


@dataclass(frozen=True)
class _Topic:
    """A topic of reports, in a namespace of its own, and what is in it."""

    settings: Settings
    reports: int
    messages: int


@dataclass
class _Bench:
    """The parts, the survey, and one method per contestant; each returns reports per second."""

    supervisor: Supervisor
    kafka: str
    redis_url: str
    surveys: Path
    survey: Survey
    runs: int = 0

    @classmethod
    def start(cls, supervisor: Supervisor) -> _Bench:
        kafka = supervisor.add(ApacheKafka(folder=supervisor.folder / "kafka"))
        server = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        surveys = supervisor.folder / "surveys"
        surveys.mkdir()
        (surveys / "bench.toml").write_text(_SURVEY)
        return cls(supervisor, kafka.address, server.url, surveys, parse_survey(_SURVEY, "bench.toml"))

    def topic(self, name: str, blocks: int, windows: int, *, per_message: int) -> _Topic:
        """Fill a topic with what a fleet sent for windows that are over, with all rungs released."""
        settings = Settings(kafka=self.kafka, redis=self.redis_url, surveys=str(self.surveys), prefix=f"{name}.")
        Topics(settings).create(wanted(settings, [self.survey]))
        reports = messages = 0
        for columns, window_ms in _releases(self.survey, blocks, windows):
            found = frames_of(
                self.survey,
                window_ms,
                system_clock(),
                columns.tokens,
                columns.answers,
                columns.rungs,
                partitions=settings.partitions,
                limit_bytes=self.survey.layout.frame_bytes(per_message),
            )
            # Frames of one shard do not come one after the other from a fleet.
            for values in found.values():
                np.random.default_rng(window_ms).shuffle(values)
            _produce(settings, settings.reports_topic, found)
            reports += len(columns.rungs)
            messages += sum(map(len, found.values()))
        return _Topic(settings, reports, messages)

    def naive_topic(self, name: str, reports: int) -> str:
        """Fill a topic with one report a message, as JSON."""
        settings = Settings(kafka=self.kafka)
        admin = AdminClient(librdkafka_options(settings))
        admin.create_topics([NewTopic(name, settings.partitions, 1)])[name].result()
        columns, window_ms = next(_releases(self.survey, 1, 1))
        values = [
            json.dumps({"window_ms": window_ms, "token": bytes(token).hex(), "rung": rung, "answer": answer}).encode()
            for token, rung, answer in zip(
                columns.tokens[:reports],
                columns.rungs[:reports].tolist(),
                columns.answers[:reports].tolist(),
                strict=True,
            )
        ]
        parts = settings.partitions
        _produce(settings, name, {part: values[part::parts] for part in range(parts)})
        return name

    def worker(self, topic: _Topic) -> float:
        """Run `thaw worker` until every report is applied."""
        self._flush()
        store = open_store(topic.settings)
        self.runs += 1
        child = self._run(
            [sys.executable, "-m", "streams.cli", "worker"],
            {
                "THAW_KAFKA": self.kafka,
                "THAW_REDIS": self.redis_url,
                "THAW_SURVEYS": str(self.surveys),
                "THAW_PREFIX": topic.settings.prefix,
                "THAW_GROUP": f"group-{self.runs}",
                "THAW_WORKER_PORT": "0",
                "THAW_LOG_FORMAT": "json",
            },
        )
        rate = self._rate(child, lambda: store.log.counters(self.survey.id).applied, topic.reports)
        store.close()
        return rate

    def naive(self, topic: str, reports: int) -> float:
        """Run the plain agent until every report is counted."""
        self._flush()
        self.runs += 1
        folder = self.supervisor.folder / f"naive-{self.runs}"
        client = redis.Redis.from_url(self.redis_url)
        child = self._run(
            [sys.executable, "-m", "tests.bench.naive_worker", self.kafka, self.redis_url, topic, str(folder)], {}
        )

        def counted() -> int:
            return sum(int(number) for key in client.keys(f"{topic}:*") for number in client.hvals(key))

        rate = self._rate(child, counted, reports)
        client.close()
        return rate

    def drain(self, topic: _Topic) -> float:
        """Read the topic with aiokafka, as large fetches as a worker's, and do nothing with it."""
        return topic.reports / asyncio.run(_drain(self.kafka, topic))

    def _flush(self) -> None:
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()

    def _run(self, argv: Sequence[str], env: Mapping[str, str]) -> Child:
        return self.supervisor.run(f"contestant-{self.runs}", argv, order=StopOrder.WORKER, env=env)

    def _rate(self, child: Child, counted: Callable[[], int], reports: int) -> float:
        """Return the rate between the first look that finds something counted and the one that finds all; stop it.

        What was counted at the first look is left out, as is the time before: start-up, joining the group.
        """

        def look() -> int:
            child.check()
            return counted()

        first = until(look, _DEADLINE_SECONDS, "a first counted report", poll_seconds=_POLL_SECONDS)
        start_seconds = time.perf_counter()
        until(lambda: look() >= reports, _DEADLINE_SECONDS, f"{reports} reports", poll_seconds=_POLL_SECONDS)
        spent = time.perf_counter() - start_seconds
        child.kill()
        self.supervisor.forget(child)
        return (reports - first) / spent


def _releases(survey: Survey, blocks: int, windows: int) -> Iterator[tuple[Columns, int]]:
    """Yield what a fleet sends, window after window and rung after rung, all of it long over."""
    step_ms = survey.windows.step_ms
    first_ms = survey.windows.latest(system_clock()) - (windows + 2) * step_ms
    shares = falling_shares(simulator_of(survey.mechanism).kinds)
    plan = Plan(survey, blocks * BLOCK, scenario_named("steady"), 1, shares, first_ms)
    for window_ms in range(first_ms, first_ms + windows * step_ms, step_ms):
        parts = [BlockWindow(plan, window_ms, block) for block in range(plan.blocks)]
        for rung in range(survey.mechanism.rungs):
            until_ms = survey.opening_ms(window_ms, rung) + survey.jitter_ms
            if rung == 0:
                until_ms = survey.windows.end(window_ms) - 1
            taken = [part.columns(part.take(until_ms)) for part in parts]
            yield Columns(*map(np.concatenate, zip(*taken, strict=True))), window_ms


def _produce(settings: Settings, topic: str, messages: Mapping[int, Sequence[bytes]]) -> None:
    producer = Producer(
        librdkafka_options(settings)
        | {"linger.ms": 50, "batch.size": 1 << 18, "message.max.bytes": 2 << 20, "queue.buffering.max.messages": 10**7}
    )
    for partition, values in messages.items():
        for value in values:
            producer.produce(topic, value, partition=partition)
    left = producer.flush(_DEADLINE_SECONDS)
    if left:
        raise AssertionError(f"expected Kafka to take all messages; {left} are left")


async def _drain(kafka: str, topic: _Topic) -> float:
    """Return how long it takes to read every message."""
    settings = topic.settings
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka,
        group_id=None,
        client_id=secrets.token_hex(4),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=MAX_FETCH_BYTES,
    )
    await consumer.start()
    try:
        consumer.assign([TopicPartition(settings.reports_topic, part) for part in range(settings.partitions)])
        start_seconds = time.perf_counter()
        messages = 0
        while messages < topic.messages:
            messages += sum(map(len, (await consumer.getmany(timeout_ms=1_000)).values()))
        return time.perf_counter() - start_seconds
    finally:
        await consumer.stop()
