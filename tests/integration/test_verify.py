"""`thaw verify` on real Kafka and Redis: equal while reports come and after, different once somebody changed it."""

import json
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest
import redis

from streams.store.shape import Key, Shape
from streams.windows.record import decode_estimate
from streams.worker.table import Table
from tests.integration.commands import Thaw, commands
from tests.integration.workers import System, run_thaw
from tests.support.deadline import until

pytestmark = pytest.mark.real

NO_REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture
def system(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> System:
    made = System(kafka, redis_url, topic_prefix, tmp_path)
    made.create_topics()
    return made


@pytest.fixture
def thaw(system: System, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Thaw:
    return commands(system.settings, capfd, monkeypatch)


def checked(thaw: Thaw, *options: str) -> tuple[int, dict[str, Any]]:
    """Return the exit status and the one window that was checked."""
    done = thaw("verify", "colour", "--json", *options)
    [survey] = json.loads(done.out)["surveys"]
    [window] = survey["windows"]
    return done.status, window


def equal_or_unknown(thaw: Thaw) -> bool:
    """Return whether the published estimate is equal; one that is not published yet or has no proof yet is neither."""
    done = thaw("verify", "colour", "--json", "--redis", NO_REDIS)
    windows = [window for survey in json.loads(done.out)["surveys"] for window in survey["windows"]] if done.out else []
    assert all(window["status"] != "different" for window in windows), windows
    return [window["status"] for window in windows] == ["equal"] and done.status == 0


def settled(system: System, users: int) -> None:
    """Wait until the estimate contains everybody and nothing is left to do for it."""

    def done() -> bool:
        payload = system.store.estimates.read(system.survey.id, system.window_ms)
        return payload is not None and decode_estimate(payload).users == users and not system.store.queue.entries()

    until(done, 60, f"an estimate of {users} users")


def test_estimates_are_equal_under_load_and_after_and_different_once_changed(system: System, thaw: Thaw) -> None:
    rounds = [system.reports(4_000, seed=seed) for seed in range(6)]
    stop = threading.Event()

    def load() -> None:
        """Send small batches for as long as they are looked at."""
        at = 0
        while not stop.is_set():
            system.produce(rounds[at % len(rounds)].messages(8, limit_bytes=2_048))
            at += 1

    with system.worker(), system.worker(instance="two"):
        system.produce(rounds[0].messages(8))
        sender = threading.Thread(target=load)
        sender.start()
        try:
            for _ in range(2):
                until(lambda: equal_or_unknown(thaw), 60, "an estimate that is equal")
        finally:
            stop.set()
            sender.join()
        for one in rounds:
            system.produce(one.messages(8))
        everyone = sum(len(one.tokens) for one in rounds)
        settled(system, everyone)
        for source in ("topic", "redis"):
            status, window = checked(thaw, "--source", source)
            assert (status, window["status"], window["users"]) == (0, "equal", everyone)
            assert window["winners_compared"]
            assert window["identical"], "this machine computes every number again to the last bit"

        _add_a_user(system)
        settled(system, everyone + 1)
        for source in ("topic", "redis"):
            status, window = checked(thaw, "--source", source)
            assert (status, window["status"]) == (1, "different")
            assert set(window["differences"]) == {"tally", "winners", "estimate"}
            assert window["differences"]["tally"] == f"counted for {everyone + 1:,} users; the topic has {everyone:,}"
        shown = thaw("verify", "colour")
        assert shown.status == 1
        assert "different: 24,001 users\n    tally: counted for 24,001 users; the topic has 24,000" in shown.out
        assert shown.out.splitlines()[-1] == "1 windows: 1 different"
    _change_the_estimate(system)
    status, window = checked(thaw, "--source", "redis")
    assert status == 1
    assert window["differences"]["estimate"].startswith("users is 5, recounted 24000")


def _add_a_user(system: System) -> None:
    """Add a made-up report to the log of a shard, with head and tally to match, and let the window be estimated again.

    A tally alone would soon be found to contradict its log.
    """
    key, shape = Key(system.survey.id, system.window_ms, 3), Shape.of(system.survey)
    entry = bytearray(16)
    entry[:13], entry[13], entry[14] = b"never sent it", 1, 2

    def forged() -> bool:
        seen = system.store.log.seen([key])[key]
        held = system.store.log.load([key], shape, Table.of_log, whole=True)[key].entries
        limit = system.store.log.offsets(system.settings.reports_topic, 3, [3])[3]
        return system.store.log.replace(key, seen, Table.of_log(shape, held + bytes(entry)), limit=limit)

    until(forged, 30, "a log that is forged while workers look at it")
    system.store.queue.put([(system.survey.id, system.window_ms)])


def _change_the_estimate(system: System) -> None:
    client = redis.Redis.from_url(system.settings.redis)
    key = system.store.estimates._connection.survey_key(system.survey.id, "estimate", system.window_ms)
    payload: Any = client.get(key)
    record = msgspec.structs.replace(decode_estimate(payload), users=5)
    client.set(key, record.encode(), keepttl=True)
    client.close()


def test_without_estimates_there_is_nothing_to_check(system: System, thaw: Thaw) -> None:
    done = run_thaw(system.settings, "verify")
    assert (done.returncode, done.stdout) == (1, "0 windows: no estimate to check\n")
    wrong = thaw("verify", "colour", "--window", "61")
    assert wrong.status == 1
    assert "windows start at multiples of their step" in wrong.err
    away = thaw("verify", "--source", "redis", "--redis", NO_REDIS)
    assert away.status == 75
    assert "Redis does not answer" in away.err
