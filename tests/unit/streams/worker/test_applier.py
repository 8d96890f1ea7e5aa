"""The applier: nothing is acknowledged before the store has it, and what fails is repeated."""

from __future__ import annotations

import logging
import random
import subprocess
import sys
from collections.abc import Sequence

import pytest

from streams.kafka.messages import FetchBatch
from streams.store.counters import UNKNOWN_SURVEY, Counters
from streams.store.shape import DAY_MS, Shape
from streams.worker.fold import DeadLetter
from streams.worker.retry import RestartRequired
from tests.support.applier import SHAPE, Bench, batches_of, faults, report
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.paths import ROOT
from tests.support.reports import (
    BITS_IN_GROUPS,
    CATEGORICAL,
    NOW_MS,
    TOPIC,
    WINDOW,
    batch_of,
    frame_of,
    oracle,
    random_reports,
    survey_of,
)


def test_a_batch_ends_in_the_tally_with_offsets_and_queued_window() -> None:
    bench = Bench()
    reports = random_reports(CATEGORICAL, 100, 500, random.Random(1))
    applied = bench.process(*batches_of(CATEGORICAL, reports, start=9))
    assert bench.store.estimates.tally(CATEGORICAL.id, WINDOW, CATEGORICAL.shards, SHAPE) == oracle(
        CATEGORICAL, reports
    )
    assert bench.offsets(0) == bench.offsets(1) == {10}
    assert [queued[:2] for queued in bench.store.queue.entries()] == [(CATEGORICAL.id, WINDOW)]
    assert applied.windows == {(CATEGORICAL.id, WINDOW): NOW_MS}
    assert applied.reports == 500
    counters = applied.counters
    assert bench.store.log.counters(CATEGORICAL.id) == counters
    assert (counters.expired, counters.rejected) == (0, {})
    assert 500 - counters.conflicting <= counters.applied + counters.duplicate + counters.outdated <= 500


def test_side_effects_come_in_the_order_that_loses_nothing() -> None:
    bench = Bench()
    bench.trace.clear()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()]), b"nonsense"))
    assert bench.trace == ["send dead letters", "log.load", "log.apply", "log.count", "queue.put"]
    assert [letter.offset for letter in bench.letters] == [1]


def test_dead_letters_that_cannot_be_sent_stop_the_batch_before_the_store_has_moved() -> None:
    bench = Bench()

    def refuse(letters: Sequence[DeadLetter]) -> None:
        raise RestartRequired("the broker is away")

    bench.applier._send_dead_letters = refuse
    with pytest.raises(RestartRequired):
        bench.process(batch_of(frame_of(CATEGORICAL, [report()]), b"nonsense"))
    assert bench.offsets(0) == {0}


def test_a_batch_of_nothing_but_nonsense_moves_the_offsets_on() -> None:
    bench = Bench()
    applied = bench.process(batch_of(b"nonsense", frame_of(survey_of(CATEGORICAL.mechanism, name="new"), [report()])))
    assert applied.counters.rejected == {"length": 1, "survey": 1}
    assert applied.reports == 0
    assert bench.offsets(0) == {2}
    assert bench.offsets(1) == {0}
    assert bench.store.log.counters(UNKNOWN_SURVEY).rejected == {"length": 1, "survey": 1}


def test_expired_reports_are_counted_and_not_sent_anywhere() -> None:
    bench = Bench()
    late = batch_of(frame_of(CATEGORICAL, [report(), report()]), timestamp_ms=NOW_MS + DAY_MS)
    assert bench.process(late).counters.expired == 2
    assert bench.letters == []
    assert bench.store.log.counters(CATEGORICAL.id).expired == 2
    assert bench.offsets(0) == {1}


def test_the_same_batch_again_changes_nothing_but_queues_its_windows_again() -> None:
    bench = Bench()
    batch = batch_of(frame_of(CATEGORICAL, [report()]))
    bench.process(batch)
    (queued,) = bench.store.queue.entries()
    bench.store.queue.remove(queued)
    applied = bench.process(batch)
    assert (applied.counters.applied, applied.counters.duplicate) == (0, 1)
    assert bench.store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, [report()])
    assert [queued[:2] for queued in bench.store.queue.entries()] == [(CATEGORICAL.id, WINDOW)]


