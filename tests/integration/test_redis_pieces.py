"""Large logs in a real Redis: torn while they are shortened or replaced, changed while read, sizes of their pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pytest
import redis

from streams.store import log_content
from streams.store.contract import NO_STAMP
from streams.store.redis import RedisStore
from streams.store.redis_connection import Call, RedisConnection
from streams.windows.record import RecordError, decode_estimate
from streams.worker.fold import Cached
from streams.worker.table import Folded, Table
from tests.bench.memory import Watched
from tests.support.redis_logs import KEY, SHAPE, apply, cached_log, healed, log_key, reports, segment
from tests.support.reports import CATEGORICAL, TOPIC, WINDOW, Report, oracle

pytestmark = pytest.mark.real


@pytest.fixture
def client(redis_url: str) -> Iterator[Any]:
    with redis.Redis.from_url(redis_url) as connected:
        yield connected


@pytest.fixture
def store(redis_url: str, key_prefix: str) -> Iterator[RedisStore]:
    connected = RedisStore.connect(redis_url, prefix=key_prefix)
    yield connected
    connected.close()


def large_log(store: RedisStore, users: int) -> tuple[Cached, list[Report]]:
    """Count users on two rungs, a batch each, and return the cached log with the reports that are live."""
    cached = cached_log(store)
    for rung in (0, 1):
        for user in range(1, users + 1):
            assert apply(store, cached, reports(rung, user=user))
    return cached, [report for user in range(1, users + 1) for report in reports(1, user=user)]


def locked(store: RedisStore) -> bytes:
    """Return the secret of the lock of the window."""
    secret = store.queue.lock(CATEGORICAL.id, WINDOW, 60_000)
    assert secret is not None
    return secret


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_torn_while_a_log_was_shortened(
    store: RedisStore, client: Any, key_prefix: str, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(log_content, "PIECE_BYTES", 7 * SHAPE.entry_bytes)
    cached, live = large_log(store, 6)
    log, head = log_key(key_prefix, "log"), log_key(key_prefix, "head")
    oldest = b"".join(client.lrange(log, 0, 6))
    kept = cached.table.kept(oldest)
    assert len(kept) == SHAPE.entry_bytes  # six of rung 0, and the first of rung 1
    # The writes of shorten.lua, one after the other.
    client.hset(head, "coming", "6 6")
    if steps > 1:
        client.rpush(log, kept)
    if steps > 2:
        client.ltrim(log, 7, -1)
    assert (steps == 1) == apply(store, cached_log(store) if steps == 1 else cached, reports(2, user=1))
    healed(store, client, key_prefix, [*live, *(reports(2, user=1) if steps == 1 else [])])


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_torn_while_a_log_was_replaced(store: RedisStore, client: Any, key_prefix: str, steps: int) -> None:
    _, live = large_log(store, 6)
    log, head, tally = (log_key(key_prefix, part) for part in ("log", "head", "tally"))
    staged = f"{key_prefix}staged"
    right = [report for user in range(1, 4) for report in reports(1, user=user)]
    table = Table.of_log(SHAPE, segment(right))
    # The writes of replace_log.lua, one after the other.
    client.rpush(staged, segment(right))
    client.pexpireat(staged, SHAPE.expires_ms(WINDOW))
    client.hset(head, "coming", "1 3")
    if steps > 1:
        client.rename(staged, log)
    if steps > 2:
        client.hdel(head, "expires")
        client.set(tally, table.tally().to_bytes())
        client.pexpireat(tally, SHAPE.expires_ms(WINDOW))
    healed(store, client, key_prefix, live if steps == 1 else right)


def test_a_log_that_changes_while_it_is_read_is_read_again(store: RedisStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_content, "PIECE_BYTES", 2 * SHAPE.entry_bytes)
    cached, live = large_log(store, 6)
    changes = 0

    class Changing(Table):
        """Another writer counts a report when the second piece is there."""

        def fold_log(self, log: bytes) -> Folded:
            nonlocal changes
            if len(self) == 2 and not changes:
                changes += 1
                assert apply(store, cached, reports(2, user=9))
            return super().fold_log(log)

    loaded = store.log.load([KEY], SHAPE, Changing.of_log)[KEY]
    assert changes == 1
    assert loaded.content.tally() == oracle(CATEGORICAL, [*live, *reports(2, user=9)])
    assert loaded.stamp == cached.stamp


def test_no_argument_and_no_reply_is_larger_than_two_pieces(
    redis_url: str, key_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_content, "PIECE_BYTES", 40 * SHAPE.entry_bytes)
    store = RedisStore.connect(redis_url, prefix=key_prefix)
    watched = Watched()
    watched.watch(store)
    cached = cached_log(store)
    for rung in range(4):
        some = [report for user in range(300) for report in reports(rung, user=user)]
        assert apply(store, cached, some)
    seen = store.log.seen([KEY])[KEY]
    assert store.log.shorten(KEY, seen, cached.table.kept, SHAPE)
    seen = store.log.seen([KEY])[KEY]
    assert store.log.replace(KEY, seen, cached_log(store).table)
    assert cached_log(store).table.tally() == cached.table.tally()
    known = [NO_STAMP] * CATEGORICAL.shards
    counts = store.estimates.counts(CATEGORICAL.id, WINDOW, SHAPE, topic=TOPIC, partitions=2, known=known)
    assert len(counts[KEY.shard].entries or b"") > 4 * log_content.PIECE_BYTES
    rows = b",".join(b'{"value":"value %d","estimate":%.17f}' % (user, user / 7) for user in range(60))
    assert len(rows) > 3 * log_content.PIECE_BYTES
    assert store.estimates.save(CATEGORICAL.id, WINDOW, locked(store), rows, SHAPE.expires_ms(WINDOW))
    assert store.estimates.read(CATEGORICAL.id, WINDOW) == rows
    store.close()
    assert 0 < watched.argument <= 40 * SHAPE.entry_bytes + SHAPE.numbers * 8 + 64
    assert 0 < watched.reply <= 40 * SHAPE.entry_bytes + SHAPE.numbers * 8 + 128


def test_counts_of_a_log_that_changes_while_it_is_read_come_without_it(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_content, "PIECE_BYTES", 2 * SHAPE.entry_bytes)
    cached, live = large_log(store, 6)
    read = partial(store.estimates.counts, CATEGORICAL.id, WINDOW, SHAPE, topic=TOPIC, partitions=2)
    run, late = RedisConnection.run, reports(2, user=9)

    def between(connection: RedisConnection, calls: Sequence[Call]) -> list[Any]:
        """Let another writer count a report before the second piece."""
        monkeypatch.setattr(RedisConnection, "run", run)
        replies = connection.run(calls)
        assert apply(store, cached, late)
        return replies

    monkeypatch.setattr(RedisConnection, "run", between)
    found = read(known=[NO_STAMP] * CATEGORICAL.shards)[KEY.shard]
    assert (found.changed, found.entries) == (True, None)
    assert found.tally == oracle(CATEGORICAL, live)
    rested = read(known=[NO_STAMP] * CATEGORICAL.shards)[KEY.shard]
    assert (rested.changed, rested.tally) == (False, oracle(CATEGORICAL, [*live, *late]))
    assert rested.entries == store.log.load([KEY], SHAPE, Table.of_log, whole=True)[KEY].entries


def test_bytes_in_place_of_a_compressed_estimate_are_no_estimate(
    store: RedisStore, client: Any, key_prefix: str
) -> None:
    large = b"[" + bytes(2 * log_content.PIECE_BYTES) + b"]"
    assert store.estimates.save(CATEGORICAL.id, WINDOW, locked(store), large, SHAPE.expires_ms(WINDOW))
    [key] = client.keys(f"{key_prefix}*:estimate:*")
    stored = client.get(key)
    assert len(stored) < len(large) / 100
    for wrong in (stored[:1] + b"no estimate", stored[: len(stored) // 2], large):
        client.set(key, wrong)
        with pytest.raises(RecordError):
            decode_estimate(store.estimates.read(CATEGORICAL.id, WINDOW) or b"")
