"""The store on a real Redis: keys and their lives, torn files, lost scripts, restarts."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import redis

from streams.local.process import free_ports
from streams.local.redis import Redis
from streams.store.contract import ShardBatch, StoreCorruptError, StoreUnavailableError
from streams.store.counters import Counters
from streams.store.redis import RedisStore
from streams.store.redis_sources import Source
from streams.store.shape import KEEP_MS, Key, Shape
from streams.worker.applier import Applier
from streams.worker.fold import Cached, fold
from streams.worker.retry import RestartRequired
from streams.worker.table import Table
from tests.support.clock import ManualClock
from tests.support.paths import ROOT
from tests.support.redis_logs import KEY, SHAPE, apply, cached_log, healed, log_key, reports, segment
from tests.support.reports import (
    BITS_IN_GROUPS,
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    SurveyDict,
    batch_of,
    messages_of,
    oracle,
    packed,
    random_reports,
)
from tests.support.services import running

pytestmark = pytest.mark.real

DOCS = ROOT / "docs" / "store.md"


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as connected:
        yield connected


@pytest.fixture
def store(redis_url: str, key_prefix: str) -> Iterator[RedisStore]:
    connected = RedisStore.connect(redis_url, prefix=key_prefix)
    yield connected
    connected.close()


def use_everything(store: RedisStore) -> None:
    applier = Applier(store, SurveyDict(*SURVEYS), lambda _: None, partitions=2, clock=lambda: NOW_MS)
    applier.assigned(TOPIC, {0: 0, 1: 0})
    some = random_reports(BITS_IN_GROUPS, 20, 60, random.Random(1))
    messages = messages_of(BITS_IN_GROUPS, some, partitions=2)
    applier.process([batch_of(message, b"?", partition=partition) for partition, message in messages.items()])
    store.log.count(BITS_IN_GROUPS.id, WINDOW, Counters(expired=1), NOW_MS)
    secret = store.queue.lock(BITS_IN_GROUPS.id, WINDOW, 60_000)
    assert secret is not None
    assert store.estimates.save(BITS_IN_GROUPS.id, WINDOW, secret, b"{}", NOW_MS, point=b"1 x")
    assert store.queue.put_after_restart() == 1
    store.unreadable.put([(BITS_IN_GROUPS.id, WINDOW)])
    assert store.unreadable.lock(BITS_IN_GROUPS.id, WINDOW, 60_000)
    unreadable = Key(BITS_IN_GROUPS.id, WINDOW, 1)
    assert store.log.set_aside(unreadable, store.log.seen([unreadable])[unreadable])
    store.sources.claim(TOPIC, Source("cluster", "topic"))
    for window_ms in (None, WINDOW):
        assert store.states.swap(BITS_IN_GROUPS.id, "bound", window_ms, b"", b"1", NOW_MS)


def documented_keys() -> list[str]:
    """Return the patterns of keys in the documentation's table."""
    return re.findall(r"^\| `(thaw:v1:\S+)` \|", DOCS.read_text(), flags=re.MULTILINE)


def test_every_key_carries_a_version_and_ends_and_is_documented(
    store: RedisStore, client: Any, key_prefix: str
) -> None:
    use_everything(store)
    seen = set()
    for raw in client.scan_iter(match=f"{key_prefix}*", count=1_000):
        key = raw.decode().removeprefix(key_prefix)
        assert 0 < client.pttl(raw) <= max(KEEP_MS, SHAPE.expires_ms(WINDOW)), key
        matching = [pattern for pattern in documented_keys() if _matches(pattern, key)]
        assert len(matching) == 1, f"{key} matches {matching} of the keys in docs/store.md"
        seen.add(matching[0])
    assert seen == set(documented_keys())


