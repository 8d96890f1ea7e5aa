"""The Grafana dashboards: generated, complete, and with queries that read existing metrics."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from deploy.grafana.build import DASHBOARDS, FOLDER, text_of
from streams.metrics import METRICS
from tests.support.paths import ROOT
from tests.support.promql import known, metrics_in

GENERATE = "write it again: make generated"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_are_generated(name: str) -> None:
    assert (FOLDER / name).read_text() == text_of(name), GENERATE


def dashboard_queries(data: Any) -> Iterator[str]:
    if isinstance(data, dict):
        if isinstance(data.get("expr"), str):
            yield data["expr"]
        for item in data.values():
            yield from dashboard_queries(item)
    elif isinstance(data, list):
        for item in data:
            yield from dashboard_queries(item)


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_query_of_a_dashboard_parses_and_reads_metrics_that_exist(name: str) -> None:
    data = json.loads((FOLDER / name).read_text())
    queries = list(dashboard_queries(data))
    assert len(queries) >= 8
    for query in queries:
        names = metrics_in(query)
        assert names
        assert all(map(known, names)), query


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_what_grafana_needs(name: str) -> None:
    data = json.loads((FOLDER / name).read_text())
    assert data["schemaVersion"] >= 36
    assert data["uid"].startswith("thaw-")
    variables = {variable["name"] for variable in data["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(data))) <= variables, "a variable is used that is not asked for"
    for panel in data["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${source}"}


def test_every_metric_is_on_a_dashboard() -> None:
    data = json.loads((FOLDER / "metrics.json").read_text())
    shown = {name.removesuffix("_bucket") for query in dashboard_queries(data) for name in metrics_in(query)}
    assert shown == {metric.name for metric in METRICS}


def test_what_provisions_grafana_names_what_is_there() -> None:
    sources = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/thaw.yaml").read_text())
    assert sources["datasources"][0]["type"] == "prometheus"
    providers = yaml.safe_load((ROOT / "deploy/grafana/provisioning/dashboards/thaw.yaml").read_text())
    assert providers["providers"][0]["options"]["path"].endswith("/dashboards")
