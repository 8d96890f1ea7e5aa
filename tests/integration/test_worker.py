"""A worker process on real Kafka and Redis: exact tallies, estimates, dead letters, kills, parts that are away."""

import json
import re
import signal
import struct
import sys
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet
import pytest

from estimators.estimation.registry import estimator_of
from producers.clock import system_clock
from producers.wire.layout import HEADER_BYTES
from producers.wire.shards import shards_of
from streams.local.process import free_ports
from streams.local.redis import Redis
from streams.settings import DriverName
from streams.windows.record import decode_estimate
from streams.worker.dead_letters import OFFSET_HEADER, REASON_HEADER
from tests.integration.workers import MINUTE_MS, Reports, System, headers, run_thaw
from tests.support.collector import Collector
from tests.support.deadline import END_SECONDS, until
from tests.support.old_worker import LOOKED
from tests.support.services import running
from tests.support.telling import Tells

pytestmark = pytest.mark.real


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


def test_reports_become_an_exact_tally_an_estimate_and_metrics(
    system: System, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = system.reports(20_000)
    [port] = free_ports(1)
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        count_and_look(system, reports, port)
    check_spans(collector, system)
    expected = estimator_of(system.survey.mechanism).estimate(reports.tally(), method=system.survey.method)
    printed = run_thaw(system.settings, "estimates", "colour", "--json")
    assert printed.returncode == 0, printed.stderr
    assert '"users":20000' in printed.stdout
    assert "red" in run_thaw(system.settings, "estimates").stdout
    lines = run_thaw(system.settings, "estimates", "colour", "--format", "csv").stdout.splitlines()
    assert lines == run_thaw(system.settings, "estimates", "colour", "--csv").stdout.splitlines()
    assert len(lines) == 1 + len(system.survey.mechanism.labels)
    rows = json.loads(run_thaw(system.settings, "estimates", "colour", "--format", "json").stdout)
    file = tmp_path / "estimates.parquet"
    written = run_thaw(system.settings, "estimates", "--format", "parquet", "--output", str(file))
    assert (written.returncode, written.stdout) == (0, ""), written.stderr
    table = pyarrow.parquet.read_table(file).to_pylist()
    assert [row["estimate"] for row in rows] == [row["estimate"] for row in table] == list(expected.value)
    full = run_thaw(system.settings, "estimates", "--csv", "--output", "/dev/full")
    assert full.returncode == 1
    assert "Error: /dev/full: No space left on device" in full.stderr


def count_and_look(system: System, reports: Reports, port: int) -> None:
    """Let a worker count these reports twice, and look at all that it tells."""
    with system.worker(port=port, tracing=1) as worker:
        system.produce(reports.messages(8))
        system.produce(reports.messages(8, limit_bytes=4_096))
        system.wait_for_tally(reports.tally(), worker)
        until(lambda: system.store.log.counters(system.survey.id).duplicate == 20_000, 30, "all duplicates counted")
        payload = until(
            lambda: (
                system.store.estimates.read(system.survey.id, system.window_ms)
                if not system.store.queue.entries()
                else None
            ),
            30,
            "an estimate of all reports",
        )
        record = decode_estimate(payload)
        expected = estimator_of(system.survey.mechanism).estimate(reports.tally(), method=system.survey.method)
        assert record.users == 20_000
        assert [row.estimate for row in record.values] == list(expected.value)
        key = f"{system.survey.id}:{system.window_ms}".encode()
        published = system.read(system.settings.estimates_topic, 1)
        assert {message.key() for message in published} == {key}
        decode_estimate(published[0].value() or b"")

        def scraped(text: str) -> Callable[[], bool]:
            address = f"http://127.0.0.1:{port}/metrics"
            return lambda: text in urllib.request.urlopen(address, timeout=END_SECONDS).read().decode()

        for partition in range(8):
            until(scraped(f'thaw_worker_lag_records{{partition="{partition}"}} 0.0'), 60, "no lag")
        until(scraped("thaw_worker_reports_total 40000.0"), 60, "reports counted in the worker's own metrics")
        until(lambda: not scraped("thaw_worker_latency_seconds_count 0.0")(), 60, "latencies")

        worker.send_signal(signal.SIGTERM)
        assert worker.wait(END_SECONDS)
        assert worker.returncode == 0, worker.tail()


def check_spans(collector: Collector, system: System) -> None:
    """Every batch has a span, with numbers and places and nothing of a report."""
    assert {resource["service.name"] for resource in collector.resources} == {"thaw-worker"}
    assert {name for name, _ in collector.spans} == {"thaw.batch"}
    attributes = [some for _, some in collector.spans]
    assert sum(some["thaw.reports"] for some in attributes) == 40_000
    assert sum(some["thaw.reports.duplicate"] for some in attributes) == 20_000
    assert {some["messaging.destination.name"] for some in attributes} == {system.settings.reports_topic}
    assert all(some["messaging.batch.message_count"] > 0 for some in attributes)
    assert all(re.fullmatch(r"\d@\d+-\d+", place) for some in attributes for place in some["thaw.offsets"])


def _dead_letters(system: System) -> dict[str, bytes]:
    """Return one bad message for each reason, all for partition 0."""
    everyone = system.reports(400, seed=3)
    mine = shards_of(everyone.tokens, system.survey.shards) == 0
    some = Reports(
        everyone.survey, everyone.window_ms, everyone.tokens[mine], everyone.answers[mine], everyone.rungs[mine]
    )
    assert len(some.rungs) > 2

    def frame(reports: Reports) -> bytes:
        [message] = reports.messages(8)[0]
        return message

    def changed(position: int, raw: bytes) -> bytes:
        good = frame(some)
        return good[:position] + raw + good[position + len(raw) :]

    answers_at = HEADER_BYTES + 16 * len(some.rungs)
    stranger = everyone.tokens[~mine][0].tobytes()
    return {
        "survey": changed(8, bytes(8)),
        "version": changed(3, b"\x09"),
        "length": changed(4, struct.pack("<I", 1 << 30)),
        "magic": b"hello, is this a frame? It is not one.  ",
        "rung": frame(replace(some, rungs=np.full_like(some.rungs, 3))),
        "answer": changed(answers_at, b"\x03"),
        "token": changed(HEADER_BYTES, stranger),
        "partition": changed(32, struct.pack("<H", 1)),
        "window": frame(replace(some, window_ms=some.window_ms + 1)),
        "future": frame(replace(some, window_ms=some.window_ms + 60 * MINUTE_MS)),
        # The next window may begin early by the skew, but its rungs have not opened.
        "early": frame(replace(some, window_ms=system.survey.windows.latest(system_clock()) + MINUTE_MS)),
    }


def test_what_cannot_be_right_becomes_a_dead_letter_and_the_worker_goes_on(system: System) -> None:
    bad = _dead_letters(system)
    late = system.reports(100, seed=4)
    late = replace(late, window_ms=system.window_ms - 60 * MINUTE_MS)
    good = system.reports(5_000, seed=5)
    with system.worker() as worker:
        system.produce({0: list(bad.values())})
        system.produce(late.messages(8))
        system.produce(good.messages(8))
        system.wait_for_tally(good.tally(), worker)
        letters = system.read(system.settings.dead_letters_topic, len(bad))
    found = {headers(letter)[REASON_HEADER].decode(): letter for letter in letters}
    assert found.keys() == bad.keys()
    for offset, (reason, original) in enumerate(bad.items()):
        assert found[reason].value() == original, reason
        assert found[reason].key() is None
        place = f"{system.settings.reports_topic}[0]@{offset}"
        assert headers(found[reason]) == {REASON_HEADER: reason.encode(), OFFSET_HEADER: place.encode()}
    counters = system.store.log.counters(system.survey.id)
    assert counters.expired == 100
    assert counters.applied == 5_000


@pytest.mark.parametrize("driver", get_args(DriverName))
def test_a_killed_worker_leaves_nothing_out_and_nothing_twice(system: System, driver: str) -> None:
    reports = system.reports(300_000)
    expected = reports.tally()
    messages = reports.messages(8, limit_bytes=16_384)
    with system.worker(driver=driver) as first:
        system.produce(messages)
        until(lambda: system.tally().total_users > 0, 60, "the first reports counted", poll_seconds=0.001)
        first.kill()
    with system.worker(driver=driver) as second:
        system.wait_for_tally(expected, second)
        system.produce(messages)
        last = system.reports(1_000, seed=2)
        system.produce(last.messages(8))
        system.wait_for_tally(expected + last.tally(), second)


def test_two_workers_share_the_partitions_and_take_over_from_each_other(system: System) -> None:
    """Both seem to have run for ten minutes. One has Faust's own check of partitions, which takes that for an error."""
    old = {kind: (sys.executable, "-m", "tests.support.old_worker", kind) for kind in ("stock", "ours")}
    reports = system.reports(50_000)
    half = len(reports.rungs) // 2
    parts = [
        Reports(reports.survey, reports.window_ms, reports.tokens[cut], reports.answers[cut], reports.rungs[cut])
        for cut in (slice(None, half), slice(half, None))
    ]
    with (
        system.worker(instance="one", command=old["stock"]) as one,
        system.worker(instance="two", command=old["ours"]) as two,
    ):
        until(lambda: all("assigned" in child.log.read_text() for child in (one, two)), 60, "both to have partitions")
        until(lambda: "has not sent fetch request" in one.log.read_text(), 60, "Faust's own error")
        system.produce(parts[0].messages(8, limit_bytes=8_192))
        system.wait_for_tally(parts[0].tally(), one)
        looks = two.log.read_text().count(LOOKED)
        one.terminate(END_SECONDS)
        assert one.returncode == 0
        system.produce(parts[1].messages(8, limit_bytes=8_192))
        system.wait_for_tally(reports.tally(), two)
        until(lambda: two.log.read_text().count(LOOKED) >= looks + 2, 60, "looks at what was taken over")
        assert '"level":"error"' not in two.log.read_text(), "a takeover is no error"


def test_a_worker_waits_for_redis_and_says_so(kafka: str, topic_prefix: str, tmp_path: Path, tells: Tells) -> None:
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        redis.terminate()
        with system.worker() as worker:
            tells.log("Redis or Kafka not there at a worker's start", worker, "Redis is down", after="metrics on")
            redis.restart()
            first = system.reports(2_000)
            system.produce(first.messages(8))
            system.wait_for_tally(first.tally(), worker)
            redis.terminate()
            second = system.reports(2_000, seed=2)
            system.produce(second.messages(8))
            until(
                lambda: "retrying, last batch not acknowledged" in worker.log.read_text(),
                30,
                "the worker to say that it waits",
            )
            redis.restart()
            system.wait_for_tally(first.tally() + second.tally(), worker)


def test_a_worker_that_is_told_to_stop_while_redis_is_away_exits_with_75(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        with system.worker() as worker:
            until(lambda: "assigned" in worker.log.read_text(), 60, "partitions")
            redis.terminate()
            reports = system.reports(2_000)
            system.produce(reports.messages(8))
            until(lambda: "retrying, last batch not acknowledged" in worker.log.read_text(), 30, "the worker to wait")
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(END_SECONDS)
            assert worker.returncode == 75
        redis.restart()
        with system.worker() as again:
            system.wait_for_tally(reports.tally(), again)


def test_a_worker_waits_for_the_broker_and_for_the_topics(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    system = System(kafka, redis_url, topic_prefix, tmp_path)
    [nobody] = free_ports(1)
    with system.worker(kafka=f"127.0.0.1:{nobody}") as worker:
        until(lambda: "Kafka is down: no broker answered" in worker.log.read_text(), 30, "the worker to say so")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(END_SECONDS)
        assert worker.returncode == 75
    with system.worker() as worker:
        until(
            lambda: "create them with `thaw topics create`" in worker.log.read_text(),
            30,
            "the worker to ask for topics",
        )
        system.create_topics()
        reports = system.reports(1_000)
        system.produce(reports.messages(8))
        system.wait_for_tally(reports.tally(), worker)


def test_a_worker_refuses_what_would_count_wrongly(system: System) -> None:
    wrong = run_thaw(system.settings, "worker", THAW_PARTITIONS="4", THAW_WORKER_PORT="0")
    assert wrong.returncode == 1
    assert "has 8 partitions, THAW_PARTITIONS is 4" in wrong.stderr


def test_a_strict_worker_refuses_a_redis_that_forgets(system: System, redis_server: Redis, tmp_path: Path) -> None:
    import redis as client

    with running(Redis) as forgetful:
        connection = client.Redis.from_url(forgetful.url)
        connection.config_set("appendonly", "no")
        connection.close()
        settings = replace(system.settings, redis=forgetful.url)
        refused = run_thaw(settings, "worker", THAW_STRICT="1", THAW_WORKER_PORT="0")
    assert refused.returncode == 1
    assert "THAW_STRICT=1 refuses this Redis" in refused.stderr
