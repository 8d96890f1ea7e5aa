"""The one command: the whole path on real services, a worker killed on the way, and the object that scripts read."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from producers.simulation.standing import PERIOD
from producers.survey.survey import load_survey
from streams.local.standing_demo import WINDOWS
from tests.support.deadline import until
from tests.support.paths import ROOT
from tests.support.services import missing
from tests.support.stats import assert_binomial

pytestmark = pytest.mark.real

THAW = [sys.executable, "-m", "streams.cli"]


def demo(tmp_path: Path, *arguments: str, kill: Sequence[str] = (), hang_worker: bool = False) -> dict[str, Any]:
    """Run the demo and return its JSON object.

    Args:
        tmp_path: where its talk goes.
        arguments: its arguments.
        kill: kill these processes of it with -9 as soon as the fleet runs.
        hang_worker: stop its worker as soon as the fleet runs, and let it go on when the demo waits for it.
    """
    talk = tmp_path / "talk"
    with talk.open("wb") as stderr:
        process = subprocess.Popen([*THAW, "demo", "--json", *arguments], stdout=subprocess.PIPE, stderr=stderr)
    try:
        if kill or hang_worker:
            until(lambda: "fleet: process" in talk.read_text() or process.poll() is not None, 120, "the fleet runs")
            for name in kill or ["worker"]:
                found = re.search(rf"{name}: process (\d+)", talk.read_text())
                assert found, talk.read_text()
                os.kill(int(found[1]), signal.SIGKILL if kill else signal.SIGSTOP)
            if hang_worker:
                assert found
                waits = re.compile(r"the worker is \d+ records and \d+ windows behind; waiting")
                until(lambda: waits.search(talk.read_text()) or process.poll() is not None, 120, "the demo waits")
                os.kill(int(found[1]), signal.SIGCONT)
        stdout, _ = process.communicate(timeout=230)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, talk.read_text()
    lines = stdout.decode().splitlines()
    assert len(lines) == 1, f"exactly one JSON object on stdout; got {stdout[:500]!r}"
    for name in kill:
        assert f"{name} ended with status -9; restarting it" in talk.read_text()
    result: dict[str, Any] = json.loads(lines[0])
    return result


def check(result: dict[str, Any], *also: str) -> None:
    """Check the promises of the closing object; a scenario may have keys of its own in it."""
    assert result["backlog"] == 0
    assert result["lost"] == 0
    assert result["double"] == 0
    assert set(result) == {
        "kafka",
        "seed",
        "reports",
        "backlog",
        "lost",
        "double",
        "reports_per_second",
        "latency_seconds",
        "surveys",
        *also,
    }
    assert set(result["reports"]) == {"sent", "applied", "duplicate", "stale", "conflict", "rejected", "expired"}
    assert result["reports"]["conflict"] == result["reports"]["rejected"] == result["reports"]["expired"] == 0
    assert result["reports"]["sent"] > 0
    windows = [window for survey in result["surveys"] for window in survey["windows"]]
    assert len(windows) >= 10
    rows = [row for window in windows for row in window["estimates"]]
    assert len(rows) >= 30
    for window in windows:
        assert sum(window["rungs"]) == window["users"]
    for row in rows:
        assert set(row) == {"value", "estimate", "variance", "lower", "upper", "truth", "inside"}
        assert row["inside"] == (row["lower"] <= row["truth"] <= row["upper"])
    # One value per window, so that the trials are independent: shares of one window sum to one, a tier is told answers
    # that the whole survey counts too, and standing answers repeat their errors in every window.
    once = [survey for survey in result["surveys"] if "." not in survey["id"]][1 if "standing" in also else 0 :]
    firsts = [window["estimates"][0]["inside"] for survey in once for window in survey["windows"]]
    assert_binomial(sum(firsts), len(firsts), 0.95)


def test_the_demo_loses_nothing_when_its_worker_and_its_gateway_are_killed(kafka: str, tmp_path: Path) -> None:
    arguments = ("--kafka", kafka, "--gateway", "--seconds", "12", "--devices", "5000")
    result = demo(tmp_path, *arguments, kill=["worker", "gateway"])
    check(result)
    assert result["kafka"] == "external"


def test_the_demo_runs_on_the_embedded_broker_with_one_worker_and_counts_withdrawals(tmp_path: Path) -> None:
    arguments = ("--kafka", "embedded", "--seconds", "10", "--devices", "3000", "--scenario", "withdrawals")
    result = demo(tmp_path, *arguments)
    check(result)
    assert result["kafka"] == "embedded"
    browser, canary = result["surveys"]
    # A fifth of 3,000: outside 400 to 800 once in 10^19 windows.
    assert all(400 < window["withdrawn"] < 800 for window in browser["windows"])
    assert all(window["withdrawn"] is None for window in canary["windows"])


def test_the_demo_compares_standing_answers_with_fresh_ones(tmp_path: Path) -> None:
    arguments = ("--kafka", "embedded", "--seconds", "10", "--devices", "1000", "--scenario", "standing", "--seed", "7")
    result = demo(tmp_path, *arguments)
    check(result, "standing")
    fresh, standing = result["standing"]
    assert (fresh["way"], standing["way"]) == ("fresh", "standing")
    top = load_survey(ROOT / "deploy" / "surveys" / "browser.toml").mechanism.epsilons[-1]
    assert fresh["epsilon"] == WINDOWS * top
    # A value stays for PERIOD windows, and the first one began before the first window.
    assert top < standing["epsilon"] <= (WINDOWS / PERIOD + 1) * top
    # The seed decides all of this, not the clock.
    assert 0.5 < standing["window_error"] / fresh["window_error"] < 2
    assert standing["mean_error"] > fresh["mean_error"]
    assert standing["guessed"] < fresh["guessed"]
    assert standing["same_answer"] > fresh["same_answer"]


def test_the_demo_tells_each_tier_what_it_may_know(tmp_path: Path) -> None:
    result = demo(tmp_path, "--kafka", "embedded", "--seconds", "10", "--devices", "1000", "--scenario", "tiers")
    check(result, "tiers")
    asked = load_survey(ROOT / "deploy" / "surveys" / "browser.toml")
    told, entries = result["tiers"], {survey["id"]: survey for survey in result["surveys"]}
    assert [(tier["tier"], tier["rung"]) for tier in told] == [("public", 0), ("partners", 1), ("owner", 2)]
    assert [tier["epsilon"] for tier in told] == list(asked.mechanism.epsilons)
    bands = [tier["band"] for tier in told]
    assert bands == sorted(bands, reverse=True), "who may know more has narrower bands"
    assert len(set(bands)) == len(bands)
    for tier in told:
        windows = entries[tier["survey"]]["windows"]
        assert tier["windows"] == len(windows) > 0
        assert tier["truths"] == len(windows) * len(asked.mechanism.labels)
        assert 0 < tier["inside"] <= tier["truths"]
        assert all(sum(window["rungs"][tier["rung"] + 1 :]) == 0 for window in windows)


def test_the_demo_starts_apache_kafka_and_waits_for_a_worker_that_is_behind(kafka: str, tmp_path: Path) -> None:
    if not kafka:
        missing("Apache Kafka is not installed")
    arguments = ("--kafka", "real", "--seconds", "10", "--devices", "3000", "--seed", "11")
    result = demo(tmp_path, *arguments, hang_worker=True)
    check(result)
    assert result["kafka"] == "apache"
    assert result["seed"] == 11


def test_a_recount_of_the_demos_topic_equals_redis_while_its_devices_pause(kafka: str, tmp_path: Path) -> None:
    """By what the demo prints for other commands; while reports come without a pause, Redis is ahead of any export."""
    if not kafka:
        missing("Apache Kafka is not installed")
    talk, folder = tmp_path / "talk", str(tmp_path / "export")
    with talk.open("wb") as stderr:
        arguments = ["--json", "--kafka", kafka, "--devices", "2000"]
        process = subprocess.Popen([*THAW, "demo", *arguments], stdout=subprocess.DEVNULL, stderr=stderr)
    try:

        def printed() -> re.Match[str] | None:
            assert process.poll() is None, talk.read_text()
            return re.search(r"^for other commands: export (.*)$", talk.read_text(), re.MULTILINE)

        words = shlex.split(until(printed, 120, "the demo runs")[1])
        env = os.environ | dict(word.split("=", 1) for word in words)

        def thaw(*command: str) -> subprocess.CompletedProcess[str]:
            return subprocess.run([*THAW, *command], env=env, capture_output=True, text=True, check=False)

        until(lambda: ",settled," in thaw("estimates", "--csv").stdout, 60, "a settled window", poll_seconds=0.5)
        fleets = re.findall(r"(?:fleet|canary): process (\d+)", talk.read_text())
        assert len(fleets) == 2, talk.read_text()
        for fleet in fleets:
            os.kill(int(fleet), signal.SIGSTOP)
        told: list[str] = []

        def equal() -> dict[str, Any] | None:
            exported, done = thaw("export", folder), thaw("recount", folder, "--json")
            told[:] = [exported.stderr, done.stderr]
            found: dict[str, Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
            return None if "cannot be checked" in done.stderr else found

        try:
            counted = until(equal, 60, "an export of everything", poll_seconds=0.5)
        except AssertionError:
            pytest.fail("\n".join(told))
    finally:
        process.kill()
        process.wait()
    assert counted["equal"] == counted["windows"] >= 2, counted
