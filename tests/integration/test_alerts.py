"""Alerts from end to end: devices answer, a worker counts, Prometheus judges, Alertmanager tells a webhook.

The rule has alpha 1e-6, so that being quiet below the threshold is promised up to one run in a million.
"""

import json
import shutil
import subprocess
import sys
import threading
import tomllib
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
import yaml

from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from producers.survey.survey import parse_survey
from streams.exporter.alert_rules import rules_text
from streams.local.process import Child, free_ports
from tests.integration.workers import Reports, System
from tests.support.deadline import until
from tests.support.paths import ROOT
from tests.support.prometheus import Alertmanager, Prometheus
from tests.support.services import missing, running
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

PROMETHEUS = ROOT / "deploy" / "prometheus"
THRESHOLD = 0.5
RULE = f"""
[[alert]]
value = "red"
above = {THRESHOLD}
alpha = 1e-6
"""
OWNER = "colours@example.org"


def tool(name: str, *arguments: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    program = shutil.which(name)
    if program is None:
        missing(f"{name} is not installed; Debian's packages prometheus and prometheus-alertmanager have it")
    return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False, cwd=cwd)


def test_promtool_accepts_rules_and_configuration() -> None:
    for words in (
        ["rules", *map(str, PROMETHEUS.glob("rules/*.yaml"))],
        ["config", str(PROMETHEUS / "prometheus.yml")],
    ):
        judged = tool("promtool", "check", *words)
        assert judged.returncode == 0, judged.stdout + judged.stderr
        assert "duplicate" not in judged.stdout + judged.stderr


def test_every_alert_fires_and_stays_quiet_as_its_tests_say() -> None:
    files = sorted(path.name for path in PROMETHEUS.glob("tests/*.yaml"))
    judged = tool("promtool", "test", "rules", *files, cwd=PROMETHEUS / "tests")
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert judged.stdout.count("SUCCESS") == len(files) >= 2


def test_amtool_accepts_the_configuration() -> None:
    judged = tool("amtool", "check-config", str(ROOT / "deploy" / "alertmanager" / "alertmanager.yml"))
    assert judged.returncode == 0, judged.stdout + judged.stderr


def test_alerts_carry_any_name_of_a_value_as_text(tmp_path: Path) -> None:
    values = [
        "{{ $value }}",
        '"} or vector(1) #',
        "<script>",
        "a\nb",
        "\u2028x\x85",
        "\U0001f600",
        "\\",
        "`{{`",
        "{{ end }}",
    ]
    survey = parse_survey(
        tomli_w.dumps(
            tomllib.loads(survey_text())
            | {"values": values, "alert": [{"value": value, "above": 0.5} for value in values]}
        )
    )
    series, expected = [], []
    for rule in survey.alerts:
        labels = f"survey={go_quoted(survey.id)},value={go_quoted(rule.value)},side={go_quoted(rule.side)}"
        series += [
            {"series": f"thaw_alert_threshold_ratio{{{labels}}}", "values": "0.5x5"},
            {"series": f"thaw_alert_false_alarm_ratio{{{labels}}}", "values": "0.001x5"},
            {"series": f'thaw_alert_bound_ratio{{{labels},window="1"}}', "values": "0.75x5"},
        ]
        annotations = {
            "summary": f"{rule.value} in {survey.id} is above its threshold of 50%",
            "description": "The lower bound of its share is 75% in the open window or one of the last five. The bound "
            "is always valid: false alarms occur in at most 0.1% of windows. Check the canary, then treat the change "
            "as real.",
            "runbook_url": "docs/runbooks/ThawFrequencyAboveThreshold.md",
        }
        named = {"severity": "page", "survey": survey.id, "value": rule.value}
        expected.append({"exp_labels": named, "exp_annotations": annotations})
    case = {"eval_time": "2m", "alertname": "ThawFrequencyAboveThreshold", "exp_alerts": expected}
    test = {"interval": "1m", "input_series": series, "alert_rule_test": [case]}
    shutil.copy(PROMETHEUS / "rules" / "thaw.yaml", tmp_path)
    (tmp_path / "names.yaml").write_text(yaml.safe_dump({"rule_files": ["thaw.yaml"], "tests": [test]}))
    judged = tool("promtool", "test", "rules", "names.yaml", cwd=tmp_path)
    assert judged.returncode == 0, judged.stdout + judged.stderr


def go_quoted(text: str) -> str:
    """Return a string literal of PromQL."""
    plain = {character for character in text if character.isprintable() and character not in '"\\'}
    return '"' + "".join(c if c in plain else f"\\U{ord(c):08x}" for c in text) + '"'


class Webhook:
    """Takes what Alertmanager sends."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        bodies = self.bodies

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"

    def firing(self) -> list[dict[str, Any]]:
        return [alert for body in self.bodies for alert in body["alerts"] if alert["status"] == "firing"]


@contextmanager
def webhook() -> Iterator[Webhook]:
    hook = Webhook()
    thread = threading.Thread(target=hook.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hook
    finally:
        hook.server.shutdown()
        hook.server.server_close()
        thread.join(60)


def alertmanager_config(owner: Webhook, others: Webhook) -> str:
    """Return a configuration that routes alerts on surveys of one owner to a webhook of their own."""
    return f"""
route:
  receiver: others
  group_by: [alertname, survey]
  group_wait: 0s
  group_interval: 1s
  repeat_interval: 1h
  routes:
    - matchers: ['owner="{OWNER}"']
      receiver: owner
