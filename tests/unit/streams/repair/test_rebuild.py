"""Counting again from Kafka: what is lost comes back, what is wrong goes, and workers at work lose nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from producers.survey.survey import Survey
from streams.cli.rebuild import as_data
from streams.cli.terminal.times import moment_ms
from streams.store.shape import DAY_MS, Key, Shape
from tests.support.clock import ManualClock
from tests.support.plain_table import PlainTable
from tests.support.rebuild import Bench, Topic, some
from tests.support.reports import (
    CATEGORICAL,
    NOW_MS,
    SURVEYS,
    TOPIC,
    WINDOW,
    WINDOW_MS,
    Report,
    oracle,
    packed,
    token_in,
)


@pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)
def test_a_lost_store_comes_back_from_kafka_alone(survey: Survey) -> None:
    bench = Bench(survey)
    reports = some(survey)
    for other in SURVEYS:
        if other is not survey:
            bench.topic.send(other, some(other))
    for start in range(0, len(reports), 7):
        bench.topic.send(survey, reports[start : start + 7])
    expected = oracle(survey, reports)
    [found] = bench.rebuild()
    assert (found.status, found.missing, found.extra) == ("differs", expected.total_users, 0)
    assert bench.tally().total_users == 0
    [found] = bench.rebuild(replace=True)
    assert (found.status, found.right) == ("replaced", expected)
    assert bench.tally() == expected
    assert [queued.window_ms for queued in bench.store.queue.entries()] == [WINDOW]
    bench.work()
    assert bench.tally() == expected
    assert [count.status for count in bench.rebuild()] == ["equal"]


def test_what_workers_have_counted_equals_what_is_counted_again() -> None:
    bench = Bench()
    for window in range(3):
        bench.topic.send(CATEGORICAL, some(CATEGORICAL, seed=window), window_ms=WINDOW - window * WINDOW_MS)
    bench.work()
    before = bench.store.log.seen([Key(CATEGORICAL.id, WINDOW, shard) for shard in range(4)])
    assert [count.status for count in bench.rebuild(replace=True)] == ["equal"] * 3
    assert bench.store.log.seen(list(before)) == before
    [only] = bench.rebuild(window_ms=WINDOW - WINDOW_MS)
    assert only.window_ms == WINDOW - WINDOW_MS
    assert bench.rebuilder.lag(TOPIC) == 0


def test_what_kafka_never_held_goes_and_what_cannot_be_read_is_replaced() -> None:
    bench = Bench()
    bench.topic.send(CATEGORICAL, some(CATEGORICAL))
    bench.work()
    expected = bench.tally()
    made_up = PlainTable(Shape.of(CATEGORICAL))
    made_up.fold(packed(CATEGORICAL, [Report(token_in(1, 99, CATEGORICAL), 2, b"\0")]))
    key = Key(CATEGORICAL.id, WINDOW, 1)
    assert bench.store.log.replace(key, bench.store.log.seen([key])[key], made_up)
    [found] = bench.rebuild()
    assert (found.status, found.extra) == ("differs", 1)
    bench.store.segments(Key(CATEGORICAL.id, WINDOW, 2)).append(b"half an entry")
    assert [count.status for count in bench.rebuild()] == ["unreadable"]
    assert [count.status for count in bench.rebuild(replace=True)] == ["replaced"]
    assert bench.tally() == expected


def test_a_window_that_kafka_holds_only_in_part_is_never_shortened() -> None:
    bench = Bench()
    everyone = [Report(token_in(0, user, CATEGORICAL), 0, b"\1") for user in range(6)]
    for report in everyone:
        bench.topic.send(CATEGORICAL, [report])
    bench.work()
    bench.topic.send(CATEGORICAL, [Report(everyone[0].token, 2, b"\3")])
    bench.topic.deleted = 4
    [found] = bench.rebuild(replace=True)
    assert (found.status, found.complete, found.missing) == ("replaced", False, 1)
    assert bench.tally() == oracle(CATEGORICAL, [*everyone, Report(everyone[0].token, 2, b"\3")])
    [found] = bench.rebuild(replace=True)
    assert (found.status, found.right.total_users) == ("equal", 6)


def test_kafka_is_complete_if_what_it_lacks_came_before_the_window() -> None:
    bench = Bench()
    for at_ms in (WINDOW - 2 * WINDOW_MS, WINDOW - CATEGORICAL.skew_ms - 1):
        bench.topic.send(
            CATEGORICAL, [Report(token_in(0, 1, CATEGORICAL), 0, b"\1")], window_ms=WINDOW - WINDOW_MS, at_ms=at_ms
        )
    bench.topic.send(CATEGORICAL, [Report(token_in(0, 2, CATEGORICAL), 0, b"\1")])
    bench.topic.deleted = 1
    assert [(count.window_ms, count.complete) for count in bench.rebuild()] == [
        (WINDOW - WINDOW_MS, False),
        (WINDOW, True),
    ]


def test_a_topic_that_was_made_again_takes_no_count_away() -> None:
    """Its first offset is 0 although the window's first reports lay in a topic that is gone."""
    bench = Bench()
    bench.topic.send(CATEGORICAL, some(CATEGORICAL))
    bench.work()
    before = bench.tally().total_users
    bench.topic = Topic()
    bench.topic.send(CATEGORICAL, [Report(token_in(1, 99, CATEGORICAL), 0, b"\1")], at_ms=NOW_MS + 1)
    [found] = bench.rebuild(replace=True, since_ms=NOW_MS)
    assert (found.status, found.complete, found.missing, found.extra) == ("replaced", False, 1, 0)
    assert bench.tally().total_users == before + 1


