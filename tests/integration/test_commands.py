"""Commands while services are away: they say it and are not ready, or wait and go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from producers.clock import system_clock
from streams.folders import deploy_folder
from streams.kafka.topics import Topics, wanted
from streams.local.demo_surveys import DemoSurvey, scaled_copy
from streams.local.process import Child
from streams.local.redis import Redis
from streams.settings import Settings
from streams.store.connect import open_truths
from tests.integration.workers import THAW
from tests.support.deadline import END_SECONDS, until
from tests.support.processes import hung
from tests.support.services import running
from tests.support.surveys import survey_text
from tests.support.telling import Tells

pytestmark = pytest.mark.real

REDIS = [f"Redis (for {what}; reports are sent all the same)" for what in ("the simulated truth", "the canary's audit")]
"""What a canary's fleet calls Redis, once for each of its uses."""


def test_an_unreachable_broker_is_told_by_every_command_that_needs_one(tmp_path: Path, tells: Tells) -> None:
    """Side by side, since each waits for a while; but one of them alone, to see for how long."""
    (tmp_path / "colour.toml").write_text(survey_text())
    commands = [
        ["topics", "create"],
        ["deadletters", "list"],
        ["deadletters", "show", "1"],
        ["deadletters", "replay"],
        ["rebuild", "colour"],
        ["verify", "colour"],
        ["export", str(tmp_path / "export")],
        ["topics", "migrate", "--to", "16"],
        ["fleet", "--windows", "1"],
        ["demo", "--kafka", "127.0.0.1:1"],
    ]
    env = {**os.environ, "THAW_KAFKA": "127.0.0.1:1", "THAW_SURVEYS": str(tmp_path)}
    processes = [
        subprocess.Popen([*THAW, *command], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for command in commands
    ]
    for command, process in zip(commands, processes, strict=True):
        out, err = process.communicate(timeout=END_SECONDS)
        assert (process.returncode, out) == (75, ""), (command, err)
        assert "Traceback" not in err
        assert "no broker answered at 127.0.0.1:1 (" in err
        assert "; check THAW_KAFKA" in err
    tells.begin()
    with subprocess.Popen(
        [*THAW, *commands[0]], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as alone:
        assert alone.wait(END_SECONDS) == 75
    tells.note("No broker answers a command", f"thaw {' '.join(commands[0])}")


@pytest.fixture
def redis() -> Iterator[Redis]:
    """Return a Redis of the test's own, to be stopped and killed."""
    with running(Redis) as service:
        yield service


def test_a_canary_fleet_goes_on_while_redis_hangs_and_while_it_is_gone(
    kafka: str, topic_prefix: str, redis: Redis, tmp_path: Path, tells: Tells
) -> None:
    canary: DemoSurvey = scaled_copy(deploy_folder("surveys") / "canary.toml", tmp_path, 20)
    settings = Settings(kafka=kafka, redis=redis.url, prefix=topic_prefix, surveys=str(tmp_path))
    Topics(settings).create(wanted(settings, [canary.survey]))
    env = {f"THAW_{name.upper()}": getattr(settings, name) for name in ("kafka", "redis", "prefix", "surveys")}
    truths = open_truths(settings)
    began_ms = system_clock()
    fleet = Child("fleet", [*THAW, "fleet", "--canary", "--json"], log=tmp_path / "fleet.log", env=env)

    def told(times: int, what: str) -> None:
        def seen() -> bool:
            fleet.check()
            return all(fleet.log.read_text().count(f"{words} is {what}") >= times for words in REDIS)

        until(seen, 60, f"the fleet says that Redis is {what}")

    def starts(first_ms: int, last_ms: int) -> range:
        step_ms = canary.survey.windows.step_ms
        return range(canary.survey.windows.latest(first_ms), last_ms, step_ms)

    def has_truth(window_ms: int) -> bool:
        fleet.check()
        return truths.read(canary.survey.id, window_ms) is not None

    def settles_after(moment_ms: int) -> None:
        """Wait for the whole truth of a window that began after a moment."""
        first_ms = canary.survey.windows.latest(moment_ms) + canary.survey.windows.step_ms

        def settled() -> bool:
            fleet.check()
            truth = truths.read(canary.survey.id, first_ms)
            return truth is not None and truth.settled and truth.devices > 0

        until(settled, 60, "the truth of a window of the outage is in Redis")

    try:
        until(lambda: any(map(has_truth, starts(began_ms, system_clock()))), 60, "the fleet has begun")
        hung_ms = system_clock()
        with hung(redis.child):
            tells.begin()
            told(1, "down")
            tells.note("Redis is down or hangs while a canary", "log of the fleet")
        told(1, "up again")
        settles_after(hung_ms)
        gone_ms = system_clock()
        redis.kill()
        told(2, "down")
        redis.start()
        told(2, "up again")
        settles_after(gone_ms)
        fleet.send_signal(signal.SIGTERM)
        assert fleet.wait(END_SECONDS)
        assert fleet.returncode == 0, fleet.tail()
    finally:
        fleet.kill()
    text = fleet.log.read_text()
    assert "Traceback" not in text
    assert json.loads(text.splitlines()[-1])["reports"] > 0
