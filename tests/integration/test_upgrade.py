"""An upgrade, and a loss of everything: old and new versions of wire and store side by side, and back from Kafka."""

import json
import signal
import sys
from pathlib import Path

import pytest
import redis

from estimators.tally import Tally
from streams.deadletter import REASON_HEADER
from streams.redis_store import RedisStore
from streams.store import Shape
from tests.integration.workers import System, headers, run_thaw
from tests.support.deadline import until
from tests.support.next_version import to_next

pytestmark = pytest.mark.real

NEXT = (sys.executable, "-m", "tests.support.next_version")


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


def test_frames_of_a_newer_version_wait_as_dead_letters_for_the_upgrade(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = system.reports(2_000), system.reports(300, seed=2)
    frames = {
        partition: [to_next(frame, system.survey) for frame in messages]
        for partition, messages in new.messages(8, limit_bytes=1).items()
    }
    letters = sum(map(len, frames.values()))
    with system.worker() as worker:
        system.produce(old.messages(8))
        system.produce(frames)
        system.wait_for_tally(old.tally(), worker)
        refused = system.read(system.settings.dead_letters_topic, letters)
        assert {headers(letter)[REASON_HEADER] for letter in refused} == {b"version"}
        listed = run_thaw(system.settings, "deadletters", "list", "--json", "--limit", "3")
        shown = json.loads(listed.stdout)
        assert [entry["reason"] for entry in shown] == ["version"] * 3
        assert shown[-1]["number"] == letters - 1
        told = run_thaw(system.settings, "deadletters", "show", "0").stdout
        assert "this worker reads version 1; got 2" in told
        # Today's version knows that it cannot count them, and sends nothing in vain.
        vain = run_thaw(system.settings, "deadletters", "replay", "--json")
        assert (vain.returncode, json.loads(vain.stdout)["still_dead"]) == (1, {"version": letters})
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30)

    with system.worker(command=NEXT) as worker:
        planned = run_thaw(system.settings, "deadletters", "replay", "--dry-run", "--json", command=NEXT)
        assert json.loads(planned.stdout) == {"sent": letters, "copies": 0, "still_dead": {}, "dry_run": True}
        assert system.tally() == old.tally()
        for _ in range(2):
            done = run_thaw(system.settings, "deadletters", "replay", "--reason", "version", "--json", command=NEXT)
            assert (done.returncode, json.loads(done.stdout)["sent"]) == (0, letters), done.stderr
            system.wait_for_tally(old.tally() + new.tally(), worker)
        # Old devices go on sending as they always did.
        more = system.reports(1_000, seed=3)
        system.produce(more.messages(8))
        everything = old.tally() + new.tally() + more.tally()
        system.wait_for_tally(everything, worker)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(30)

    monkeypatch.setattr("streams.redis_store.VERSION", "v2")
    other_keys = RedisStore.connect(system.settings.redis, prefix=system.settings.prefix)

    def counted() -> Tally:
        return other_keys.tally(system.survey.id, system.window_ms, system.survey.shards, Shape.of(system.survey))

    assert counted().total_users == 0
    with system.worker(command=(*NEXT, "--keys")) as worker:
        until(lambda: counted() == everything, 60, "all of Kafka counted under the new keys")
    assert system.tally() == everything, "the old layout is left alone, for a way back"
    other_keys.close()


def test_a_lost_redis_comes_back_from_kafka(system: System) -> None:
    reports = system.reports(5_000)
    with system.worker() as worker:
        system.produce(reports.messages(8, limit_bytes=4_096))
        system.wait_for_tally(reports.tally(), worker)
        assert run_thaw(system.settings, "rebuild", "colour").returncode == 0
        client = redis.Redis.from_url(system.settings.redis)
        gone = [key for key in client.scan_iter(f"{system.settings.prefix}*") if b":offset:" not in key]
        client.delete(*gone)
        client.close()
        found = run_thaw(system.settings, "rebuild", "colour", "--json")
        assert found.returncode == 1
        [window] = json.loads(found.stdout)[0]["windows"]
        assert window == {
            "start_ms": system.window_ms,
            "status": "differs",
            "users": 5_000,
            "users_stored": 0,
            "missing": 5_000,
            "extra": 0,
            "complete": True,
        }
        dry = run_thaw(system.settings, "rebuild", system.survey.id, "--replace", "--dry-run")
        assert (dry.returncode, "would be replaced" in dry.stdout) == (1, True)
        assert system.tally().total_users == 0
        window_flag = f"--window={system.window_ms}"
        assert run_thaw(system.settings, "rebuild", "colour", "--replace", window_flag).returncode == 0
        assert system.tally() == reports.tally()
        # The worker goes on where it was, on logs that are not the ones it remembers.
        more = system.reports(1_000, seed=2)
        system.produce(more.messages(8))
        system.wait_for_tally(reports.tally() + more.tally(), worker)
        until(lambda: system.store.estimate(system.survey.id, system.window_ms), 30, "an estimate of it")
    assert run_thaw(system.settings, "rebuild", "colour").returncode == 0


def test_commands_on_kafka_say_when_it_is_away(system: System) -> None:
    for command in (["rebuild", "colour"], ["deadletters", "list"]):
        away = run_thaw(system.settings, *command, THAW_KAFKA="127.0.0.1:1")
        assert away.returncode == 75, away.stderr
        assert "no broker answered" in away.stderr
    unknown = run_thaw(system.settings, "rebuild", "nobody")
    assert (unknown.returncode, "no survey 'nobody'" in unknown.stderr) == (1, True)