def test_reading_starts_at_the_lowest_of_what_kafka_and_the_store_say() -> None:
    bench = Bench()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()]), start=99))
    fresh = Bench(bench.store).applier
    assert fresh.assigned(TOPIC, {0: 200, 1: 200}) == {0: 100, 1: 0}
    assert fresh.assigned(TOPIC, {0: 50}) == {0: 50}
    assert fresh.assigned(TOPIC, {0: None}) == {0: 0}
    assert fresh.assigned("other topic", {0: 7}) == {0: 0}


def test_what_the_store_lost_while_no_worker_looked_is_told_when_reading_starts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()]), start=6))
    bench.applier.assigned(TOPIC, {0: 7})
    assert not caplog.records
    bench.applier.assigned(TOPIC, {0: 9, 1: None})
    [told] = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"Redis lacks 2 records of {TOPIC} that had been counted and acknowledged: it lost writes")


def test_a_survey_with_more_shards_than_usual_counts_when_reading_starts() -> None:
    bench = Bench()
    bench.process(batch_of(b"", start=99))
    large = survey_of(CATEGORICAL.mechanism, name="large", shards=100)
    assert Bench(bench.store).applier.assigned(TOPIC, {0: 200}) == {0: 100}
    assert Bench(bench.store, surveys=(large,)).applier.assigned(TOPIC, {0: 200}) == {0: 0}


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["log.load", "log.apply", "log.count", "queue.put"])
def test_a_connection_lost_anywhere_leads_to_the_same_tally(method: str, when: str) -> None:
    bench = Bench()
    reports = random_reports(BITS_IN_GROUPS, 50, 200, random.Random(2))
    bench.process(*batches_of(BITS_IN_GROUPS, reports[:100]))
    bench.faults = faults((method, when), (method, when))
    bench.process(*batches_of(BITS_IN_GROUPS, reports[100:], start=1), batch_of(b"nonsense", start=2))
    shape = Shape.of(BITS_IN_GROUPS)
    assert bench.store.estimates.tally(BITS_IN_GROUPS.id, WINDOW, 4, shape) == oracle(BITS_IN_GROUPS, reports)
    assert bench.offsets(0) == {3}
    assert bench.offsets(1) == {2}
    assert bench.store.queue.entries()


def test_the_assignment_waits_for_the_store_too() -> None:
    bench = Bench()
    bench.faults = faults(("log.offsets", "before"), ("log.offsets", "after"))
    assert bench.applier.assigned(TOPIC, {0: 5}) == {0: 0}


def test_a_store_that_stays_away_makes_the_worker_exit_with_75(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(patience_seconds=60)
    bench.faults = lambda method, when: True  # noqa: ARG005  # always
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(RestartRequired, match=r"stays in Kafka: lost before log\.load") as left,
    ):
        bench.process(batch_of(frame_of(CATEGORICAL, [report()])))
    assert left.value.status == 75
    assert 60_000 <= bench.clock() - NOW_MS < 70_000
    assert 1 <= sum("retrying, last batch not acknowledged" in line for line in caplog.messages) <= 7


def test_a_worker_that_is_asked_to_stop_does_not_wait_for_the_store() -> None:
    bench = Bench()
    bench.faults = lambda method, when: True  # noqa: ARG005  # always
    bench.stopping = True
    with pytest.raises(RestartRequired):
        bench.process(batch_of(frame_of(CATEGORICAL, [report()])))
    assert bench.clock() == NOW_MS


