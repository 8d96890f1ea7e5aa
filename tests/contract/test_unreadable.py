"""A report log that cannot be read is set aside: the same tests on the store in memory and on a real Redis."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streams.kafka.messages import FetchBatch
from streams.repair.unreadable import UnreadableRebuilder
from streams.store.contract import Store, StoreCorruptError, StoreRepairedError
from streams.store.heartbeats import Heartbeat
from streams.store.redis import RedisStore
from streams.store.shape import Key, Shape
from streams.windows.recompute import Recomputer
from streams.worker.applier import Applier
from streams.worker.table import Table
from streams.worker_metrics import worker_metrics
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.rebuild import PARTITIONS, Topic
from tests.support.reports import TOPIC, WINDOW, WINDOW_MS, SurveyDict, oracle, random_reports
from tests.support.surveys import survey

COLOUR = survey()
SHAPE = Shape.of(COLOUR)
NOW_MS = WINDOW + 100_000
"""All rungs are open."""
KEY = Key(COLOUR.id, WINDOW, 1)
OTHER = WINDOW - WINDOW_MS


class Damaged:
    """A topic, a worker and its store, whose parts can be damaged."""

    def __init__(self, store: Store, write: Callable[[str, bytes], None], clock: ManualClock) -> None:
        self.store, self._write, self.clock = store, write, clock
        self.topic, self.metrics = Topic(), worker_metrics()
        self.published: list[int] = []
        self._read = [0] * PARTITIONS
        self.sent = {window_ms: [] for window_ms in (WINDOW, OTHER)}  # type: dict[int, list[Any]]
        surveys = SurveyDict(COLOUR)
        self.recomputer = Recomputer(
            store, surveys, self._publish, "estimates", fold=Table.of_log, clock=clock, metrics=self.metrics
        )
        self.rebuilder = UnreadableRebuilder(
            store, surveys, self._open, partitions=PARTITIONS, metrics=self.metrics, clock=clock
        )
        self.restart()

    def restart(self) -> None:
        self.applier = Applier(
            self.store,
            SurveyDict(COLOUR),
            lambda _: None,
            partitions=PARTITIONS,
            clock=self.clock,
            metrics=self.metrics,
        )
        self.applier.assigned(TOPIC, dict(enumerate(self._read)))

    @contextmanager
    def _open(self) -> Iterator[Topic]:
        self.topic.rewind()
        yield self.topic

    def _publish(self, messages: Any) -> None:
        self.published += [int(message.key.rpartition(b":")[2]) for message in messages]

    def send(self, *, seed: int) -> None:
        """Let reports of both windows come, and count them."""
        for window_ms, sent in self.sent.items():
            some = random_reports(COLOUR, 200, 300, random.Random(seed + window_ms))
            self.topic.send(COLOUR, some, window_ms=window_ms, at_ms=NOW_MS)
            sent += some
        self.applier.process(self.batches())
        self.clock.advance(1)

    def batches(self) -> list[FetchBatch]:
        found = self.topic.batches(self._read)
        self._read = [len(records) for records in self.topic.log]
        return found

    def damage(self, part: str, raw: bytes = b"something else") -> None:
        self._write(part, raw)

    def equal(self, window_ms: int = WINDOW) -> bool:
        found = self.store.estimates.tally(COLOUR.id, window_ms, COLOUR.shards, SHAPE)
        return found == oracle(COLOUR, self.sent[window_ms])

    def counted(self, part: str) -> float | None:
        return self.metrics.registry.get_sample_value("thaw_worker_unreadable_total", {"part": part})


@pytest.fixture(params=["memory", pytest.param("redis", marks=pytest.mark.real)])
def damaged(request: pytest.FixtureRequest, key_prefix: str) -> Iterator[Damaged]:
    clock = ManualClock(NOW_MS)
    if request.param == "memory":
        memory = MemoryStore(clock)

        def write(part: str, raw: bytes) -> None:
            if part == "log":
                memory.segments(KEY)[0] = raw
            else:
                memory.stored_tally(KEY)[:] = raw

        yield Damaged(memory, write, clock)
        return
    real = RedisStore.connect(request.getfixturevalue("redis_url"), prefix=key_prefix)
    yield on_redis(real, clock)
    real.close()


def on_redis(real: RedisStore, clock: ManualClock) -> Damaged:
    client: Any = real._client
    log, _, tally = real.log._connection.log_keys(KEY)

    def write(part: str, raw: bytes) -> None:
        if part == "log":
            client.lset(log, 0, raw)
        else:
            client.set(tally, raw)

    return Damaged(real, write, clock)


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


def test_an_expired_window_is_not_rebuilt(damaged: Damaged) -> None:
    damaged.store.unreadable.put([(COLOUR.id, WINDOW)])
    damaged.clock.advance(SHAPE.life_ms)
    assert damaged.rebuilder.look() == 0
    assert damaged.store.unreadable.entries() == []


@pytest.mark.real
def test_keys_of_a_wrong_type_are_removed_and_made_again(redis_url: str, key_prefix: str) -> None:
    """Every kind of key in turn: neither counting nor estimating stops, and no report is lost."""
    real = RedisStore.connect(redis_url, prefix=key_prefix)
    client: Any = real._client
    damaged = on_redis(real, ManualClock(NOW_MS))
    kinds: set[str] = set()
    for turn in range(40):
        damaged.restart()
        damaged.send(seed=turn)
        _patiently(lambda: real.heartbeats.publish(Heartbeat("one", NOW_MS, None, None, None, None)))
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
    assert len(kinds) > 12
    real.close()


def _patiently(call: Callable[[], Any]) -> Any:
    """Call again, as every caller of the store does, when the store was repaired."""
    for _ in range(3):
        try:
            return call()
        except StoreRepairedError:
            pass
    raise AssertionError("the store is repaired again and again")
