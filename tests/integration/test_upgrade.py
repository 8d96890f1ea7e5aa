"""An upgrade, and a loss of everything: old and new versions of wire and store side by side, and back from Kafka."""

import json
import signal
import sys
from pathlib import Path

import pytest
import redis

from estimators.tally import Tally
from streams.store.redis import RedisStore
from streams.store.shape import Shape
from streams.worker.dead_letters import REASON_HEADER
from tests.integration.commands import Thaw, commands
from tests.integration.workers import System, headers, run_thaw
from tests.support.deadline import END_SECONDS, until
from tests.support.next_version import to_next

pytestmark = pytest.mark.real

NEXT = (sys.executable, "-m", "tests.support.next_version")


@pytest.fixture
def thaw(system: System, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Thaw:
    """Run commands of this version here."""
    return commands(system.settings, capfd, monkeypatch)


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


def test_frames_of_a_newer_version_wait_as_dead_letters_for_the_upgrade(
    system: System, thaw: Thaw, monkeypatch: pytest.MonkeyPatch
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
        shown = json.loads(thaw("deadletters", "list", "--json", "--limit", "3").out)
        assert [entry["reason"] for entry in shown] == ["version"] * 3
        assert shown[-1]["number"] == letters - 1
        assert "this worker reads version 1, 2; got 3" in thaw("deadletters", "show", "0").out
        assert thaw("deadletters", "show", "999999").status == 1
        # Today's version knows that it cannot count them, and sends nothing in vain.
        vain = thaw("deadletters", "replay", "--json")
        assert (vain.status, json.loads(vain.out)["still_dead"]) == (1, {"version": letters})
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(END_SECONDS)

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
        assert worker.wait(END_SECONDS)

    monkeypatch.setattr("streams.store.redis_connection.VERSION", "v2")
    other_keys = RedisStore.connect(system.settings.redis, prefix=system.settings.prefix)

    def counted() -> Tally:
        return other_keys.estimates.tally(
            system.survey.id, system.window_ms, system.survey.shards, Shape.of(system.survey)
        )

    assert counted().total_users == 0
    with system.worker(command=(*NEXT, "--keys")) as worker:
        until(lambda: counted() == everything, 60, "all of Kafka counted under the new keys")
    assert system.tally() == everything, "the old layout is left alone, for a way back"
    other_keys.close()


def test_a_lost_redis_comes_back_from_kafka(system: System, thaw: Thaw) -> None:
    reports = system.reports(5_000)
    with system.worker() as worker:
        system.produce(reports.messages(8, limit_bytes=4_096))
        system.wait_for_tally(reports.tally(), worker)
        assert thaw("rebuild", "colour").status == 0
        client = redis.Redis.from_url(system.settings.redis)
        gone = [key for key in client.scan_iter(f"{system.settings.prefix}*") if b":offset:" not in key]
        client.delete(*gone)
        client.close()
        found = thaw("rebuild", "colour", "--json")
        assert found.status == 1
        [window] = json.loads(found.out)[0]["windows"]
        assert window == {
            "start_ms": system.window_ms,
            "status": "differs",
            "users": 5_000,
            "users_stored": 0,
            "missing": 5_000,
            "extra": 0,
            "complete": True,
        }
        dry = thaw("rebuild", system.survey.id, "--replace", "--dry-run")
        assert (dry.status, "would be replaced" in dry.out) == (1, True)
        assert dry.out.splitlines()[-1] == "1 windows: 1 differs; 5,000 users, 5,000 reports missing, 0 too many"
        assert " records read, 1 windows compared\n" in dry.err
        assert system.tally().total_users == 0
        window_flag = f"--window={system.window_ms}"
        assert thaw("rebuild", "colour", "--replace", window_flag).status == 0
        assert system.tally() == reports.tally()
        # The worker goes on where it was, on logs that are not the ones it remembers.
        more = system.reports(1_000, seed=2)
        system.produce(more.messages(8))
        system.wait_for_tally(reports.tally() + more.tally(), worker)
        until(lambda: system.store.estimates.read(system.survey.id, system.window_ms), 30, "an estimate of it")
    assert thaw("rebuild", "colour").status == 0


def test_commands_on_kafka_say_when_it_is_away(system: System, thaw: Thaw) -> None:
    for command in (["rebuild", "colour"], ["deadletters", "list"]):
        away = thaw(*command, "--kafka", "127.0.0.1:1")
        assert away.status == 75, away.err
        assert "no broker answered" in away.err
    unknown = thaw("rebuild", "nobody")
    assert (unknown.status, "no survey 'nobody'" in unknown.err) == (1, True)
