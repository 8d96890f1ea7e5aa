"""Large logs in pieces: the same tests on the store in memory, on a real Redis and on a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from producers.wire import frames as wire
from streams.store import log_content
from streams.store.contract import NO_STAMP, Seen, ShardBatch, Store
from streams.store.log_content import pieces_of
from streams.store.shape import Key, Shape
from streams.worker.applier import Applier
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.faulty_store import FaultyStore
from tests.support.reports import NOW_MS, TOPIC, WINDOW, AnyAnswer, SurveyDict, batch_of, survey_of

SURVEY = survey_of(AnyAnswer("index", 10, rungs=4), name="large", shards=1)
SHAPE = Shape.of(SURVEY)
KEY = Key(SURVEY.id, WINDOW, 0)
PIECE = 4_096
USERS = 3_000


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_content, "PIECE_BYTES", PIECE)


def messages(rung: int, *, users: int = USERS, at_once: int = 500) -> Iterator[bytes]:
    tokens = np.random.default_rng(1).integers(0, 256, size=(users, 16), dtype=np.uint8)
    answers = np.random.default_rng([1, rung]).integers(0, 10, size=(users, 1), dtype=np.uint8)
    for start in range(0, users, at_once):
        some = slice(start, start + at_once)
        columns = wire.Reports(tokens[some], answers[some], np.full(len(tokens[some]), rung, np.uint8), None)
        yield wire.encode(SURVEY.digest, WINDOW, NOW_MS, 0, columns, SURVEY.layout)


def worker(store: Store) -> Applier:
    def refuse(letters: object) -> None:
        raise AssertionError(letters)

    applier = Applier(store, SurveyDict(SURVEY), refuse, partitions=1, clock=lambda: NOW_MS, sleep=lambda _: None)
    applier.assigned(TOPIC, {0: 0})
    return applier


def count_all(applier: Applier) -> int:
    """Count all rungs of all users; return how many reports were applied."""
    applied = offset = 0
    for rung in range(4):
        for message in messages(rung):
            applied += applier.process([batch_of(message, start=offset)]).counters.applied
            offset += 1
    return applied


def expected() -> Table:
    table = Table(SHAPE)
    tokens = np.random.default_rng(1).integers(0, 256, size=(USERS, 16), dtype=np.uint8)
    answers = np.random.default_rng([1, 3]).integers(0, 10, size=USERS, dtype=np.uint8)
    entries = np.zeros((USERS, SHAPE.entry_bytes), dtype=np.uint8)
    entries[:, :13], entries[:, 13], entries[:, 14] = tokens[:, :13], 4, answers
    table.fold_log(entries.tobytes())
    return table


def test_a_large_log_is_shortened_piece_by_piece_and_counts_the_same(store: Store) -> None:
    applier = worker(store)
    assert count_all(applier) == 4 * USERS
    loaded = store.log.load([KEY], SHAPE, Table.of_log, whole=True)[KEY]
    assert not loaded.repaired
    assert loaded.content.tally() == expected().tally()
    assert len(loaded.content) == USERS
    assert len(loaded.entries) == loaded.log_entries * SHAPE.entry_bytes
    # Never more than twice what is live, and a batch.
    assert loaded.log_entries <= 2 * USERS
    assert store.estimates.tally(SURVEY.id, WINDOW, 1, SHAPE) == expected().tally()
    assert store.log.counters(SURVEY.id, WINDOW).applied == 4 * USERS
    assert store.log.seen([KEY])[KEY] == Seen(loaded.stamp, loaded.segments)


def test_what_is_read_again_after_a_log_was_shortened_is_known(store: Store) -> None:
    count_all(worker(store))
    again = worker(store)
    for rung in range(4):
        for number, message in enumerate(messages(rung)):
            done = again.process([batch_of(message, start=number)])
            assert done.counters.applied == 0
    assert store.estimates.tally(SURVEY.id, WINDOW, 1, SHAPE) == expected().tally()


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_while_a_log_is_shortened_changes_no_count(store: Store, when: str) -> None:
    calls = 0

    def fault(place: str, moment: str) -> bool:
        nonlocal calls
        calls += place == "log.shorten" and moment == when
        return place == "log.shorten" and moment == when and calls % 3 == 1

    assert count_all(worker(FaultyStore(store, fault))) == 4 * USERS
    assert calls > 10
    assert store.log.load([KEY], SHAPE, Table.of_log)[KEY].content.tally() == expected().tally()
    assert store.estimates.tally(SURVEY.id, WINDOW, 1, SHAPE) == expected().tally()


def test_two_writers_of_one_large_log_lose_nothing(store: Store) -> None:
    first, second = worker(store), worker(store)
    offset = 0
    for rung in range(4):
        for message in messages(rung):
            for applier in (first, second) if offset % 2 else (second, first):
                applier.process([batch_of(message, start=offset)])
            offset += 1
    assert store.log.load([KEY], SHAPE, Table.of_log)[KEY].content.tally() == expected().tally()
    assert store.estimates.tally(SURVEY.id, WINDOW, 1, SHAPE) == expected().tally()


def test_a_log_that_changed_since_it_was_seen_is_not_shortened(store: Store) -> None:
    count_all(worker(store))
    seen = store.log.seen([KEY])[KEY]
    table = store.log.load([KEY], SHAPE, Table.of_log)[KEY].content
    old = Seen(bytes(16), seen.segments)
    assert store.log.shorten(KEY, old, table.kept, SHAPE) is None
    assert store.log.seen([KEY])[KEY] == seen
    done = store.log.shorten(KEY, seen, table.kept, SHAPE)
    assert done is not None
    assert store.log.seen([KEY])[KEY] == Seen(done.stamp, done.segments)
    assert store.log.shorten(KEY, seen, table.kept, SHAPE) is None


def test_a_batch_of_more_than_a_piece_is_one_step_with_several_segments(store: Store) -> None:
    cached = Cached.of(store.log.load([KEY], SHAPE, Table.of_log)[KEY])
    entries = np.frombuffer(expected().live(), dtype=np.uint64).reshape(-1, SHAPE.entry_words)
    change = fold(KEY, cached, entries, SHAPE)
    [outcome] = store.log.apply([ShardBatch(TOPIC, 0, 0, 0, 1, [change])])
    assert not outcome.contended
    cached.applied(change, outcome.stamps[KEY])
    pieces = -(-USERS * SHAPE.entry_bytes // PIECE)
    assert (cached.segments, cached.log_entries) == (pieces, USERS)
    loaded = store.log.load([KEY], SHAPE, Table.of_log)[KEY]
    assert (loaded.stamp, loaded.segments, loaded.log_entries) == (cached.stamp, pieces, USERS)
    assert not loaded.repaired


def test_a_large_log_is_replaced(store: Store) -> None:
    count_all(worker(store))
    seen = store.log.seen([KEY])[KEY]
    other = Table.of_log(SHAPE, expected().live()[: 16 * 2_000])
    assert not store.log.replace(KEY, Seen(bytes(16), seen.segments), other)
    assert store.log.replace(KEY, seen, other, limit=7)
    loaded = store.log.load([KEY], SHAPE, Table.of_log)[KEY]
    assert not loaded.repaired
    assert loaded.content.tally() == other.tally()
    assert loaded.segments == len(pieces_of(other.live(), SHAPE.entry_bytes)) > 1
    assert store.estimates.tally(SURVEY.id, WINDOW, 1, SHAPE) == other.tally()


def test_a_large_log_comes_whole_with_the_counts_that_it_adds_up_to(store: Store) -> None:
    count_all(worker(store))
    loaded = store.log.load([KEY], SHAPE, Table.of_log, whole=True)[KEY]
    assert loaded.segments > 2
    read = partial(store.estimates.counts, SURVEY.id, WINDOW, SHAPE, topic=TOPIC, partitions=1)
    [found] = read(known=[NO_STAMP])
    assert (found.entries, found.stamp, found.changed) == (loaded.entries, loaded.stamp, False)
    assert found.tally == loaded.content.tally()
    assert [shard.entries for shard in read(known=[found.stamp])] == [None]
    assert [shard.changed for shard in read(known=[found.stamp]) + read()] == [False, False]


@pytest.mark.parametrize("size", [PIECE, PIECE + 1, 50 * PIECE])
def test_a_large_estimate_is_read_as_it_was_stored(store: Store, size: int) -> None:
    payload = b"{" + np.random.default_rng(size).bytes(size - 1)
    secret = store.queue.lock(SURVEY.id, WINDOW, 60_000)
    assert secret is not None
    assert store.estimates.save(SURVEY.id, WINDOW, secret, payload, WINDOW + 60_000)
    assert store.estimates.read(SURVEY.id, WINDOW) == payload
    assert store.estimates.read_many([(SURVEY.id, WINDOW)]) == [payload]