def _matches(pattern: str, key: str) -> bool:
    form = re.escape(pattern)
    for name, meaning in {
        "SHARD": r"\d+",
        "SURVEY": r"(?:[a-z]+-[0-9a-f]{8}|unknown)",
        "WINDOW": r"\d+",
        "TOPIC": r"[\w.]+",
        "PARTITION": r"\d+",
        "NAME": r"[a-z]+",
    }.items():
        form = form.replace(name, meaning)
    return re.fullmatch(form, key) is not None


def test_all_keys_of_a_window_end_at_one_time(store: RedisStore, client: Any, key_prefix: str) -> None:
    apply(store, cached_log(store), reports(0))
    names = list(client.scan_iter(match=f"{key_prefix}*:{WINDOW}", count=1_000))
    assert len(names) == 3
    assert {client.pexpiretime(name) for name in names} == {SHAPE.expires_ms(WINDOW)}


def test_a_survey_that_keeps_its_windows_longer_keeps_those_that_are_there(
    store: RedisStore, client: Any, key_prefix: str
) -> None:
    cached = cached_log(store)
    assert apply(store, cached, reports(0))
    longer = replace(SHAPE, life_ms=SHAPE.life_ms + 5_000)
    names = [log_key(key_prefix, part) for part in ("log", "head", "tally")]
    for rung in (1, 2):  # set with the first change, and left alone by the second
        change = fold(KEY, cached, packed(CATEGORICAL, reports(rung)), longer)
        [outcome] = store.log.apply([ShardBatch(TOPIC, 1, 1, 0, 0, [change])])
        cached.applied(change, outcome.stamps[KEY])
        assert {client.pexpiretime(name) for name in names} == {longer.expires_ms(WINDOW)}
    assert store.log.replace(KEY, store.log.seen([KEY])[KEY], cached.table)
    assert client.hget(names[1], "expires") is None, "the next change sets it again"


def test_all_keys_of_one_script_call_lie_together_in_a_cluster(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags: list[set[str]] = []
    connection = store.log._connection
    run = connection.run

    def watched(calls: Any, **options: Any) -> Any:
        tags.extend({re.sub(r"^[^{]*\{([^}]+)\}.*$", r"\1", key) for key in keys} for _, keys, _ in calls)
        return run(calls, **options)

    monkeypatch.setattr(connection, "run", watched)
    use_everything(store)
    assert len(tags) > 60
    assert all(len(tag) == 1 for tag in tags)


def test_braces_in_a_prefix_are_refused(redis_url: str) -> None:
    with pytest.raises(ValueError, match="must not contain braces"):
        RedisStore.connect(redis_url, prefix="a{b}")


def test_torn_after_the_first_push(store: RedisStore, client: Any, key_prefix: str) -> None:
    client.rpush(log_key(key_prefix, "log"), segment(reports(0)))
    assert not apply(store, Cached(Table(SHAPE), b"", 0, 0), reports(1))
    healed(store, client, key_prefix, reports(0))


def test_torn_after_a_later_push(store: RedisStore, client: Any, key_prefix: str) -> None:
    cached = cached_log(store)
    assert apply(store, cached, reports(0))
    client.rpush(log_key(key_prefix, "log"), segment(reports(2, user=3)))
    # The stamp is the old one, but no change may build on it: the tally would lack what was pushed.
    assert not apply(store, cached, reports(1))
    healed(store, client, key_prefix, [*reports(0), *reports(2, user=3)])


def test_torn_in_a_rewrite_before_the_old_segments_went(store: RedisStore, client: Any, key_prefix: str) -> None:
    cached = cached_log(store)
    assert apply(store, cached, reports(0))
    assert apply(store, cached, reports(1))
    client.rpush(log_key(key_prefix, "log"), segment(reports(2)))
    assert not apply(store, cached, reports(3))
    healed(store, client, key_prefix, reports(2))


def test_torn_in_a_rewrite_after_the_old_segments_went(store: RedisStore, client: Any, key_prefix: str) -> None:
    cached = cached_log(store)
    assert apply(store, cached, reports(0))
    assert apply(store, cached, reports(1))
    client.rpush(log_key(key_prefix, "log"), segment(reports(2)))
    client.ltrim(log_key(key_prefix, "log"), -1, -1)
    assert not apply(store, cached, reports(3))
    healed(store, client, key_prefix, reports(2))


@pytest.mark.parametrize("part", ["head", "tally"])
def test_a_summary_that_is_gone_is_made_again_from_the_log(
    store: RedisStore, client: Any, key_prefix: str, part: str
) -> None:
    cached = cached_log(store)
    assert apply(store, cached, reports(0))
    client.delete(log_key(key_prefix, part))
    assert not apply(store, cached, reports(1))
    healed(store, client, key_prefix, reports(0))


def test_a_tally_of_a_torn_rewrite_does_not_contradict_a_log_of_one_segment(
    store: RedisStore, client: Any, key_prefix: str
) -> None:
    """The head has one segment before and after; the new one has fewer entries."""
    cached = cached_log(store)
    assert apply(store, cached, [*reports(0), *reports(1)])
    client.rpush(log_key(key_prefix, "log"), segment(reports(2)))
    client.ltrim(log_key(key_prefix, "log"), -1, -1)
    healed(store, client, key_prefix, reports(2))


def test_a_log_of_something_else_is_refused_by_name(store: RedisStore, client: Any, key_prefix: str) -> None:
    client.rpush(log_key(key_prefix, "log"), b"\xff" * 16)
    with pytest.raises(
        StoreCorruptError, match=rf"\{{1\}}:log:{CATEGORICAL.id}:{WINDOW}: a packed entry.*thaw rebuild"
    ):
        store.log.load([KEY], SHAPE, Table.of_log)
    client.set(log_key(key_prefix, "tally"), b"something else")
    with pytest.raises(StoreCorruptError, match="not a tally"):
        store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE)


