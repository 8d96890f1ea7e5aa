"""Canaries on real services: honest devices prove less than is declared; broken ones prove more, and Prometheus alerts.

Both have alpha 1e-9: that honest ones are never accused is promised up to one run in a billion.
"""

from __future__ import annotations

import threading
import tomllib
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from producers.clock import system_clock
from producers.simulation.fleet import Plan
from producers.simulation.kafka import KafkaPublisher
from producers.simulation.run import FleetRun
from producers.simulation.scenarios import scenario_named
from producers.survey.survey import Survey
from streams.connections import kafka_python_options
from streams.exporter.alert_rules import rules_text
from streams.local.canary import CanaryAuditor
from streams.settings import Settings
from streams.store.connect import open_store
from tests.browser.pipeline import Pipeline
from tests.integration.test_alerts import get, prometheus_config
from tests.support.cheating import cheating
from tests.support.deadline import until
from tests.support.paths import ROOT
from tests.support.prometheus import Prometheus
from tests.support.services import running

pytestmark = pytest.mark.real

CANARY = ROOT / "tests" / "browser" / "surveys" / "canary.toml"


def survey_files(folder: Path) -> list[Path]:
    """Write two canaries with a small false-alarm rate."""
    files = []
    for name in ("honest", "broken"):
        raw = tomllib.loads(CANARY.read_text()) | {"name": name}
        raw["canary"]["alpha"] = 1e-9
        files.append(folder / f"{name}.toml")
        files[-1].write_text(tomli_w.dumps(raw))
    return files


@contextmanager
def broken_fleet(settings: Settings, survey: Survey) -> Iterator[None]:
    """Run the fleet of a canary whose devices hardly ever flip; all else is as `thaw fleet --canary` has it."""
    table = survey.canary
    assert table is not None
    step_ms = survey.windows.step_ms
    plan = Plan(
        cheating(survey, (8.0, 9.0, 10.0)),
        table.devices,
        scenario_named("steady"),
        table.seed,
        np.array(table.shares),
        -(-system_clock() // step_ms) * step_ms,
    )
    publisher = KafkaPublisher(settings.reports_topic, kafka_python_options(settings))
    stop = threading.Event()
    with CanaryAuditor(open_store(settings)) as watch:
        run = FleetRun([plan], publisher, now_ms=system_clock, watch=watch, stopping=stop.is_set)
        thread = threading.Thread(target=run.run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            publisher.close()


def test_broken_devices_prove_more_than_is_declared_and_prometheus_alerts_while_honest_ones_do_not(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    pipeline = Pipeline(kafka, redis_url, topic_prefix, tmp_path, survey_files(tmp_path / "own"))
    honest, broken = pipeline.surveys
    (tmp_path / "prometheus").mkdir()
    (tmp_path / "prometheus" / "rules.yaml").write_text(rules_text())
    try:
        worker = pipeline.worker()
        exporter, url = pipeline.exporter()
        port = int(url.rpartition(":")[2])
        fleet = pipeline.canary(only="honest")
        with (
            broken_fleet(pipeline.settings, broken),
            running(
                lambda: Prometheus(prometheus_config(port, port, "127.0.0.1:1"), folder=tmp_path / "prometheus")
            ) as prometheus,
        ):

            def samples(expression: str) -> dict[tuple[str, str], float]:
                for child in (worker, exporter, fleet):
                    child.check()
                answer = get(f"{prometheus.url}/api/v1/query?query={urllib.parse.quote(expression)}")
                return {
                    (sample["metric"]["survey"], sample["metric"].get("rung", "")): float(sample["value"][1])
                    for sample in answer["data"]["result"]
                }

            firing = 'ALERTS{alertname="ThawEpsilonAboveDeclared",alertstate="firing"}'
            bounds = "thaw_audit_epsilon_lower_bound"
            until(lambda: samples(firing), 120, "an alert")
            until(lambda: samples(f"changes({bounds}[1h]) > 0").keys() >= {(honest.id, "2")}, 120, "two batches")
            declared, proven = samples("thaw_audit_epsilon_declared"), samples(bounds)
            assert {place: value for place, value in declared.items() if place[0] == honest.id} == {
                (honest.id, str(rung)): level for rung, level in enumerate(honest.mechanism.epsilons)
            }
            for rung in map(str, range(3)):
                assert 0.0 < proven[honest.id, rung] < declared[honest.id, rung]
                assert proven[broken.id, rung] > declared[broken.id, rung]
            assert {survey for survey, _ in samples(firing)} == {broken.id}
            assert_shown(url, honest, broken)
    finally:
        pipeline.stop()


def assert_shown(url: str, honest: Survey, broken: Survey) -> None:
    """Check what the page is told."""
    health: dict[str, Any] = get(f"{url}/api/v1/health")
    assert {audit["survey"]: audit["exceeded"] for audit in health["epsilon_audits"]} == {
        honest.id: False,
        broken.id: True,
    }
    assert any(broken.id in text and "more than was promised" in text for text in health["warnings"])
    alerts = get(f"{url}/api/v1/alerts")["alerts"]
    states = {alert["survey"]: alert["state"] for alert in alerts if alert["name"] == "ThawEpsilonAboveDeclared"}
    assert states == {honest.id: "inactive", broken.id: "firing"}
