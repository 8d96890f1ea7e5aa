"""The cache of the applier: what it holds, and what leaves it first."""

from __future__ import annotations

import pytest

from producers.survey.editions import newest
from producers.survey.survey import Survey
from streams.kafka.messages import FetchBatch
from streams.store.shape import Key, Shape
from streams.worker.applier import CACHE_BYTES
from streams.worker.retry import RestartRequired
from tests.support.applier import SHAPE, Bench, report
from tests.support.clock import ManualClock
from tests.support.continuing import LONGER, SHORT
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    TOPIC,
    WINDOW,
    Report,
    batch_of,
    frame_of,
    oracle,
    survey_of,
    token_in,
)
from tests.support.surveys import WEEK, WINDOW_MS


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


def test_a_ladder_that_grows_is_counted_in_the_same_logs_each_token_once() -> None:
    """Frames of both surveys in one batch, on top of what was cached with the shorter ladder."""
    bench = Bench(surveys=(SHORT,), clock=ManualClock(WEEK + 1))
    known = [Report(token_in(0, user, SHORT), 0, bytes([user])) for user in range(3)]
    old = known[0]._replace(rung=1)
    new = known[1]._replace(rung=2)

    def frames(*some: tuple[Survey, Report]) -> FetchBatch:
        raw = b"".join(frame_of(of, [one], window_ms=WEEK) for of, one in some)
        return batch_of(raw, timestamp_ms=WEEK + WINDOW_MS + 60_000)

    bench.process(frames(*((SHORT, one) for one in known)))
    bench.surveys.add(LONGER)
    assert list(newest(bench.surveys.surveys(0))) == [SHORT.id] == [LONGER.id]
    bench.process(frames((SHORT, old), (LONGER, new), (LONGER, known[2]), (SHORT, known[2])))
    tally = bench.store.estimates.tally(LONGER.id, WEEK, LONGER.shards, Shape.of(LONGER))
    assert tally.users.ravel().tolist() == [1, 1, 1]
    assert not bench.letters
    behind = Bench(bench.store, surveys=(SHORT,), clock=bench.clock)
    with pytest.raises(RestartRequired, match="has 3 rungs and the survey here 2: another survey continues it"):
        behind.process(frames((SHORT, known[0])))
    assert bench.store.estimates.tally(LONGER.id, WEEK, LONGER.shards, Shape.of(LONGER)) == tally
