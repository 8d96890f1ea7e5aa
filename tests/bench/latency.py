"""From the emission of a frame to a stored estimate that contains it, at half of the rate that a worker reaches.

The messages of a fleet are made beforehand, so that a sender which only writes moments of sending into headers takes
little of the processors that broker, Redis and worker share.
"""

from __future__ import annotations

import sys
import time
import urllib.request
from collections.abc import Iterator
from typing import Final

from confluent_kafka import Producer
from prometheus_client.parser import text_string_to_metric_families

from producers.clock import system_clock
from producers.wire.layout import HEADER_BYTES
from producers.wire.transport import frames_of
from streams.connections import librdkafka_options
from streams.kafka.topics import Topics, wanted
from streams.local.process import Child, free_ports
from streams.local.supervisor import Supervisor
from streams.settings import Settings
from streams.store.connect import open_store
from streams.worker_metrics import quantile
from tests.bench.goals import Measured, Result, Series
from tests.bench.pipeline import REPORTS_PER_MESSAGE, _Bench, _releases
from tests.support.deadline import until

BLOCKS: Final = 24
WINDOWS: Final = 3
_SENT_AT: Final = 24
"""Place of the moment of sending in the header of a frame."""
_LOADS: Final = (0.04, 0.25, 0.5)
"""Shares of the maximum; the last one is the goal's."""
_SECONDS: Final = 6.0
_DEADLINE_SECONDS: Final = 120.0
_TICK_SECONDS: Final = 0.02

_Message = tuple[int, bytearray]


def results() -> Iterator[Measured]:
    """Measure the maximum, then the delay at shares of it, on a topic of its own each."""
    with Supervisor() as supervisor:
        bench = _Bench.start(supervisor)
        filled = bench.topic("maximum", 16, WINDOWS, per_message=REPORTS_PER_MESSAGE)
        most = max(bench.worker(filled).rate for _ in range(2))
        points: list[tuple[float, float]] = []
        middle: list[tuple[float, float]] = []
        for load in _LOADS:
            p50, p99, reached = _delays(bench, f"load-{load:g}.", most * load)
            print(f"{reached:,.0f} reports/s: p50 {p50:.2f} s, p99 {p99:.2f} s", file=sys.stderr)
            points.append((reached / 1e6, p99))
            middle.append((reached / 1e6, p50))
    yield Result("latency-p99-half-rate", points[-1][1], "s", most=1.5)
    yield Result("latency-half-rate", points[-1][0], "M/s", "maximum of this worker", most / 1e6)
    yield Series("latency", "p50", middle)
    yield Series("latency", "p99", points)


def _delays(bench: _Bench, prefix: str, rate: float) -> tuple[float, float, float]:
    """Return p50 and p99 of the delay, and the rate that was reached."""
    bench._flush()
    settings = Settings(kafka=bench.kafka, redis=bench.redis_url, surveys=str(bench.surveys), prefix=prefix)
    Topics(settings).create(wanted(settings, [bench.survey]))
    [port] = free_ports(1)
    bench.runs += 1
    env = {
        "THAW_KAFKA": bench.kafka,
        "THAW_REDIS": bench.redis_url,
        "THAW_SURVEYS": str(bench.surveys),
        "THAW_PREFIX": prefix,
        "THAW_GROUP": f"group-{bench.runs}",
        "THAW_WORKER_PORT": str(port),
    }
    child = bench._run([sys.executable, "-m", "streams.cli", "worker"], env)
    messages = _messages(bench, settings, rate * _SECONDS)
    producer = Producer(librdkafka_options(settings) | {"linger.ms": 5, "queue.buffering.max.messages": 10**6})
    store = open_store(settings)
    # The first message waits until the worker reads.
    _send(producer, settings, messages[0])
    reports = sum(_reports(message) for message in messages)
    until(lambda: _counted(child, store, bench) > 0, _DEADLINE_SECONDS, "a worker that counts", poll_seconds=0.1)
    before = _buckets(port)
    started, sent = time.perf_counter(), 0
    for message in messages[1:]:
        while sent > (time.perf_counter() - started) * rate:
            producer.poll(_TICK_SECONDS)
        _send(producer, settings, message)
        sent += _reports(message)
    reached = sent / (time.perf_counter() - started)
    if producer.flush(_DEADLINE_SECONDS):
        raise AssertionError("expected Kafka to take all messages")
    until(lambda: _counted(child, store, bench) >= reports, _DEADLINE_SECONDS, f"{reports} reports", poll_seconds=0.1)
    until(lambda: not store.queue.entries(), _DEADLINE_SECONDS, "all estimates", poll_seconds=0.1)
    after = _buckets(port)
    found = {bound: count - before.get(bound, 0.0) for bound, count in after.items()}
    child.kill()
    bench.supervisor.forget(child)
    store.close()
    p50, p99 = quantile(found, 0.5), quantile(found, 0.99)
    assert p50 is not None
    assert p99 is not None
    return p50, p99, reached


def _messages(bench: _Bench, settings: Settings, reports: float) -> list[_Message]:
    """Return messages of one frame each, of all windows and shards in turns, rung after rung."""
    found: list[list[_Message]] = []
    left = reports
    blocks = max(1, min(BLOCKS, round(reports / (WINDOWS * bench.survey.mechanism.rungs * 65_536))))
    for columns, window_ms in _releases(bench.survey, blocks, WINDOWS):
        packed = frames_of(
            bench.survey,
            window_ms,
            0,
            columns.tokens,
            columns.answers,
            columns.rungs,
            partitions=settings.partitions,
            limit_bytes=bench.survey.layout.frame_bytes(REPORTS_PER_MESSAGE),
        )
        some = [(partition, bytearray(value)) for partition, values in packed.items() for value in values]
        # Frames of one shard come one after the other; a fleet sends them mixed.
        found.append(some[::7] + [message for i, message in enumerate(some) if i % 7])
        left -= len(columns.rungs)
        if left <= 0:
            break
    return [message for some in found for message in some]


def _reports(message: _Message) -> int:
    return int.from_bytes(message[1][34:38], "little")


def _send(producer: Producer, settings: Settings, message: _Message) -> None:
    """Write the moment into the header of every frame, and send."""
    partition, value = message
    at, now = 0, system_clock().to_bytes(8, "little")
    while at < len(value):
        value[at + _SENT_AT : at + _SENT_AT + 8] = now
        at += int.from_bytes(value[at + 4 : at + 8], "little")
    assert at >= HEADER_BYTES
    while True:
        try:
            producer.produce(settings.reports_topic, bytes(value), partition=partition)
            return
        except BufferError:
            producer.poll(_TICK_SECONDS)


def _counted(child: Child, store: object, bench: _Bench) -> int:
    child.check()
    return int(store.log.counters(bench.survey.id).applied)  # type: ignore[attr-defined]


def _buckets(port: int) -> dict[float, float]:
    """Return the histogram of delays of a worker."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "thaw_worker_latency_seconds_bucket"
    }
