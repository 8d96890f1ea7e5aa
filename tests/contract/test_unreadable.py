"""A report log that cannot be read is set aside: the same tests on the store in memory and on a real Redis."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from streams.store.contract import StoreCorruptError, StoreRepairedError
from streams.store.counters import Counters
from streams.store.heartbeats import Heartbeat
from streams.store.redis import RedisStore
from streams.store.redis_sources import Source
from streams.worker.table import Table
from tests.support.clock import ManualClock
from tests.support.damaged import COLOUR, KEY, NOW_MS, OTHER, SHAPE, Damaged, on_redis
from tests.support.reports import TOPIC, WINDOW, WINDOW_MS, shard_of


def test_an_unreadable_tally_is_made_again_from_its_log_and_no_window_waits(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("tally")
    assert damaged.recomputer.tick() == 2
    assert sorted(damaged.published) == [OTHER, WINDOW]
    assert damaged.equal()
    assert (damaged.counted("tally"), damaged.counted("log")) == (1, 0)
    assert damaged.store.unreadable.entries() == []


def test_one_unreadable_log_is_set_aside_and_all_others_go_on(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("log")
    damaged.restart()
    damaged.send(seed=2)
    assert damaged.equal(OTHER), "the other window has all of its reports"
    assert [queued[:2] for queued in damaged.store.unreadable.entries()] == [(COLOUR.id, WINDOW)]
    assert damaged.recomputer.tick() == 1
    assert damaged.published == [OTHER], "no estimate from a part of the reports"
    assert damaged.counted("log") == 1


def test_a_window_that_was_set_aside_is_rebuilt_from_kafka(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("log")
    damaged.restart()
    damaged.send(seed=2)
    damaged.send(seed=3)
    assert not damaged.equal()
    assert damaged.rebuilder.look() == 1
    assert damaged.equal()
    assert damaged.store.unreadable.entries() == []
    damaged.recomputer.tick()
    assert sorted(damaged.published) == [OTHER, WINDOW]
    damaged.send(seed=4)
    assert damaged.equal(), "and work goes on from there"
    assert damaged.rebuilder.look() == 0


def test_both_unreadable_at_once(damaged: Damaged) -> None:
    """Nobody sends: the tick meets the tally first, and then its log."""
    damaged.send(seed=1)
    damaged.damage("tally")
    damaged.damage("log")
    assert damaged.recomputer.tick() == 1
    assert damaged.published == [OTHER]
    assert damaged.rebuilder.look() == 1
    assert damaged.equal()
    assert damaged.recomputer.tick() == 1


def test_a_log_that_changed_since_it_was_seen_is_not_set_aside(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("log")
    with pytest.raises(StoreCorruptError) as caught:
        damaged.store.log.load([KEY, KEY._replace(window_ms=OTHER)], SHAPE, Table.of_log)
    assert list(caught.value.logs) == [KEY]
    seen = caught.value.logs[KEY]
    table = Table(SHAPE)
    assert damaged.store.log.replace(KEY, seen, table)
    assert not damaged.store.log.set_aside(KEY, seen)


def test_reports_that_come_during_a_rebuild_are_not_lost(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("log")
    damaged.restart()
    damaged.send(seed=2)
    reads = []

    def before_read() -> None:
        reads.append(1)
        if len(reads) == 2:
            damaged.send(seed=3)

    damaged.topic.before_read = before_read
    assert damaged.rebuilder.look() == 1
    assert len(reads) > 2, "what had changed was compared once more"
    assert damaged.equal()


def test_a_window_that_a_wrong_clock_takes_for_expired_is_rebuilt(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("log")
    damaged.restart()
    damaged.send(seed=2)
    ahead = damaged.rebuilder_at(ManualClock(NOW_MS + 9 * SHAPE.life_ms))
    assert ahead.look() == 1
    assert damaged.equal()


def test_after_a_topic_was_made_again_a_rebuild_takes_no_count_away(damaged: Damaged) -> None:
    damaged.send(seed=1)
    damaged.damage("log")
    damaged.topic_made_again()
    damaged.sent[WINDOW] = [report for report in damaged.sent[WINDOW] if shard_of(report.token, COLOUR) != KEY.shard]
    damaged.restart()
    damaged.send(seed=2)
    assert damaged.rebuilder.look() == 1
    assert damaged.equal(), "all but the unreadable part of what only the old topic held"


def test_an_expired_window_is_not_rebuilt(damaged: Damaged) -> None:
    expired = damaged.store.now_ms() - SHAPE.life_ms
    damaged.store.unreadable.put([(COLOUR.id, expired - expired % WINDOW_MS)])
    assert damaged.rebuilder.look() == 0
    assert damaged.store.unreadable.entries() == []


@pytest.mark.real
def test_keys_of_a_wrong_type_are_removed_and_made_again(redis_url: str, key_prefix: str) -> None:
    """Every kind of key in turn: neither counting nor estimating stops, and no report is lost."""
    real = RedisStore.connect(redis_url, prefix=key_prefix)
    client: Any = real._client
    damaged = on_redis(real, ManualClock(NOW_MS))
    kinds: set[str] = set()
    source = Source("cluster", "topic")
    for turn in range(40):
        damaged.restart()
        damaged.send(seed=turn)
        _patiently(lambda: real.heartbeats.publish(Heartbeat("one", NOW_MS, None, None, None, None)))
        _patiently(lambda: real.log.count(COLOUR.id, WINDOW, Counters(expired=1), SHAPE.expires_ms(WINDOW)))
        _patiently(lambda: real.sources.counted_since(TOPIC, source, NOW_MS))
        _patiently(lambda: real.sources.claim(TOPIC, source))
        _patiently(damaged.rebuilder.look)
        _patiently(damaged.recomputer.tick)
        assert damaged.equal(), kinds
        assert _patiently(real.heartbeats.read)
        assert _patiently(lambda: real.estimates.read(COLOUR.id, WINDOW))
        assert _patiently(lambda: real.estimates.window_starts(COLOUR.id))
        assert _patiently(lambda: real.log.counters(COLOUR.id)).applied
        found = {
            re.sub(r"\d+", "", key.decode().removeprefix(key_prefix)): key
            for key in client.scan_iter(match=f"{key_prefix}*", count=1_000)
        }
        left = sorted(kind for kind in found if kind not in kinds)
        if not left:
            break
        kinds.add(left[0])
        client.delete(found[left[0]])
        client.pfadd(found[left[0]], "x") if b"}:log" in found[left[0]] else client.sadd(found[left[0]], "x")
    assert not left
    assert len(kinds) > 16
    assert {kind.rpartition("}:")[2].partition(":")[0] for kind in kinds} >= {"log", "counters", "windows", "beats"}
    real.close()


@pytest.mark.real
def test_counters_and_names_that_are_none_stop_nobody(redis_url: str, key_prefix: str) -> None:
    """Somebody wrote into hashes and sorted sets of the right type what no worker writes."""
    real = RedisStore.connect(redis_url, prefix=key_prefix)
    client: Any = real._client
    damaged = on_redis(real, ManualClock(NOW_MS))
    damaged.send(seed=1)
    assert damaged.recomputer.tick() == 2
    base = f"{key_prefix}thaw:v1:"
    for key in (f"{base}{{{COLOUR.id}}}:counters", f"{base}{{{COLOUR.id}}}:counters:{WINDOW}"):
        client.hset(key, mapping={"expired": "many", b"\xff": "1"})
    for key in ("dirty}:windows", "dirty}:unreadable", f"{COLOUR.id}}}:windows", "workers}:beats"):
        client.zadd(f"{base}{{{key}", {b"\xff": 1e15, "x:y": 1e15})
    client.hset(f"{base}{{1}}:head:{COLOUR.id}:now".encode() + b"\xff", "stamp", "x")
    client.delete(f"{base}{{dirty}}:run")
    for window_ms in (None, WINDOW):
        real.log.count(COLOUR.id, WINDOW, Counters(expired=2), SHAPE.expires_ms(WINDOW))
        assert real.log.counters(COLOUR.id, window_ms).expired == (2 if window_ms is None else 4)
    assert real.estimates.window_starts(COLOUR.id) == [OTHER, WINDOW]
    assert real.queue.put_after_restart() == 2
    real.heartbeats.publish(Heartbeat("one", NOW_MS, None, None, None, None))
    assert [beat.worker for beat in real.heartbeats.read()] == ["one"]
    damaged.restart()
    damaged.send(seed=2)
    assert damaged.rebuilder.look() == 0
    assert damaged.recomputer.tick() == 2
    assert damaged.equal()
    real.close()


def _patiently(call: Callable[[], Any]) -> Any:
    """Call again, as every caller of the store does, when the store was repaired."""
    for _ in range(3):
        try:
            return call()
        except StoreRepairedError:
            pass
    raise AssertionError("the store is repaired again and again")
