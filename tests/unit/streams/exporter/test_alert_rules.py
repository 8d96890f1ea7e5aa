"""Alert rules, their cases and their runbooks agree with each other and with the exported metrics."""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from producers.survey.survey import load_survey, parse_survey
from streams.cli.alerts import render_command
from streams.exporter.alert_rules import RUNBOOKS, AlertRenderError, check_rules
from streams.exporter.health import CONTRADICTED_P, CONTRADICTED_WINDOWS
from tests.support.paths import ROOT
from tests.support.promql import known, metrics_in
from tests.support.surveys import survey_text

PROMETHEUS = ROOT / "deploy" / "prometheus"
SURVEYS = sorted((ROOT / "deploy" / "surveys").glob("*.toml"))
RULES = PROMETHEUS / "rules" / "thaw.yaml"


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


def test_the_page_and_the_rules_agree_on_when_rungs_contradict_a_survey() -> None:
    [rule] = [rule for rule in committed_rules() if rule["alert"] == "ThawRungsContradicted"]
    assert re.findall(r">= (\d+)", rule["expr"]) == [str(CONTRADICTED_WINDOWS)]
    assert [float(number) for number in re.findall(r"< (\S+)", rule["expr"])] == [CONTRADICTED_P]


def test_rules_do_not_depend_on_surveys() -> None:
    text = RULES.read_text()
    for path in SURVEYS:
        survey = load_survey(path)
        assert survey.id not in text
        assert not any(f'"{value}"' in text for value in survey.mechanism.labels)
    assert not re.search(r"-[0-9a-f]{8}\b", text), "no survey id"


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
        for target in re.findall(r"\]\((?!https://)([^)#]+)\)", page.read_text()):
            assert (page.parent / target).resolve().exists(), f"{page.name} points to {target}"
        for name in re.findall(r"thaw_[a-z_]+", page.read_text()):
            assert known(name), f"{page.name} speaks of {name}"


def test_rules_read_only_metrics_that_exist() -> None:
    for rule in committed_rules():
        names = metrics_in(rule["expr"])
        assert names
        assert all(map(known, names)), f"{rule['alert']} reads {names}"


def test_rules_on_values_compare_always_valid_bounds_with_thresholds_and_nothing_else() -> None:
    rules = [rule for rule in committed_rules() if re.match("Thaw(Frequency|Mean)", rule["alert"])]
    assert len(rules) == 4
    for rule in rules:
        kind = "_{}_ratio" if "Frequency" in rule["alert"] else "_mean_{}"
        assert metrics_in(rule["expr"]) == {"thaw_alert" + kind.format(word) for word in ("bound", "threshold")}
        assert rule["for"] == "0s"
        assert "of windows" in rule["annotations"]["description"], "the rate of false alarms is stated"


def test_templates_query_only_metrics_that_exist() -> None:
    queried = [
        name
        for rule in committed_rules()
        for text in rule["annotations"].values()
        for name in re.findall(r"thaw_\w+(?={)", text)
    ]
    assert len(queried) >= 8
    assert all(map(known, queried)), queried


def test_a_rule_that_could_never_fire_is_refused() -> None:
    with pytest.raises(AlertRenderError, match="red is always between 0 and 1"):
        check_rules(parse_survey(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 2'))
    check_rules(parse_survey(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 0.5'))


def test_the_command_writes_rules_and_says_what_is_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke
    file = tmp_path / "colour.toml"
    file.write_text(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 0.5')
    for arguments in ([], [str(file)], ["--pipeline"], [str(file), "--pipeline"]):
        shown = run(render_command, arguments)
        assert (shown.exit_code, shown.output) == (0, RULES.read_text())
    written = run(render_command, [str(file), "--output", str(tmp_path / "rules.yaml")])
    assert (written.exit_code, written.output) == (0, "")
    assert (tmp_path / "rules.yaml").read_text() == RULES.read_text()
    base = "https://example.org/runbooks"
    for words, env in ((["--runbooks", f"{base}/"], {}), ([], {"THAW_RUNBOOKS": base})):
        elsewhere = yaml.safe_load(run(render_command, words, env=env).output)
        urls = {rule["annotations"]["runbook_url"] for group in elsewhere["groups"] for rule in group["rules"]}
        assert urls == {f"{base}/{alert}.md" for alert in ALERTS}
    quoted = run(render_command, ["--runbooks", 'x: "{{'])
    assert quoted.exit_code == 1
    assert "--runbooks must be a path or URL" in quoted.output
    file.write_text(survey_text() + '\n[[alert]]\nvalue = "pink"\nabove = 0.5')
    refused = run(render_command, [str(file)])
    assert refused.exit_code == 1
    assert "alert[0].value" in str(refused.exception), "the command line prints it without a traceback"
