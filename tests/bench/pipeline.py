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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from producers.wire.layout import SCHEMA_HEADER
from producers.wire.transport import frames_of
from streams.connections import librdkafka_options
from streams.kafka.topics import Topics, wanted
from streams.local.kafka import ApacheKafka
from streams.local.process import Child
from streams.local.redis import Redis
from streams.local.service import Program, StopOrder
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from streams.store.connect import open_store
from streams.worker.driver import MAX_FETCH_BYTES
from tests.bench.engines.environments import ENGINES, counted_by
from tests.bench.goals import Measured, Result, Series, Spent
from tests.bench.processes import cpu_seconds
from tests.support.deadline import until

ROUNDS = 3
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


def results() -> Iterator[Measured]:
    """Measure all contestants in turns."""
    with Supervisor() as supervisor:
        bench = _Bench.start(supervisor)
        single = bench.topic("single", SINGLE_BLOCKS, SINGLE_WINDOWS, per_message=1)
        large = bench.topic("large", LARGE_BLOCKS, LARGE_WINDOWS, per_message=REPORTS_PER_MESSAGE)
        naive = bench.naive_topic("naive", NAIVE_REPORTS)
        contestants: dict[str, Callable[[], Run]] = {
            "plain Faust": lambda: bench.naive(naive, NAIVE_REPORTS),
            "drain": lambda: bench.drain(large),
            "pipeline-1000": lambda: bench.worker(large),
            "two workers": lambda: bench.worker(large, workers=2),
            "pipeline-1": lambda: bench.worker(single),
            "record by record": lambda: bench.worker(single, module="tests.bench.plain_worker"),
        }
        best: dict[str, Run] = {}
        for number in range(ROUNDS):
            for name, measure in contestants.items():
                run = measure()
                print(f"round {number + 1} of {ROUNDS}: {name} {run.rate:,.0f} reports/s", file=sys.stderr)
                best[name] = max(best.get(name, run), run, key=lambda one: one.rate)
        faust, drain, thousand, two, one, plain = best.values()
        yield Result("pipeline-1000", thousand.millions, "M/s", "plain Faust", faust.millions, least_ratio=2_000)
        yield Result(
            "pipeline-1000-of-drain", thousand.millions, "M/s", "raw aiokafka drain", drain.millions, least_ratio=0.35
        )
        ceiling = 1 / thousand.spent["worker"]
        yield Result(
            "pipeline-1000-of-ceiling",
            thousand.millions,
            "M/s",
            "a processor for itself, M per CPU-s",
            ceiling,
            least_ratio=0.5,
        )
        yield Result("pipeline-1", one.millions, "M/s", "plain Faust", faust.millions, least_ratio=100)
        yield Result("pipeline-1-walked", one.millions, "M/s", "record by record", plain.millions, least_ratio=3)
        costs = [1 / run.spent["worker"] for run in (one, plain)]
        yield Result("pipeline-1-cpu", costs[0], "M per CPU-s", "record by record", costs[1])
        yield Result("two-workers", two.millions, "M/s", "one worker", thousand.millions)
        yield Series("workers", "reports counted", [(1.0, thousand.millions), (2.0, two.millions)])
        yield Spent("1,000 reports a message", thousand.spent)
        yield Spent("a report a message", one.spent)
        total = sum(thousand.spent.values()) - thousand.spent["Kafka"]
        for engine, version in ENGINES.items():
            spent = bench.engine(engine, version)
            yield Result(f"engine-{engine}", 1 / total, "M per CPU-s", f"{engine} {version}", 1 / spent)


@dataclass(frozen=True)
class Run:
    """How fast a contestant was, in reports per second, and what it took.

    spent is processor time, in seconds for a million reports, by process.
    """

    rate: float
    spent: Mapping[str, float] = field(default_factory=dict)

    @property
    def millions(self) -> float:
        """Millions of reports per second."""
        return self.rate / 1e6


@dataclass(frozen=True)
class _Topic:
    """A topic of reports, in a namespace of its own, and what is in it."""

    settings: Settings
    reports: int
    messages: int


class _PatientKafka(ApacheKafka):
    """A broker that waits for the second worker of a group before it gives partitions to the first."""

    def _properties(self, data: Path) -> str:
        return super()._properties(data).replace("rebalance.delay.ms=0", "rebalance.delay.ms=3000")


