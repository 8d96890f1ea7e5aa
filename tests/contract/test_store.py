"""What every store promises. The same tests run on the one in memory and on a real Redis."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

from producers.survey.survey import Survey
from streams.store.contract import NO_STAMP, Change, Outcome, ShardBatch, Store
from streams.store.counters import Counters
from streams.store.redis import RedisStore
from streams.store.shape import Key, Shape
from streams.worker.fold import Cached, fold
from streams.worker.table import Table
from tests.support.deadline import until
from tests.support.memory_store import MemoryStore
from tests.support.plain_table import PlainTable
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WIDE_INDEX,
    WINDOW,
    WINDOW_MS,
    Report,
    oracle,
    packed,
    random_reports,
    shard_of,
    survey_of,
    token_in,
)

SHARD = 1
KEY = Key(CATEGORICAL.id, WINDOW, SHARD)
SHAPE = Shape.of(CATEGORICAL)

TABLE: type[Table] = Table
"""What logs are loaded into."""

every_survey = pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)


@pytest.fixture(
    params=["memory", "memory with plain tables", pytest.param("redis", marks=pytest.mark.real)],
)
def store(request: pytest.FixtureRequest, key_prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if request.param == "redis":
        real = RedisStore.connect(request.getfixturevalue("redis_url"), prefix=key_prefix)
        yield real
        real.close()
    else:
        if "plain" in request.param:
            monkeypatch.setattr("tests.contract.test_store.TABLE", PlainTable)
        yield MemoryStore()


def some_reports(*rungs: int, user: int = 1, answer: int = 2) -> list[Report]:
    return [Report(token_in(SHARD, user, CATEGORICAL), rung, bytes([answer])) for rung in rungs]


def load(store: Store, key: Key = KEY, shape: Shape = SHAPE) -> Cached:
    return Cached.of(store.log.load([key], shape, TABLE.of_log)[key])


def change_of(cached: Cached, reports: Sequence[Report], survey: Survey = CATEGORICAL, key: Key = KEY) -> Change:
    return fold(key, cached, packed(survey, reports), Shape.of(survey))


def apply(store: Store, *changes: Change, last: int = 0, next_: int = 0, shard: int = SHARD) -> Outcome:
    (outcome,) = store.log.apply([ShardBatch(TOPIC, 1, shard, last, next_, changes)])
    return outcome


def write(store: Store, reports: Sequence[Report]) -> bytes:
    """Apply reports to KEY as a writer that just loaded it, and return the stamp."""
    outcome = apply(store, change_of(load(store), reports))
    assert not outcome.contended
    return outcome.stamps[KEY]


def test_a_log_that_was_never_written_is_empty_and_has_no_stamp(store: Store) -> None:
    loaded = store.log.load([KEY], SHAPE, TABLE.of_log, whole=True)[KEY]
    assert (loaded.stamp, loaded.entries, loaded.segments, len(loaded.content)) == (NO_STAMP, b"", 0, 0)
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE).total_users == 0


@every_survey
def test_what_was_applied_can_be_loaded_and_is_in_the_tally(store: Store, survey: Survey) -> None:
    rng, shape = random.Random(survey.name), Shape.of(survey)
    reports = random_reports(survey, 300, 1_200, rng)
    caches: dict[Key, Cached] = {}
    for start in range(0, len(reports), 200):
        some = reports[start : start + 200]
        for shard in range(survey.shards):
            mine = [report for report in some if shard_of(report.token, survey) == shard]
            key = Key(survey.id, WINDOW, shard)
            cached = caches.get(key) or load(store, key, shape)
            change = change_of(cached, mine, survey, key)
            outcome = apply(store, change, shard=shard)
            assert outcome.contended == frozenset()
            cached.applied(change, outcome.stamps[key])
            caches[key] = cached
    assert store.estimates.tally(survey.id, WINDOW, survey.shards, shape) == oracle(survey, reports)
    for key, loaded in store.log.load(list(caches), shape, TABLE.of_log).items():
        assert loaded.stamp == caches[key].stamp
        assert loaded.segments == caches[key].segments
        assert loaded.log_entries == caches[key].log_entries
        assert loaded.content.tally() == caches[key].table.tally()


def test_a_change_on_an_old_stamp_is_refused_and_changes_nothing(store: Store) -> None:
    old = load(store)
    write(store, some_reports(0))
    outcome = apply(store, change_of(old, some_reports(1, user=2)), next_=10)
    assert outcome == Outcome(frozenset({KEY}), {})
    assert store.estimates.tally(*KEY[:2], CATEGORICAL.shards, SHAPE) == oracle(CATEGORICAL, some_reports(0))
    assert store.log.offsets(TOPIC, 1, [SHARD]) == {SHARD: 0}
    assert store.log.counters(CATEGORICAL.id).applied == 1


def test_changes_that_match_are_made_even_if_others_of_the_same_batch_do_not(store: Store) -> None:
    other = Key(CATEGORICAL.id, WINDOW - WINDOW_MS, SHARD)
    old, fresh = load(store), load(store, other)
    write(store, some_reports(0))
    outcome = apply(store, change_of(old, some_reports(1)), change_of(fresh, some_reports(2), key=other), next_=10)
    assert outcome.contended == {KEY}
    assert set(outcome.stamps) == {other}
    assert load(store, other).table.tally() == oracle(CATEGORICAL, some_reports(2))
    assert store.log.offsets(TOPIC, 1, [SHARD]) == {SHARD: 0}


def test_every_change_has_a_new_stamp_of_16_bytes(store: Store) -> None:
    stamps = {write(store, some_reports(rung)) for rung in range(4)}
    assert len(stamps) == 4
    assert {len(stamp) for stamp in stamps} == {16}


def test_a_batch_of_duplicates_keeps_the_stamp_and_is_counted(store: Store) -> None:
    stamp = write(store, some_reports(1))
    assert write(store, some_reports(1, 0)) == stamp
    assert load(store).stamp == stamp
    assert store.log.counters(*KEY[:2]) == Counters(1, 1, 1, 0)


def test_a_batch_of_duplicates_on_an_old_stamp_is_refused(store: Store) -> None:
    write(store, some_reports(1))
    cached = load(store)
    write(store, some_reports(2))
    assert apply(store, change_of(cached, some_reports(1))).contended == {KEY}
    assert store.log.counters(CATEGORICAL.id).duplicate == 0


def test_the_offset_rises_with_the_last_change_and_never_falls(store: Store) -> None:
    assert store.log.offsets(TOPIC, 1, [1, 3]) == {1: 0, 3: 0}
    apply(store, change_of(load(store), some_reports(0)), next_=10)
    apply(store, next_=30)
    apply(store, next_=20)
    assert store.log.offsets(TOPIC, 1, [1, 3]) == {1: 30, 3: 0}
    assert store.log.offsets(TOPIC, 0, [1]) == {1: 0}
    assert store.log.offsets("other", 1, [1]) == {1: 0}


def test_an_offset_below_the_writers_own_means_that_acknowledged_writes_were_lost(store: Store) -> None:
    apply(store, next_=10)
    change = change_of(load(store), some_reports(0))
    outcome = apply(store, change, last=11, next_=20)
    assert outcome == Outcome(frozenset(), {}, regressed_to=10)
    assert load(store).stamp == NO_STAMP
    assert store.log.offsets(TOPIC, 1, [SHARD]) == {SHARD: 10}
    assert apply(store, change, last=10, next_=20).stamps


def test_batches_of_one_call_are_judged_one_by_one(store: Store) -> None:
    apply(store, next_=10)
    other = KEY._replace(shard=3)
    good = ShardBatch(TOPIC, 1, 3, 0, 5, [change_of(load(store, other), [], key=other)])
    back = ShardBatch(TOPIC, 1, SHARD, 11, 20, [])
    idle = ShardBatch(TOPIC, 1, 5, 0, 7, [])
    assert [outcome.regressed for outcome in store.log.apply([back, good, idle])] == [True, False, False]
    assert store.log.offsets(TOPIC, 1, [1, 3, 5]) == {1: 10, 3: 5, 5: 7}


def test_a_rewritten_log_is_short_and_gives_the_same_tally(store: Store) -> None:
    reports = [Report(token_in(SHARD, user, CATEGORICAL), rung, b"\2") for rung in range(4) for user in range(200)]
    cached, rewrites = load(store), 0
    for start in range(0, 800, 200):
        change = change_of(cached, reports[start : start + 200])
        cached.applied(change, apply(store, change).stamps[KEY])
        rewrites += change.rewrite
    assert rewrites == 1
    loaded = store.log.load([KEY], SHAPE, TABLE.of_log)[KEY]
    assert (loaded.segments, loaded.log_entries) == (2, 400)
    assert loaded.content.tally() == oracle(CATEGORICAL, reports)
    assert store.log.counters(*KEY[:2]).applied == 800


def test_a_large_tally_is_changed_in_places(store: Store) -> None:
    shape, key = Shape.of(WIDE_INDEX), Key(WIDE_INDEX.id, WINDOW, 0)
    reports = random_reports(WIDE_INDEX, 30, 90, random.Random(4), shard=0)
    cached = load(store, key, shape)
    for start in range(0, 90, 30):
        change = change_of(cached, reports[start : start + 30], WIDE_INDEX, key)
        cached.applied(change, apply(store, change, shard=0).stamps[key])
    assert len(change.patches) > 5
    assert store.estimates.tally(WIDE_INDEX.id, WINDOW, WIDE_INDEX.shards, shape) == oracle(WIDE_INDEX, reports)


def test_keys_that_are_past_their_time_are_gone_at_once(store: Store) -> None:
    short = survey_of(CATEGORICAL.mechanism, name="short", retention_ms=1)
    key = Key(short.id, 0, SHARD)
    change = change_of(load(store, key, Shape.of(short)), some_reports(0), short, key)
    assert apply(store, change, next_=5).contended == frozenset()
    assert load(store, key, Shape.of(short)).stamp == NO_STAMP
    assert store.log.offsets(TOPIC, 1, [SHARD]) == {SHARD: 5}


def test_counters_add_up_over_windows_and_shards(store: Store) -> None:
    for shard, window_ms in ((0, WINDOW), (3, WINDOW), (3, WINDOW - WINDOW_MS)):
        key = Key(CATEGORICAL.id, window_ms, shard)
        tokens = [token_in(shard, user, CATEGORICAL) for user in (1, 2)]
        reports = [Report(tokens[0], 0, b"\1"), Report(tokens[0], 0, b"\2"), Report(tokens[1], 1, b"\1")]
        apply(store, change_of(load(store, key), reports, key=key), shard=shard)
    assert store.log.counters(CATEGORICAL.id, WINDOW) == Counters(6, 0, 0, 2)
    assert store.log.counters(CATEGORICAL.id) == Counters(9, 0, 0, 3)


def test_refusals_are_counted_for_the_survey_and_for_a_window_if_it_is_known(store: Store) -> None:
    store.log.count("a-1", None, Counters(rejected={"survey": 2}), NOW_MS)
    store.log.count("a-1", WINDOW, Counters(expired=1, rejected={"rung": 3}), NOW_MS)
    store.log.count("a-1", WINDOW, Counters(rejected={"rung": 1}), NOW_MS)
    assert store.log.counters("a-1", WINDOW) == Counters(expired=1, rejected={"rung": 4})
    assert store.log.counters("a-1") == Counters(expired=1, rejected={"survey": 2, "rung": 4})
    assert store.log.counters("b-1") == Counters()


def test_a_queued_window_is_removed_only_if_it_was_not_put_again(store: Store) -> None:
    store.queue.put([("a-1", 1), ("b-1", -2)])
    first, second = sorted(store.queue.entries())
    assert (first[:2], second[:2]) == (("a-1", 1), ("b-1", -2))
    store.queue.put([("a-1", 1)])
    assert not store.queue.remove(first)
    assert store.queue.remove(second)
    assert not store.queue.remove(second)
    (again,) = store.queue.entries()
    assert again[:2] == ("a-1", 1)
    assert again.score > first.score
    assert store.queue.remove(again)
    assert store.queue.entries() == []


def test_the_queue_is_oldest_first_and_every_put_raises_the_score(store: Store) -> None:
    scores = []
    for _ in range(20):
        store.queue.put([("a-1", 1)])
        scores.append(store.queue.entries()[0].score)
    assert scores == sorted(set(scores))
    store.queue.put([("b-1", 1)])
    store.queue.put([])

    def later_window_is_last() -> bool:
        store.queue.put([("b-1", 1)])
        return store.queue.entries()[-1].survey_id == "b-1"

    until(later_window_is_last, 60, "the later window to be last")
    assert [queued.survey_id for queued in store.queue.entries()] == ["a-1", "b-1"]


def test_a_lock_has_one_owner_and_only_the_owner_releases_it(store: Store) -> None:
    secret = store.queue.lock("a-1", 1, 60_000)
    assert secret is not None
    assert store.queue.lock("a-1", 1, 60_000) is None
    assert store.queue.lock("a-1", 2, 60_000) is not None
    store.queue.unlock("a-1", 1, b"a guess")
    assert store.queue.lock("a-1", 1, 60_000) is None
    store.queue.unlock("a-1", 1, secret)
    assert store.queue.lock("a-1", 1, 60_000) not in (None, secret)


def test_a_lock_ends_by_itself(store: Store) -> None:
    assert store.queue.lock("a-1", 1, 1)
    until(lambda: store.queue.lock("a-1", 1, 60_000), 60, "the lock to end")


def test_an_estimate_is_stored_only_by_the_owner_of_the_lock(store: Store) -> None:
    secret = store.queue.lock("a-1", 1, 60_000)
    assert secret is not None
    assert not store.estimates.save("a-1", 1, b"a guess", b"wrong", NOW_MS)
    assert not store.estimates.save("a-1", 2, secret, b"wrong", NOW_MS)
    assert store.estimates.read("a-1", 1) is None
    assert store.estimates.window_starts("a-1") == []
    assert store.estimates.save("a-1", 1, secret, b"\0\xff", NOW_MS)
    assert store.estimates.read("a-1", 1) == b"\0\xff"
    assert store.estimates.read_many([("a-1", 2), ("a-1", 1), ("b-1", 1), ("a-1", 1)]) == [None, b"\0\xff"] * 2
    assert store.estimates.read_many([]) == []


def test_windows_with_an_estimate_are_listed_oldest_first_until_they_expire(store: Store) -> None:
    for window_ms, expires_ms in ((-60_000, NOW_MS), (120_000, NOW_MS + 1), (60_000, NOW_MS), (0, 1)):
        secret = store.queue.lock("a-1", window_ms, 60_000)
        assert secret is not None
        assert store.estimates.save("a-1", window_ms, secret, b"x", expires_ms)
    assert store.estimates.window_starts("a-1") == [-60_000, 60_000, 120_000]
    assert store.estimates.read("a-1", 0) is None
    assert store.estimates.window_starts("b-1") == []


@every_survey
def test_two_writers_that_take_turns_at_random_give_the_oracles_tally(store: Store, survey: Survey) -> None:
    """Each keeps its cache until a log is contended; both send everything, in different orders."""
    rng, shape, key = random.Random(f"two {survey.name}"), Shape.of(survey), Key(survey.id, WINDOW, 0)
    reports = random_reports(survey, 60, 300, rng, shard=0)
    todo = [[reports[start : start + 20] for start in range(0, 300, 20)] for _ in range(2)]
    for batches in todo:
        rng.shuffle(batches)
    caches: list[Cached | None] = [None, None]
    lost = 0
    while any(todo):
        writer = rng.choice([number for number in (0, 1) if todo[number]])
        cached = caches[writer] or load(store, key, shape)
        change = change_of(cached, todo[writer][-1], survey, key)
        outcome = apply(store, change, shard=0)
        if outcome.contended:
            caches[writer] = None
            lost += 1
        else:
            cached.applied(change, outcome.stamps[key])
            caches[writer] = cached
            todo[writer].pop()
    assert lost
    assert store.estimates.tally(survey.id, WINDOW, survey.shards, shape) == oracle(survey, reports)
    assert load(store, key, shape).table.tally() == oracle(survey, reports)