receivers:
  - name: owner
    webhook_configs: [{{url: "{owner.url}"}}]
  - name: others
    webhook_configs: [{{url: "{others.url}"}}]
"""


def prometheus_config(ports: Mapping[str, int], alertmanager: str) -> str:
    """Return a configuration that scrapes these jobs on this machine."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]} for job, port in ports.items()
        ],
    }
    return str(yaml.safe_dump(config))


def get(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


def query(prometheus: Prometheus, expression: str) -> dict[str, float]:
    """Return the samples of an instant query, by value label."""
    answer = get(f"{prometheus.url}/api/v1/query?query={urllib.parse.quote(expression)}")
    return {sample["metric"].get("value", ""): float(sample["value"][1]) for sample in answer["data"]["result"]}


def answers(system: System, share: float, devices: int, *, seed: int) -> Reports:
    """Let devices of which exactly `share` are red answer, spread over the rungs."""
    mechanism, rng = system.survey.mechanism, np.random.default_rng(seed)
    red = round(share * devices)
    values = ["red"] * red + ["green"] * (devices - red)
    bits = SeededBits(seed)
    randomizer = randomizer_of(mechanism)
    drawn = randomizer.draw(randomizer.encode(values, bits), bits)
    rungs = rng.integers(0, mechanism.rungs, size=devices).astype(np.uint8)
    tokens = rng.integers(0, 256, size=(devices, 16), dtype=np.uint8)
    return Reports(
        system.survey, system.window_ms, tokens, drawn.answers[rungs, np.arange(devices)].astype(np.uint8), rungs
    )


def three_more_looks(prometheus: Prometheus) -> None:
    evaluated = "count_over_time(thaw_alert_bound_ratio[1h])"
    looks = query(prometheus, evaluated)["red"]
    until(lambda: query(prometheus, evaluated)["red"] >= looks + 3, 30, "three more looks")


@contextmanager
def exporter(system: System, port: int) -> Iterator[Child]:
    shown = system.settings
    env = {
        "THAW_REDIS": shown.redis,
        "THAW_PREFIX": shown.prefix,
        "THAW_SURVEYS": shown.surveys,
        "THAW_EXPORTER_PORT": str(port),
    }
    child = Child(
        "exporter", [sys.executable, "-m", "streams.cli", "exporter"], log=system.folder / "exporter.log", env=env
    )
    try:
        yield child
    finally:
        child.kill()


def test_a_jump_reaches_the_owner_of_the_survey_and_a_share_just_below_the_threshold_does_not(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    system = System(
        kafka, redis_url, topic_prefix, tmp_path, text=f'{survey_text()}{RULE}[registry]\nowner = "{OWNER}"\n'
    )
    system.create_topics()
    (tmp_path / "prometheus").mkdir()
    worker_port, exporter_port = free_ports(2)
    runbooks = f"http://127.0.0.1:{exporter_port}/runbooks"
    (tmp_path / "prometheus" / "rules.yaml").write_text(rules_text(runbooks=runbooks))
    with (
        webhook() as hook,
        webhook() as others,
        running(lambda: Alertmanager(alertmanager_config(hook, others))) as manager,
        system.worker(port=worker_port) as worker,
        exporter(system, exporter_port) as page,
        running(
            lambda: Prometheus(
                prometheus_config({"thaw-exporter": exporter_port, "thaw-worker": worker_port}, manager.address),
                folder=tmp_path / "prometheus",
            )
        ) as prometheus,
    ):

        def users(expected: int) -> bool:
            worker.check()
            page.check()
            return query(prometheus, "sum(thaw_users)").get("") == expected

        devices = 12_000
        system.produce(answers(system, THRESHOLD - 0.02, devices, seed=1).messages(system.settings.partitions))
        until(lambda: users(devices), 90, "Prometheus to see all users")
        seen = query(prometheus, "thaw_alert_bound_ratio")["red"]
        estimated = query(prometheus, "thaw_frequency_estimate_ratio")["red"]
        assert THRESHOLD - 0.15 < seen < THRESHOLD, "the bound is near, so the rule has something to judge"
        assert abs(estimated - (THRESHOLD - 0.02)) < 0.05
        three_more_looks(prometheus)
        assert hook.bodies == []
        assert get(f"{manager.url}/api/v2/alerts") == []

        system.produce(answers(system, 0.95, devices, seed=2).messages(system.settings.partitions))
        told = until(hook.firing, 90, "the owner's webhook to be told")
        [alert] = told
        assert others.firing() == []
        assert alert["labels"] == {
            "alertname": "ThawFrequencyAboveThreshold",
            "owner": OWNER,
            "severity": "page",
            "survey": system.survey.id,
            "value": "red",
        }
        assert alert["annotations"]["summary"] == f"red in {system.survey.id} is above its threshold of 50%"
        assert "at most 0.0001% of windows" in alert["annotations"]["description"]
        [active] = get(f"{manager.url}/api/v2/alerts")
        assert active["labels"] == alert["labels"]
        for linked in (alert, active):
            with urllib.request.urlopen(linked["annotations"]["runbook_url"], timeout=30) as runbook:
                assert runbook.read().startswith(b"# ThawFrequencyAboveThreshold\n")
        assert query(prometheus, "max(thaw_alert_bound_ratio)")[""] > THRESHOLD