@dataclass
class _Bench:
    """The parts, the survey, and one method per contestant; each returns reports per second."""

    supervisor: Supervisor
    kafka: str
    redis_url: str
    surveys: Path
    survey: Survey
    services: Mapping[str, Program]
    runs: int = 0

    @classmethod
    def start(cls, supervisor: Supervisor) -> _Bench:
        kafka = supervisor.add(_PatientKafka(folder=supervisor.folder / "kafka"))
        server = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        surveys = supervisor.folder / "surveys"
        surveys.mkdir()
        (surveys / "bench.toml").write_text(_SURVEY)
        services = {"Kafka": kafka, "Redis": server}
        return cls(supervisor, kafka.address, server.url, surveys, parse_survey(_SURVEY, "bench.toml"), services)

    def topic(self, name: str, blocks: int, windows: int, *, per_message: int, alone: bool = False) -> _Topic:
        """Fill a topic with what a fleet sent for windows that are over, with all rungs released.

        alone: whether each message is a record batch of its own, as one device sends it.
        """
        reports = messages = 0
        for settings, sent, found in self.sending(name, blocks, windows, per_message=per_message, alone=alone):
            topic_settings = settings
            reports += sent
            messages += found
        return _Topic(topic_settings, reports, messages)

    def sending(
        self, name: str, blocks: int, windows: int, *, per_message: int, alone: bool = False
    ) -> Iterator[tuple[Settings, int, int]]:
        """Create a topic and send rung after rung; yield after each the settings, and its reports and messages."""
        settings = Settings(kafka=self.kafka, redis=self.redis_url, surveys=str(self.surveys), prefix=f"{name}.")
        Topics(settings).create(wanted(settings, [self.survey]))
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
            _produce(settings, settings.reports_topic, found, alone=alone)
            yield settings, len(columns.rungs), sum(map(len, found.values()))

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

    def worker(self, topic: _Topic, *, workers: int = 1, module: str = "streams.cli") -> Run:
        """Run workers until every report is applied; `module` has the command line."""
        self._flush()
        store = open_store(topic.settings)
        self.runs += 1
        env = {
            "THAW_KAFKA": self.kafka,
            "THAW_REDIS": self.redis_url,
            "THAW_SURVEYS": str(self.surveys),
            "THAW_PREFIX": topic.settings.prefix,
            "THAW_GROUP": f"group-{self.runs}",
            "THAW_WORKER_PORT": "0",
            "THAW_LOG_FORMAT": "json",
        }
        children = [self._run([sys.executable, "-m", module, "worker"], env, str(i)) for i in range(workers)]
        run = self._measure(children, lambda: store.log.counters(self.survey.id).applied, topic.reports)
        store.close()
        return run

    def naive(self, topic: str, reports: int) -> Run:
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

        run = self._measure([child], counted, reports)
        client.close()
        return run

    def drain(self, topic: _Topic) -> Run:
        """Read the topic with aiokafka, as large fetches as a worker's, and do nothing with it."""
        return Run(topic.reports / asyncio.run(_drain(self.kafka, topic)))

    def engine(self, name: str, version: str) -> float:
        """Let another stream processor do the counting job; check it; return CPU seconds for a million reports."""
        columns, window_ms = [], 0
        for some, start_ms in _releases(self.survey, 1, 1):
            columns.append(some)
            window_ms = start_ms
        messages, topic = [], f"engine-{name}"
        for some in columns:
            found = frames_of(
                self.survey,
                window_ms,
                system_clock(),
                some.tokens,
                some.answers,
                some.rungs,
                partitions=self.survey.shards,
                limit_bytes=self.survey.layout.frame_bytes(REPORTS_PER_MESSAGE),
            )
            messages += [(str(shard).encode(), value) for shard, values in found.items() for value in values]
        admin = AdminClient({"bootstrap.servers": self.kafka})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
        producer = Producer({"bootstrap.servers": self.kafka})
        for key, value in messages:
            producer.produce(topic, value, key=key)
        if producer.flush(_DEADLINE_SECONDS):
            raise AssertionError("expected Kafka to take all messages")
        folder = self.supervisor.folder / topic
        done = counted_by(name, version, [self.kafka, topic, str(len(messages)), str(folder)])
        expected = Counter(f"{some.rungs[0]}:{answer}" for some in columns[-1:] for answer in some.answers.tolist())
        reports = sum(len(some.rungs) for some in columns)
        if (done["tally"], done["reports"]) != (dict(expected), reports):
            raise AssertionError(f"{name} counted {done['reports']} of {reports} reports, or counted them wrongly")
        return float(done["cpu_seconds"]) / reports * 1e6

    def _flush(self) -> None:
        with redis.Redis.from_url(self.redis_url) as client:
            client.flushall()

    def _run(self, argv: Sequence[str], env: Mapping[str, str], suffix: str = "") -> Child:
        return self.supervisor.run(f"contestant-{self.runs}{suffix}", argv, order=StopOrder.WORKER, env=env)

    def _measure(self, children: Sequence[Child], counted: Callable[[], int], reports: int) -> Run:
        """Return what was seen between the first look that finds something counted and the one that finds all.

        What was counted at the first look is left out, as is the time before: start-up, joining the group.
        """

        def look() -> int:
            for child in children:
                child.check()
            return counted()

        def spent() -> dict[str, float]:
            mine = sum(cpu_seconds(child.pid) for child in children)
            return {"worker": mine} | {name: cpu_seconds(one.child.pid) for name, one in self.services.items()}

        first = until(look, _DEADLINE_SECONDS, "a first counted report", poll_seconds=_POLL_SECONDS)
        start_seconds, before = time.perf_counter(), spent()
        until(lambda: look() >= reports, _DEADLINE_SECONDS, f"{reports} reports", poll_seconds=_POLL_SECONDS)
        passed, after = time.perf_counter() - start_seconds, spent()
        for child in children:
            child.kill()
            self.supervisor.forget(child)
        millions = max(reports - first, 1) / 1e6
        return Run((reports - first) / passed, {name: (after[name] - before[name]) / millions for name in after})


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


def _produce(settings: Settings, topic: str, messages: Mapping[int, Sequence[bytes]], *, alone: bool = False) -> None:
    producer = Producer(
        librdkafka_options(settings)
        | {"linger.ms": 50, "batch.size": 1 << 18, "message.max.bytes": 2 << 20, "queue.buffering.max.messages": 10**7}
        | ({"batch.num.messages": 1} if alone else {})
    )
    headers: list[tuple[str, str | bytes | None]] = [SCHEMA_HEADER] if alone else []
    for partition, values in messages.items():
        for value in values:
            producer.produce(topic, value, partition=partition, headers=headers)
            producer.poll(0)
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