def test_a_store_that_lost_acknowledged_writes_makes_the_worker_exit_and_the_next_one_reads_again() -> None:
    bench = Bench()
    reports = random_reports(CATEGORICAL, 60, 300, random.Random(7))
    batches = [batches_of(CATEGORICAL, reports[start : start + 100], start=start // 100) for start in (0, 100, 200)]
    bench.process(*batches[0])
    snapshot = bench.store.snapshot()
    bench.process(*batches[1])
    bench.store.restore(snapshot)
    with pytest.raises(
        RestartRequired,
        match=r"v1\[0\], shard 0: stored offset regressed from 2 to 1 \(Redis lost acknowledged writes\)",
    ):
        bench.process(*batches[2])
    fresh = Bench(bench.store)
    assert fresh.applier.assigned(TOPIC, {0: 2, 1: 2}) == {0: 1, 1: 1}
    fresh.process(*batches[1])
    fresh.process(*batches[2])
    assert bench.store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, reports)


def test_a_worker_that_lost_its_partition_applies_but_claims_no_offset() -> None:
    bench = Bench()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()])))
    bench.applier.revoked(TOPIC, [0])
    bench.process(batch_of(frame_of(CATEGORICAL, [report(rung=1)]), start=50))
    assert bench.offsets(0) == {1}
    assert bench.store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, [report(rung=1)])


def test_a_zombie_and_its_successor_do_not_hurt_each_other() -> None:
    clock = ManualClock(NOW_MS)
    store = MemoryStore(clock)
    zombie, owner = Bench(store, clock=clock), Bench(store, clock=clock)
    reports = random_reports(CATEGORICAL, 40, 400, random.Random(11))
    for number, start in enumerate(range(0, 400, 50)):
        batches = batches_of(CATEGORICAL, reports[start : start + 50], start=number)
        for worker in (zombie, owner) if number % 2 else (owner, zombie):
            worker.process(*batches)
    assert store.estimates.tally(CATEGORICAL.id, WINDOW, 4, SHAPE) == oracle(CATEGORICAL, reports)
    assert zombie.offsets(0) == {8}


def test_idle_shards_get_their_offset_with_every_batch() -> None:
    bench = Bench()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()]), start=4), batch_of(b"", start=5))
    assert bench.offsets(0) == {6}


def test_batches_of_two_topics_are_refused() -> None:
    bench = Bench()
    with pytest.raises(ValueError, match=r"one topic; got \['other', 'thaw.reports.v1'\]; process them one by one"):
        bench.process(batch_of(b""), FetchBatch("other", 0, 0, 0, []))


def test_nothing_is_nothing() -> None:
    bench = Bench()
    assert bench.process().reports == 0
    assert bench.process(batch_of(start=7)).reports == 0
    assert bench.offsets(0) == {7}


def test_a_worker_whose_clock_is_days_off_counts_what_came_in_time() -> None:
    ahead, behind, later = Bench(), Bench(), 30 * DAY_MS
    ahead.clock.advance(later)
    ahead.process(batch_of(frame_of(CATEGORICAL, [report()])))
    assert ahead.store.log.counters(CATEGORICAL.id) == Counters(applied=1)
    behind.process(batch_of(frame_of(CATEGORICAL, [report()], window_ms=WINDOW + later), timestamp_ms=NOW_MS + later))
    assert behind.store.log.counters(CATEGORICAL.id) == Counters(applied=1)


def test_a_timestamp_from_far_ahead_ends_no_window() -> None:
    """On a topic with CreateTime it is what a device claims."""
    bench = Bench()
    bench.process(batch_of(b"", timestamp_ms=NOW_MS + 1_000 * DAY_MS))
    bench.process(batch_of(frame_of(CATEGORICAL, [report()]), start=1))
    assert bench.store.log.counters(CATEGORICAL.id) == Counters(applied=1)


WARM = """
from streams.worker import kernels
from streams.worker.fold import warm_up
from tests.support.applier import Bench, report
from tests.support.reports import CATEGORICAL, batch_of, frame_of

NAMES = ("scan_frames", "pack_frames", "fold_entries", "rehash")

def compiled():
    return {name: len(getattr(kernels, name).signatures) for name in NAMES}

warm_up()
before = compiled()
bench = Bench()
for _ in range(2):
    bench.process(batch_of(frame_of(CATEGORICAL, [report(user=user) for user in range(500)])))
    bench = Bench(bench.store)
assert before == compiled(), (before, compiled())
assert all(before.values())
"""