def test_a_writer_that_changes_a_log_during_its_repair_wins(
    store: RedisStore, client: Any, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.rpush(log_key(key_prefix, "log"), segment(reports(0)))
    connection = store.log._connection
    run, runs = connection.run, []

    def watched(calls: Any, **options: Any) -> Any:
        runs.append(calls)
        if len(runs) == 2:
            client.rpush(log_key(key_prefix, "log"), segment(reports(1)))
        return run(calls, **options)

    monkeypatch.setattr(connection, "run", watched)
    assert cached_log(store).table.tally() == oracle(CATEGORICAL, reports(1))
    assert len(runs) == 4


def test_more_logs_than_fit_one_round_trip_are_loaded(store: RedisStore) -> None:
    keys = [Key(CATEGORICAL.id, WINDOW - number * 60_000, 1) for number in range(130)]
    assert list(store.log.load(keys, SHAPE, Table.of_log)) == keys


def test_scripts_that_redis_has_forgotten_are_sent_again(store: RedisStore, client: Any) -> None:
    cached = cached_log(store)
    assert apply(store, cached, reports(0))
    client.script_flush()
    assert apply(store, cached, reports(1))
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, reports(1))


def test_a_redis_that_is_not_there_is_unavailable_in_plain_words() -> None:
    nowhere = RedisStore.connect(f"redis://127.0.0.1:{free_ports(1)[0]}/0", timeout_seconds=1)
    calls: list[Callable[[], object]] = [
        lambda: nowhere.log.load([KEY], SHAPE, Table.of_log),
        lambda: nowhere.log.offsets(TOPIC, 0, [0]),
        lambda: nowhere.log.apply([ShardBatch(TOPIC, 0, 0, 0, 1, [])]),
        nowhere.queue.entries,
        nowhere.durability_warnings,
        lambda: nowhere.log.counters("a"),
        nowhere.heartbeats.read,
    ]
    for call in calls:
        with pytest.raises(StoreUnavailableError, match=r"^Redis unreachable at 127.0.0.1:\d+ \(connection refused\)$"):
            call()


