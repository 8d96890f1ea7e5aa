"""The cache of the applier: what it holds, and what leaves it first."""

from __future__ import annotations

from streams.store.shape import Key
from streams.worker.applier import CACHE_BYTES
from tests.support.applier import SHAPE, Bench, report
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    TOPIC,
    WINDOW,
    batch_of,
    frame_of,
    oracle,
    survey_of,
)


def test_the_cache_saves_loading_again_until_it_is_too_large() -> None:
    large, none = Bench(cache_bytes=CACHE_BYTES), Bench(cache_bytes=0)
    for bench in (large, none):
        for offset in range(3):
            bench.process(batch_of(frame_of(CATEGORICAL, [report(rung=offset)]), start=offset))
        assert bench.store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, [report(rung=2)])
    assert (large.trace.count("log.load"), none.trace.count("log.load")) == (1, 3)
    assert large.applier.cached_bytes > none.applier.cached_bytes == 0


def test_the_least_recently_used_log_goes_first() -> None:
    bench = Bench()
    for shard in (0, 2, 0):
        bench.process(batch_of(frame_of(CATEGORICAL, [report(shard=shard)])))
    bench.applier._cache_bytes = bench.applier.cached_bytes - 1
    bench.process(batch_of(b""))
    assert list(bench.applier._cache) == [Key(CATEGORICAL.id, WINDOW, 0)]


def test_logs_of_windows_that_are_gone_leave_the_cache() -> None:
    bench = Bench()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()])))
    bench.clock.advance(SHAPE.life_ms)
    bench.process(batch_of(b""))
    assert bench.applier.cached_bytes, "the broker's time decides, not the worker's"
    bench.process(batch_of(b"", timestamp_ms=NOW_MS + SHAPE.life_ms))
    assert bench.applier.cached_bytes == 0


def test_revoked_partitions_leave_the_cache() -> None:
    bench = Bench()
    bench.process(
        batch_of(frame_of(CATEGORICAL, [report()])),
        batch_of(frame_of(CATEGORICAL, [report(shard=1)]), partition=1),
    )
    bench.applier.revoked(TOPIC, [1])
    assert list(bench.applier._cache) == [Key(CATEGORICAL.id, WINDOW, 0)]


def test_a_retention_that_was_changed_moves_the_expiry_of_cached_logs() -> None:
    bench = Bench(surveys=(CATEGORICAL,))
    bench.process(batch_of(frame_of(CATEGORICAL, [report()])))
    longer = survey_of(CATEGORICAL.mechanism, name="categorical", retention_ms=CATEGORICAL.retention_ms + 5_000)
    assert longer.id == CATEGORICAL.id
    bench.surveys._surveys[longer.digest] = longer
    bench.process(batch_of(frame_of(longer, [report(rung=1)])))
    bench.clock.advance(WINDOW + SHAPE.life_ms - NOW_MS)
    assert bench.store.estimates.tally(longer.id, WINDOW, 4, SHAPE).total_users == 1
    bench.clock.advance(5_000)
    assert bench.store.estimates.tally(longer.id, WINDOW, 4, SHAPE).total_users == 0
