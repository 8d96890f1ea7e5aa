"""Rules, their tests, their runbooks and the dashboards hang together: nothing is named that does not exist."""

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import tomli_w
import yaml
from click.testing import CliRunner

from producers.survey.survey import load_survey, parse_survey
from streams.cli.alerts import render_command
from streams.exporter.alert_rules import RUNBOOKS, AlertRenderError, pipeline_group, quoted, render, survey_group
from streams.metrics import METRICS, TABLE
from tests.support.grafana import DASHBOARDS, FOLDER, text_of
from tests.support.paths import ROOT
from tests.support.surveys import survey_text

PROMETHEUS = ROOT / "deploy" / "prometheus"
SURVEYS = sorted((ROOT / "deploy" / "surveys").glob("*.toml"))
GENERATE = "write it again: make generated"


def committed_rules() -> list[dict[str, Any]]:
    groups = [group for path in PROMETHEUS.glob("rules/*.yaml") for group in yaml.safe_load(path.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"]]


ALERTS = sorted({rule["alert"] for rule in committed_rules()})


def cases() -> Iterator[dict[str, Any]]:
    for path in PROMETHEUS.glob("tests/*.yaml"):
        data = yaml.safe_load(path.read_text())
        assert all(not Path(file).is_absolute() for file in data["rule_files"])
        for test in data["tests"]:
            yield from test["alert_rule_test"]


def metrics_in(expression: str) -> set[str]:
    """Return the names that a query reads; raises if PromQL does not allow it."""
    promql_parser.parse(expression)
    return set(re.findall(r"\b(?:thaw_\w+|up)\b", re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)))


def known(name: str) -> bool:
    return name == "up" or name in TABLE or name.removesuffix("_bucket") in TABLE


def test_the_committed_rules_are_those_of_the_committed_surveys() -> None:
    surveys = [survey_group(load_survey(path)) for path in SURVEYS]
    assert (PROMETHEUS / "rules" / "surveys.yaml").read_text() == render(surveys), GENERATE
    assert (PROMETHEUS / "rules" / "pipeline.yaml").read_text() == render([pipeline_group()]), GENERATE


def test_every_alert_has_a_case_in_which_it_fires_and_one_in_which_it_stays_quiet() -> None:
    seen: dict[str, set[str]] = defaultdict(set)
    for case in cases():
        seen[case["alertname"]].add("fires" if case["exp_alerts"] else "quiet")
    assert seen == {alert: {"fires", "quiet"} for alert in ALERTS}


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_runbook_and_says_where(alert: str) -> None:
    page = (ROOT / RUNBOOKS / f"{alert}.md").read_text()
    assert page.startswith(f"# {alert}\n")
    assert "## What it means" in page
    assert "## What to do" in page
    assert f"({alert}.md)" in (ROOT / RUNBOOKS / "README.md").read_text()
    for rule in committed_rules():
        if rule["alert"] == alert:
            assert rule["annotations"]["runbook_url"] == f"{RUNBOOKS}/{alert}.md"
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert f"**Severity** {rule['labels']['severity']}." in page
            for name in metrics_in(rule["expr"]):
                assert f"`{name}" in page, f"the page does not say that {name} is read"


def test_there_is_no_runbook_without_an_alert() -> None:
    assert sorted(path.stem for path in (ROOT / RUNBOOKS).glob("Thaw*.md")) == ALERTS


def test_links_between_runbooks_lead_somewhere() -> None:
    for page in (ROOT / RUNBOOKS).glob("*.md"):
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            assert (page.parent / target).resolve().exists(), f"{page.name} points to {target}"
        for name in re.findall(r"thaw_[a-z_]+", page.read_text()):
            assert known(name), f"{page.name} speaks of {name}"


def test_rules_read_only_metrics_that_exist() -> None:
    for rule in committed_rules():
        names = metrics_in(rule["expr"])
        assert names
        assert all(map(known, names)), f"{rule['alert']} reads {names}"


def test_rules_on_values_read_always_valid_bounds_and_nothing_else() -> None:
    rules = [rule for rule in committed_rules() if rule["alert"].startswith("ThawFrequency")]
    assert rules
    for rule in rules:
        assert metrics_in(rule["expr"]) == {"thaw_alert_bound_ratio"}
        assert rule["for"] == "0s"
        assert "% of windows" in rule["annotations"]["description"], "the rate of false alarms is stated"


def test_thresholds_come_from_the_survey_file() -> None:
    text = survey_text() + (
        '\n[[alert]]\nvalue = "red"\nabove = 0.123\n\n[limits]\nband = 0.077\nstale = "7m"\nbudget = 0.66\nflood = 31'
    )
    rendered = render([survey_group(parse_survey(text))], runbooks="https://example.org/runbooks/")
    for threshold in ("> 0.123", "> 0.077", "> 420", "> 0.66", "> 31"):
        assert threshold in rendered
    assert '"https://example.org/runbooks/ThawBandTooWide.md"' in rendered
    assert "ThawBandTooWide" not in render([survey_group(parse_survey(survey_text()))])
    assert "ThawCanary" not in rendered


def test_a_value_may_be_called_anything() -> None:
    values = ["{{ $value }}", '"} or vector(1) #', "<script>alert(1)</script>", "a\nb", "\u2028x\x85", "\U0001f600"]
    data = tomllib.loads(survey_text()) | {"values": values, "alert": [{"value": v, "below": 0.1} for v in values]}
    survey = parse_survey(tomli_w.dumps(data))
    [group] = yaml.safe_load(render([survey_group(survey)]))["groups"]
    for value, rule in zip(values, group["rules"], strict=False):
        assert rule["alert"] == "ThawFrequencyBelowThreshold"
        assert metrics_in(rule["expr"]) == {"thaw_alert_bound_ratio"}
        assert rule["labels"]["value"] == (f"{{{{ {quoted(value)} }}}}" if "{{" in value else value)
        assert not any(value in text for text in rule["annotations"].values())


def test_a_rule_that_could_never_speak_is_refused() -> None:
    with pytest.raises(AlertRenderError, match="red is always between 0 and 1"):
        survey_group(parse_survey(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 2'))


def test_the_command_writes_rules_and_says_what_is_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke
    file = tmp_path / "colour.toml"
    file.write_text(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 0.5')
    shown = run(render_command, [str(file), "--pipeline"])
    assert shown.exit_code == 0
    assert [group["name"][:6] for group in yaml.safe_load(shown.output)["groups"]] == ["thaw-p", "colour"]
    written = run(render_command, [str(file), "--output", str(tmp_path / "rules.yaml")])
    assert (written.exit_code, written.output) == (0, "")
    assert "ThawFrequencyAboveThreshold" in (tmp_path / "rules.yaml").read_text()
    assert run(render_command, []).exit_code == 2
    twice = run(render_command, [str(file), str(file)])
    assert twice.exit_code == 1
    assert "the same survey" in twice.output
    file.write_text(survey_text() + '\n[[alert]]\nvalue = "pink"\nabove = 0.5')
    refused = run(render_command, [str(file)])
    assert refused.exit_code == 1
    assert "alert[0].value" in refused.output


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