def test_a_redis_out_of_memory_refuses_the_whole_step(key_prefix: str) -> None:
    with running(Redis) as own, redis.Redis.from_url(own.url) as admin:
        store = RedisStore.connect(own.url, prefix=key_prefix)
        cached = cached_log(store)
        assert apply(store, cached, reports(0))
        admin.config_set("maxmemory", "1mb")
        with pytest.raises(StoreUnavailableError, match=r"OOM|maxmemory"):
            apply(store, cached_log(store), reports(1))
        admin.config_set("maxmemory", "0")
        assert cached_log(store).table.tally() == oracle(CATEGORICAL, reports(0))
        store.close()


def test_settings_that_lose_counts_are_named_in_plain_words() -> None:
    with running(Redis) as own, redis.Redis.from_url(own.url) as admin:
        store = RedisStore.connect(own.url)
        assert store.durability_warnings() == []
        admin.config_set("appendfsync", "no")
        assert [warning.split(":")[0] for warning in store.durability_warnings()] == [
            "Redis runs with appendfsync no",
        ]
        admin.config_set("appendonly", "no")
        admin.config_set("maxmemory-policy", "allkeys-lru")
        warnings = store.durability_warnings()
        assert [warning.rsplit("; ", 1)[1] for warning in warnings] == [
            "set maxmemory-policy noeviction",
            "set appendonly yes",
        ]
        admin.execute_command("ACL", "SETUSER", "default", "-config")
        assert "CONFIG GET was refused" in store.durability_warnings()[0]
        store.close()


def test_a_worker_lives_through_kills_of_redis_and_a_cut_off_file(key_prefix: str) -> None:
    """Kill Redis in the middle, cut the end off its file, go on: the tally is the oracle's."""
    rng = random.Random(5)
    some = random_reports(BITS_IN_GROUPS, 200, 2_000, rng)
    messages: list[list[bytes]] = [[], []]
    for start in range(0, 2_000, 50):
        for partition, message in messages_of(BITS_IN_GROUPS, some[start : start + 50], partitions=2).items():
            messages[partition].append(message)
    with running(Redis) as own:
        clock = ManualClock(NOW_MS)

        def worker(committed: dict[int, int]) -> tuple[Applier, dict[int, int]]:
            store = RedisStore.connect(own.url, prefix=key_prefix, timeout_seconds=2)
            applier = Applier(store, SurveyDict(*SURVEYS), lambda _: None, partitions=2, clock=clock, sleep=clock.sleep)
            return applier, applier.assigned(TOPIC, dict(committed))

        applier, positions = worker({0: 0, 1: 0})
        committed, left = dict(positions), 0
        steps = 0
        while positions != {0: len(messages[0]), 1: len(messages[1])}:
            steps += 1
            if steps % 9 == 0:
                own.kill()
                _cut_off(own, rng.randrange(1, 3_000))
                own.start()
            batches = [
                batch_of(*messages[partition][start : start + 2], partition=partition, start=start)
                for partition, start in positions.items()
            ]
            try:
                applier.process(batches)
            except RestartRequired:
                left += 1
                applier, positions = worker(committed)
            else:
                positions = {batch.partition: batch.next_offset for batch in batches}
                committed = dict(positions)
        store = RedisStore.connect(own.url, prefix=key_prefix)
        assert left
        shape = Shape.of(BITS_IN_GROUPS)
        keys = [Key(BITS_IN_GROUPS.id, WINDOW, shard) for shard in range(BITS_IN_GROUPS.shards)]
        store.log.load(keys, shape, Table.of_log)
        assert store.estimates.tally(BITS_IN_GROUPS.id, WINDOW, BITS_IN_GROUPS.shards, shape) == oracle(
            BITS_IN_GROUPS, some
        )
        store.close()


def _cut_off(own: Redis, count: int) -> None:
    files = sorted(own.folder.rglob("*.incr.aof"))
    assert files, f"no append-only file below {own.folder}"
    with files[-1].open("r+b") as file:
        file.truncate(max(0, files[-1].stat().st_size - count))