def test_warming_up_compiles_all_that_a_batch_needs() -> None:
    subprocess.run([sys.executable, "-c", WARM], check=True, cwd=ROOT)


def test_a_worker_at_rest_notices_that_a_stored_offset_regressed() -> None:
    bench = Bench()
    snapshot = bench.store.snapshot()
    bench.applier.verify()
    bench.process(batch_of(frame_of(CATEGORICAL, [report()]), start=4))
    bench.applier.verify()
    assert bench.offsets(0) == {5}
    bench.store.restore(snapshot)
    with pytest.raises(RestartRequired, match="stored offset regressed from 5 to 0"):
        bench.applier.verify()


def test_a_worker_at_rest_waits_for_the_store_and_says_when_it_is_back(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.faults = faults(("log.apply", "before"))
    with caplog.at_level(logging.WARNING):
        bench.applier.verify()
    assert [line.split(";")[0] for line in caplog.messages] == ["lost before log.apply", "the store answers again"]


def test_what_was_applied_beside_a_contended_log_is_checked_again_before_the_offset_moves() -> None:
    """The store loses the half of a shard's step that it had taken, between that and the other half.

    The offset does not show it: it had not been raised yet.
    """
    early, late = WINDOW - 60_000, WINDOW
    first, second, other = report(user=1), report(user=2), report(user=3)
    bench = Bench()
    saved = []

    def interfere(method: str, when: str) -> bool:
        if method == "log.apply" and bench.trace.count("log.apply") == 1:
            if when == "before":
                Bench(bench.store).process(batch_of(frame_of(CATEGORICAL, [other], window_ms=late)))
                saved.append(bench.store.snapshot())
            else:
                assert bench.store.estimates.tally(CATEGORICAL.id, early, 4, SHAPE).total_users == 1
                bench.store.restore(saved[0])
        return False

    bench.faults = interfere
    frames = [frame_of(CATEGORICAL, [first], window_ms=early), frame_of(CATEGORICAL, [second], window_ms=late)]
    bench.trace.clear()
    applied = bench.process(batch_of(*frames, start=10))
    assert bench.store.estimates.tally(CATEGORICAL.id, early, 4, SHAPE) == oracle(CATEGORICAL, [first])
    assert bench.store.estimates.tally(CATEGORICAL.id, late, 4, SHAPE) == oracle(CATEGORICAL, [second, other])
    assert applied.counters.duplicate == 0
    assert bench.store.log.offsets(TOPIC, 0, [0, 2]) == {0: 12, 2: 1}
    with pytest.raises(RestartRequired, match="shard 2: stored offset regressed"):
        bench.applier.verify()


def test_a_connection_lost_after_a_contended_log_makes_the_whole_shard_start_again() -> None:
    early, late = WINDOW - 60_000, WINDOW
    first, second, other = report(user=1), report(user=2), report(user=3)
    bench = Bench()
    saved = []

    def interfere(method: str, when: str) -> bool:
        applies = bench.trace.count("log.apply")
        if method == "log.apply" and when == "before" and applies == 1:
            Bench(bench.store).process(batch_of(frame_of(CATEGORICAL, [other], window_ms=late)))
            saved.append(bench.store.snapshot())
        if method == "log.apply" and when == "before" and applies == 2:
            bench.store.restore(saved[0])
            return True
        return False

    bench.faults = interfere
    frames = [frame_of(CATEGORICAL, [first], window_ms=early), frame_of(CATEGORICAL, [second], window_ms=late)]
    bench.trace.clear()
    bench.process(batch_of(*frames, start=10))
    assert bench.store.estimates.tally(CATEGORICAL.id, early, 4, SHAPE) == oracle(CATEGORICAL, [first])
    assert bench.store.estimates.tally(CATEGORICAL.id, late, 4, SHAPE) == oracle(CATEGORICAL, [second, other])
