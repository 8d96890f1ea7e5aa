"""Canaries on real services: honest devices prove less than is declared; broken ones prove more, and Prometheus alerts.

Both have alpha 1e-9: that honest ones are never accused is promised up to one run in a billion.
"""

from __future__ import annotations

import json
import threading
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tomli_w
from confluent_kafka import Producer

from producers.clock import system_clock
from producers.simulation.fleet import Plan
from producers.simulation.kafka import KafkaPublisher
from producers.simulation.run import FleetRun
from producers.simulation.scenarios import scenario_named
from producers.survey.survey import Survey
from streams.connections import kafka_python_options, librdkafka_options
from streams.exporter.alert_rules import rules_text
from streams.local.canary import CanaryAuditor
from streams.local.process import Child, free_ports
from streams.local.redis import Redis
from streams.settings import Settings
from streams.store.connect import open_store
from tests.browser.pipeline import Pipeline
from tests.integration.test_alerts import get, prometheus_config
from tests.support.cheating import cheating
from tests.support.deadline import until
from tests.support.exporter_process import until_healthy
from tests.support.gateways import GatewayProcess
from tests.support.panels import empty_panels
from tests.support.paths import ROOT
from tests.support.prometheus import Prometheus, prometheus_programs
from tests.support.services import fresh_name, missing, running

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


class Watched(NamedTuple):
    """A pipeline with two canaries, other surveys, gateway and dealer, and every Prometheus that is installed."""

    children: list[Child]
    exporter_url: str
    canaries: list[Survey]
    servers: list[Prometheus]


@pytest.fixture(scope="module")
def watched(kafka: str, redis_server: Redis, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    (folder / "own").mkdir()
    canaries, others = survey_files(folder / "own"), other_files(folder / "own")
    pipeline = Pipeline(kafka, redis_server.url, fresh_name() + ".", folder, [*canaries, *others])
    worker_port, dealer_port = free_ports(2)
    with ExitStack() as stack:
        stack.callback(pipeline.stop)
        children = [pipeline.worker(THAW_WORKER_PORT=str(worker_port))]
        exporter, url = pipeline.exporter()
        gateway = GatewayProcess(pipeline.settings, folder)
        stack.callback(gateway.child.kill)
        dealer = pipeline.dealer(dealer_port)
        children += [exporter, gateway.child, dealer, pipeline.canary(only="honest")]
        # People who stop at any rung: on a single rung there is nothing to compare.
        stoppers = ("--devices", "500", "--scenario", "stoppers")
        children.append(pipeline.fleet(*stoppers, "--gateway", gateway.url, without="exam"))
        stack.enter_context(broken_fleet(pipeline.settings, pipeline.surveys[1]))
        provoke(pipeline, dealer, dealer_port)
        ports = {
            "thaw-exporter": int(url.rpartition(":")[2]),
            "thaw-worker": worker_port,
            "thaw-gateway": gateway.metrics_port,
            "thaw-dealer": dealer_port,
        }
        servers = []
        for number, program in enumerate(prometheus_programs() or [""]):
            place = folder / f"prometheus-{number}"
            place.mkdir()
            (place / "rules.yaml").write_text(rules_text())
            make = partial(Prometheus, prometheus_config(ports, "127.0.0.1:1"), folder=place, program=program)
            servers.append(stack.enter_context(running(make)))
        yield Watched(children, url, pipeline.surveys[:2], servers)


def other_files(folder: Path) -> list[Path]:
    """Write surveys that bring the other metrics: shares and a mean with alerts, withdrawals, and one with cards."""
    share = tomllib.loads((ROOT / "tests" / "browser" / "surveys" / "browser.toml").read_text())
    share |= {
        "withdrawable": True,
        "alert": [{"value": "Opera", "above": 0.9}],
        "limits": {"band": 0.5, "flood": 1e6},
        "registry": {"expires": date(2099, 1, 1)},
        "publish": {"least_devices": 1},
    }
    mean = tomllib.loads((ROOT / "deploy" / "surveys" / "mean.toml").read_text())
    mean |= {
        "release": share["release"],
        "window": share["window"],
        "budget": {"lifetime": 1e6},
        "estimate": share["estimate"],
        "alert": [{"value": "hours", "above": 99.0}],
    }
    exam = tomllib.loads((ROOT / "deploy" / "surveys" / "improved_christofides.toml").read_text()) | {"name": "exam"}
    files = []
    for raw in (share, mean, exam):
        files.append(folder / f"{raw['name']}.toml")
        files[-1].write_text(tomli_w.dumps(raw))
    return files


def provoke(pipeline: Pipeline, dealer: Child, dealer_port: int) -> None:
    """Cause what is counted only when it happens: a dead letter, a card, a card that is refused."""
    producer = Producer(librdkafka_options(pipeline.settings))
    producer.produce(pipeline.settings.reports_topic, b"no frame", partition=0)
    assert producer.flush(30) == 0
    [exam] = [survey for survey in pipeline.surveys if survey.name == "exam"]
    until_healthy(dealer, f"http://127.0.0.1:{dealer_port}")
    for claim, status in ((bytes(16).hex(), 200), ("no claim", 400)):
        asked = {"survey": exam.id, "window_ms": exam.windows.latest(system_clock()), "claim": claim}
        request = urllib.request.Request(f"http://127.0.0.1:{dealer_port}/deal", json.dumps(asked).encode())
        try:
            found = urllib.request.urlopen(request, timeout=30).status
        except urllib.error.HTTPError as error:
            found = error.code
        assert found == status


def test_broken_devices_prove_more_than_is_declared_and_prometheus_alerts_while_honest_ones_do_not(
    watched: Watched,
) -> None:
    honest, broken = watched.canaries
    prometheus = watched.servers[0]

    def samples(expression: str) -> dict[tuple[str, str], float]:
        for child in watched.children:
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
    assert_shown(watched.exporter_url, honest, broken)


def test_every_panel_of_grafana_has_data_from_every_prometheus(watched: Watched) -> None:
    for server in watched.servers:
        found: list[list[str]] = [[]]

        def complete(url: str = server.url, found: list[list[str]] = found) -> bool:
            found[0] = empty_panels(url)
            return not found[0]

        try:
            until(complete, 120, "every panel to have data")
        except AssertionError:
            pytest.fail(f"{server.version()} shows nothing in: {found[0]}")
    versions = {server.version() for server in watched.servers}
    if len(versions) < 2:
        missing(f"only Prometheus {', '.join(versions)} is here; `make setup` unpacks a newer one")


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
