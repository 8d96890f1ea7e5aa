"""The exporter while Redis or Kafka hang: it answers at once, names them, and recovers; and what it refuses to do."""

from __future__ import annotations

import json
import math
import re
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streams.cli.exporter import REDIS_SECONDS
from streams.exporter.health import LAG_LEAST_MS
from streams.local.kafka import ApacheKafka
from streams.local.process import Child, free_ports
from streams.local.redis import Redis
from streams.settings import Settings
from streams.store.connect import open_store
from streams.worker.lag_age import UNWATCHED_MS
from tests.integration.workers import System
from tests.support.deadline import END_SECONDS, until
from tests.support.exporter import record_of
from tests.support.processes import hung
from tests.support.prometheus import Prometheus
from tests.support.services import fresh_name, running
from tests.support.surveys import survey, survey_text
from tests.support.telling import Tells

pytestmark = pytest.mark.real

LIMIT_SECONDS = 60.0


class Exporter:
    """A running exporter and requests to it."""

    def __init__(self, folder: Path, redis: str, **env: str) -> None:
        [self.port] = free_ports(1)
        (folder / "colour.toml").write_text(survey_text())
        more = {"THAW_REDIS": redis, "THAW_SURVEYS": str(folder), "THAW_EXPORTER_PORT": str(self.port)}
        self.child = Child(
            "exporter",
            [sys.executable, "-m", "streams.cli", "exporter"],
            log=folder / "exporter.log",
            env=more | env,
        )

    def get(self, path: str) -> tuple[int, str]:
        """Return status and body; (0, "") before it listens."""
        self.child.check()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=LIMIT_SECONDS) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except (urllib.error.URLError, ConnectionError):
            return 0, ""

    def health(self) -> dict[str, Any]:
        return dict(json.loads(self.get("/api/v1/health")[1] or "{}"))

    def healthy(self) -> dict[str, Any]:
        """Return the health if the store was read, else nothing: it answers before its first look is done."""
        found = self.health()
        return found if found.get("store") == "up" else {}

    def until_status(self, path: str, status: int) -> str:
        return until(lambda: [body for found, body in [self.get(path)] if found == status], LIMIT_SECONDS, path)[0]


@contextmanager
def exporter(folder: Path, redis: str, **env: str) -> Iterator[Exporter]:
    found = Exporter(folder, redis, **env)
    try:
        found.until_status("/", 200)
        yield found
    finally:
        found.child.kill()


def timed(get: Callable[[str], tuple[int, str]], path: str) -> tuple[tuple[int, str], float]:
    started = time.monotonic()
    return get(path), time.monotonic() - started


def test_a_redis_that_hangs_delays_nobody_and_is_named(tmp_path: Path, tells: Tells) -> None:
    colour = survey()
    with running(Redis) as redis:
        store = open_store(Settings(redis=redis.url))
        secret = store.queue.lock(colour.id, 0, 60_000)
        assert secret is not None
        assert store.estimates.save(colour.id, 0, secret, record_of(colour, 0, [0.5, 0.3, 0.2]).encode(), 2**52)
        store.close()
        with exporter(tmp_path, redis.url) as served:
            windows = f"/api/v1/surveys/{colour.id}/windows"
            assert served.until_status("/healthz", 200) == "ok\n"
            assert served.get(windows)[0] == 200
            with hung(redis.child):
                tells.begin()
                told = served.until_status("/healthz", 503)
                tells.note("Redis hangs (SIGSTOP)", "/healthz")
                assert f"no answer from Redis at {redis.address} in time" in told
                paths = ["/healthz", "/metrics", "/api/v1/health", "/api/v1/alerts", "/api/v1/surveys", "/", windows]
                # Were each of them to wait for Redis, even four at a time, these would take minutes.
                with ThreadPoolExecutor(12) as pool:
                    asked = [pool.submit(timed, served.get, path) for path in paths * 40]
                    answered = [answer.result(LIMIT_SECONDS) for answer in asked]
                answers = [answer for answer, _ in answered]
                for place, path in enumerate(paths):
                    fastest = min(seconds for _, seconds in answered[place :: len(paths)])
                    assert fastest < REDIS_SECONDS, f"{path} waits for Redis"
                assert {status for status, _ in answers} == {200, 503}
                by_path = dict(zip(paths, answers, strict=False))
                assert [by_path[path][0] for path in paths] == [503, 200, 200, 200, 200, 200, 503]
                assert "\nthaw_store_up 0.0\n" in by_path["/metrics"][1]
                assert '"name":"ThawStoreDown","state":"firing"' in by_path["/api/v1/alerts"][1]
                health = json.loads(by_path["/api/v1/health"][1])
                assert (health["status"], health["store"], health["kafka"]) == ("down", "down", "unknown")
                assert (health["dirty_windows"], health["reports"], health["workers_alive"]) == (None, {}, None)
                assert [entry["state"] for entry in health["surveys"]] == ["unknown"]
                with urllib.request.urlopen(
                    f"http://127.0.0.1:{served.port}/api/v1/events", timeout=END_SECONDS
                ) as stream:
                    events = [line for line in stream_lines(stream, b"data: ", 3) if b'"status":"down"' in line]
                assert len(events) == 3, "the page hears that the exporter lives and Redis does not"
            assert served.until_status("/healthz", 200) == "ok\n"
            assert served.get(windows)[0] == 200


def stream_lines(stream: Any, start: bytes, count: int) -> list[bytes]:
    """Return the first lines of health events."""
    found: list[bytes] = []
    while len(found) < count:
        line = stream.readline()
        assert line, "the stream ended"
        if line.startswith(start) and b'"reports_per_second"' in line:
            found.append(line)
    return found