@pytest.mark.parametrize("since_ms", [WINDOW - CATEGORICAL.skew_ms - 1, WINDOW - CATEGORICAL.skew_ms])
def test_a_window_that_began_after_the_topic_was_made_again_is_complete(since_ms: int) -> None:
    bench = Bench()
    early_ms = WINDOW - CATEGORICAL.skew_ms - 1
    for shard, complete in ((0, False), (1, since_ms == early_ms)):
        first = [Report(token_in(shard, 1, CATEGORICAL), 0, b"\1")]
        bench.topic.send(CATEGORICAL, first, window_ms=WINDOW - WINDOW_MS, at_ms=early_ms)
        [found] = bench.rebuild(window_ms=WINDOW, since_ms=since_ms)
        assert found.complete is complete, "every partition must have a record that is older than the window"


@pytest.mark.parametrize("days", [-3, 3])
def test_a_wrong_clock_here_leaves_no_window_out(days: int) -> None:
    bench = Bench()
    bench.topic.send(CATEGORICAL, some(CATEGORICAL))
    wrong = ManualClock(NOW_MS + days * DAY_MS)
    assert [count.status for count in bench.rebuild(replace=True, clock=wrong)] == ["replaced"]
    assert bench.tally() == oracle(CATEGORICAL, some(CATEGORICAL))


def test_what_a_worker_counts_in_between_is_not_lost() -> None:
    bench = Bench()
    sent = some(CATEGORICAL)
    bench.topic.send(CATEGORICAL, sent)
    bench.work()
    bench.store._shared.state.logs.clear()

    def a_worker_counts() -> None:
        # At the moment that hurts most: the state of the store was seen, Kafka not yet read.
        if len(sent) < 160:
            more = some(CATEGORICAL, seed=len(sent))
            sent.extend(more)
            bench.topic.send(CATEGORICAL, more)
            bench.work()

    bench.topic.before_read = a_worker_counts
    [found] = bench.rebuild(replace=True)
    assert len(sent) > 80
    assert found.status == "replaced"
    assert bench.tally() == oracle(CATEGORICAL, sent)


def test_a_window_that_never_stands_still_is_reported_as_moving() -> None:
    bench = Bench()
    bench.topic.send(CATEGORICAL, [Report(token_in(0, 1, CATEGORICAL), 0, b"\1")])
    bench.work()
    spoilt = bench.store.segments(Key(CATEGORICAL.id, WINDOW, 0))
    bench.topic.before_read = lambda: spoilt.append(b"half an entry")
    assert [found.status for found in bench.rebuild(replace=True)] == ["moving"]
    bench.topic.before_read = lambda: None
    assert [found.status for found in bench.rebuild(replace=True)] == ["replaced"]


def test_expired_windows_are_skipped_and_lag_is_reported() -> None:
    bench = Bench()
    bench.topic.send(CATEGORICAL, some(CATEGORICAL))
    [found] = bench.rebuild()
    assert bench.rebuilder.lag(TOPIC) == 2
    data = as_data(CATEGORICAL, [replace(found, status="moving")], 2)
    assert data["lag_records"] == 2
    assert data["windows"][0] == {
        "start_ms": WINDOW,
        "status": "moving",
        "users": found.missing,
        "users_stored": 0,
        "missing": found.missing,
        "extra": 0,
        "complete": True,
    }
    bench.clock.advance(CATEGORICAL.retention_ms + WINDOW_MS + 86_400_000)
    assert bench.rebuild() == []


def test_moments_are_numbers_or_iso() -> None:
    assert moment_ms("2026-01-31T12:00") == moment_ms("2026-01-31T13:00+01:00") == 1_769_860_800_000
    with pytest.raises(ValueError, match="noon"):
        moment_ms("noon")
