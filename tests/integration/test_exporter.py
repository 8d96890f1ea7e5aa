"""The exporter as a process on a real Redis, judged by Prometheus' own tool."""

import shutil
import subprocess
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from estimators.estimation.registry import estimator_of
from estimators.tally import Tally
from producers.clock import system_clock
from streams.settings import Settings
from streams.store.connect import open_store
from streams.store.counters import Counters
from streams.windows.record import make_record
from streams.worker_metrics import worker_metrics
from tests.support.deadline import END_SECONDS
from tests.support.exporter_process import start_exporter
from tests.support.services import missing
from tests.support.surveys import survey, survey_text

pytestmark = pytest.mark.real


def check_metrics(text: str) -> None:
    """Let promtool look for what Prometheus' practice forbids."""
    program = shutil.which("promtool")
    if program is None:
        missing("promtool is not installed; Debian's package prometheus has it")
    judged = subprocess.run(
        [str(program), "check", "metrics"], input=text, capture_output=True, text=True, timeout=END_SECONDS, check=False
    )
    assert (judged.returncode, judged.stdout, judged.stderr) == (0, "", "")


def test_the_exporter_serves_what_is_in_redis(redis_url: str, topic_prefix: str, tmp_path: Path) -> None:
    (tmp_path / "colour.toml").write_text(survey_text())
    colour = survey()
    store = open_store(Settings(redis=redis_url, prefix=topic_prefix))
    window_ms = colour.windows.latest(system_clock())
    tally = Tally.empty(3, 1, 3)
    tally.counts[:, 0], tally.users[:, 0] = [60, 30, 20], 110
    record = make_record(
        colour,
        window_ms,
        tally,
        estimator_of(colour.mechanism).estimate(tally),
        read_ms=window_ms,
        computed_ms=window_ms + 1,
    )
    secret = store.queue.lock(colour.id, window_ms, 60_000)
    assert secret is not None
    assert store.estimates.save(colour.id, window_ms, secret, record.encode(), window_ms + 600_000)
    store.log.count(colour.id, window_ms, Counters(expired=1, rejected={"rung": 2}), window_ms + 600_000)
    exporter, url = start_exporter(tmp_path, redis_url=redis_url, prefix=topic_prefix)
    try:

        def get(path: str) -> str:
            return str(urllib.request.urlopen(f"{url}{path}", timeout=END_SECONDS).read().decode())

        assert get("/healthz") == "ok\n"
        text = get("/metrics")
        shown = f'thaw_frequency_estimate_ratio{{survey="{colour.id}",value="red",window='
        assert shown in text
        check_metrics(text)
        assert colour.id in get("/api/v1/surveys")
        assert f'"window_start_ms":{window_ms}' in get(f"/api/v1/surveys/{colour.id}/windows")
        assert get("/").startswith("<!doctype html>")
        exporter.terminate(END_SECONDS)
        assert exporter.returncode == 0, exporter.tail()
    finally:
        exporter.kill()


def test_the_metrics_of_a_worker_follow_the_practice() -> None:
    metrics = worker_metrics()
    metrics.lag.labels("3").set(7)
    metrics.dead_letters.labels("rung").inc()
    metrics.latency.observe(0.2)
    check_metrics(generate_latest(metrics.registry).decode())