def test_a_kafka_that_hangs_is_named_by_the_workers(
    other_kafka: ApacheKafka, redis_url: str, tmp_path: Path, tells: Tells
) -> None:
    prefix = f"{fresh_name()}."
    with exporter(tmp_path, redis_url, THAW_PREFIX=prefix) as served:
        health = until(lambda: served.healthy(), LIMIT_SECONDS, "a first look at Redis")
        assert (health["kafka"], health["workers_alive"]) == ("unknown", 0)
        env = {
            "THAW_REDIS": redis_url,
            "THAW_KAFKA": other_kafka.address,
            "THAW_PREFIX": prefix,
            "THAW_SURVEYS": str(tmp_path),
            "THAW_INSTANCE": "w1",
            "THAW_WORKER_PORT": "0",
            "THAW_BIND": "0.0.0.0",
        }
        with hung(other_kafka.child):
            # Started while Kafka hangs: the worst case, since it cannot get as far as reading.
            worker = Child(
                "worker", [sys.executable, "-m", "streams.cli", "worker"], log=tmp_path / "worker.log", env=env
            )
            try:
                metrics = re.compile(r"w1; metrics on (http://127\.0\.0\.1:\d+)")
                [address] = until(lambda: metrics.findall(worker.tail()), LIMIT_SECONDS, "metrics on loopback only")
                tells.begin()
                tells.seen("Kafka hangs or is away", "/api/v1/health", lambda: served.health()["kafka"] == "down")
                health = served.health()
                assert health["status"] == "stale"
                assert health["reasons"][0].startswith("Kafka does not answer w1. ")
                assert [entry["kafka"] for entry in health["workers"]] == ["down"]
                assert "\nthaw_kafka_up 0.0\n" in served.get("/metrics")[1]
                assert '"name":"ThawKafkaDown","state":"firing"' in served.get("/api/v1/alerts")[1]
                with urllib.request.urlopen(f"{address}/metrics", timeout=LIMIT_SECONDS) as answer:
                    assert b"\nthaw_worker_kafka_up 0.0\n" in answer.read()
                other_kafka.child.send_signal(signal.SIGCONT)
                until(lambda: served.health()["kafka"] == "up", LIMIT_SECONDS, "Kafka to be up again")
            finally:
                worker.kill()
        tells.begin()
        tells.seen("A worker dies while others live", "/api/v1/health", lambda: served.health()["workers_dead"] == 1)
        assert '\nthaw_workers{state="dead"} 1.0\n' in served.get("/metrics")[1]


def test_workers_are_behind_what_brokers_that_hang_may_have(
    other_kafka: ApacheKafka, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A worker that has read everything cannot know what came since: that is neither 0 s behind nor settled."""
    folder = tmp_path / "worker"
    folder.mkdir()
    system = System(other_kafka.address, redis_url, topic_prefix, folder)
    system.create_topics()
    with exporter(tmp_path, redis_url, THAW_PREFIX=topic_prefix) as served, system.worker() as worker:

        def lag(health: dict[str, Any]) -> float:
            worker.check()
            found = health.get("lag_seconds")
            return math.inf if found is None else float(found)

        def even() -> bool:
            return lag(served.healthy()) < UNWATCHED_MS / 1_000

        def behind() -> bool:
            health = served.healthy()
            seen = [health.get(name) for name in ("kafka", "workers_alive", "lag_records")]
            return seen == ["down", 1, 0] and LAG_LEAST_MS / 1_000 < lag(health) < math.inf

        until(even, LIMIT_SECONDS, "all to be read")
        with hung(other_kafka.child):
            until(behind, LIMIT_SECONDS, "a lag of nobody knows how many records")
        until(even, LIMIT_SECONDS, "all to be read again")


def test_a_prometheus_that_hangs_is_named_and_delays_nobody(redis_url: str, tmp_path: Path, tells: Tells) -> None:
    with (
        running(lambda: Prometheus("global: {scrape_interval: 1s}\n")) as prometheus,
        exporter(tmp_path, redis_url, THAW_PROMETHEUS=prometheus.url) as served,
    ):

        def source() -> object:
            return json.loads(served.get("/api/v1/alerts")[1])["source"]

        until(lambda: source() == "prometheus", LIMIT_SECONDS, "alerts as Prometheus tells them")
        with hung(prometheus.child):
            tells.begin()
            tells.seen("Prometheus hangs", "/api/v1/alerts", lambda: source() == "unreachable")
        until(lambda: source() == "prometheus", LIMIT_SECONDS, "Prometheus again")


def refused(tmp_path: Path, *words: str, **env: str) -> str:
    """Return what an exporter says that ends by itself."""
    command = [sys.executable, "-m", "streams.cli", "exporter", *words]
    child = Child("exporter", command, log=tmp_path / "refused.log", env=env)
    try:
        until(lambda: child.returncode is not None, LIMIT_SECONDS, "the exporter to refuse")
        assert child.returncode == 1
        return child.tail()
    finally:
        child.kill()


def test_other_addresses_than_loopback_need_a_token_or_the_word_insecure(redis_url: str, tmp_path: Path) -> None:
    assert "set THAW_TOKEN to require a token, listen on 127.0.0.1, or say --insecure" in refused(
        tmp_path, "--bind", "0.0.0.0", THAW_EXPORTER_PORT="0"
    )
    for more in ({"THAW_TOKEN": "correct-horse-battery"}, {"THAW_INSECURE": "1"}):
        with exporter(tmp_path, redis_url, THAW_BIND="0.0.0.0", **more) as served:
            assert served.get("/api/v1/health")[0] == (401 if "THAW_TOKEN" in more else 200)
