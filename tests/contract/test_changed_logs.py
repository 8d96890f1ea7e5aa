"""A report log that was shortened or changed, or is damaged at rest, is noticed: on both stores."""

from __future__ import annotations

import pytest

from streams.repair.scrub import LOGS_AT_ONCE, SHARE, STEP_SECONDS, Scrub
from streams.store.entry import ANSWER_AT
from streams.windows.record import decode_estimate
from streams.worker.table import Table
from tests.support.damaged import COLOUR, KEY, NOW_MS, OTHER, SHAPE, Damaged
from tests.support.reports import WINDOW, WINDOW_MS, SurveyDict, oracle


@pytest.mark.parametrize("gone", [True, False], ids=["a segment is empty", "an answer is another"])
def test_a_log_that_lacks_what_was_counted_is_counted_again(damaged: Damaged, gone: bool) -> None:
    damaged.send(seed=1)
    first = damaged.entries()
    damaged.send(seed=2)
    last = bytearray(damaged.entries()[len(first) :])
    last[ANSWER_AT - SHAPE.entry_bytes] = (last[ANSWER_AT - SHAPE.entry_bytes] + 1) % SHAPE.size
    damaged.damage("last", b"" if gone else bytes(last))
    damaged.restart()
    damaged.send(seed=3)
    assert [queued[:2] for queued in damaged.store.unreadable.entries()] == [(COLOUR.id, WINDOW)]
    assert damaged.counted("log") == 1
    assert damaged.recomputer.tick() == 1
    assert damaged.published == [OTHER]
    assert damaged.rebuilder.look() == 1
    assert damaged.equal()


def test_what_is_left_of_a_log_outlives_what_kafka_lost(damaged: Damaged) -> None:
    damaged.send(seed=1)
    kept = Table.of_log(SHAPE, damaged.entries()).tally()
    damaged.send(seed=2)
    damaged.damage("last", b"")
    damaged.topic_made_again()
    assert damaged.recount(replace=False) == "unreadable"
    assert damaged.recount(replace=True) == "replaced"
    assert Table.of_log(SHAPE, damaged.entries()).tally() == kept


@pytest.mark.parametrize("raw", [b"", b"something else"], ids=["a segment is empty", "unreadable"])
def test_damage_at_rest_is_found_although_nobody_works_on_the_window(damaged: Damaged, raw: bytes) -> None:
    damaged.send(seed=1)
    damaged.send(seed=2)
    assert damaged.recomputer.tick() == 2
    damaged.damage("last", raw)
    assert damaged.recomputer.tick() == 0
    scrub = Scrub(damaged.store, SurveyDict(COLOUR), damaged.metrics, timer=lambda: 0.0)
    assert scrub.step(NOW_MS) + scrub.step(NOW_MS) == 2 * COLOUR.shards
    assert [queued[:2] for queued in damaged.store.unreadable.entries()] == [(COLOUR.id, WINDOW)]
    assert damaged.rebuilder.look() == 1
    assert damaged.equal()
    assert damaged.recomputer.tick() == 1


def test_a_tally_that_is_repaired_at_rest_gets_its_window_a_new_estimate(damaged: Damaged) -> None:
    damaged.send(seed=1)
    assert damaged.recomputer.tick() == 2
    damaged.damage("tally", b"no tally")
    scrub = Scrub(damaged.store, SurveyDict(COLOUR), damaged.metrics, timer=lambda: 0.0)
    assert scrub.step(NOW_MS) + scrub.step(NOW_MS) == 2 * COLOUR.shards
    assert damaged.equal()
    assert damaged.recomputer.tick() == 1


def test_no_estimate_is_made_while_a_tally_is_missing(damaged: Damaged) -> None:
    damaged.send(seed=1)
    seen = damaged.store.log.seen([KEY])[KEY]
    assert damaged.store.log.distrust(KEY, seen)
    assert damaged.recomputer.tick() == 2
    payload = damaged.store.estimates.read(COLOUR.id, WINDOW)
    assert payload is not None
    assert decode_estimate(payload).users == oracle(COLOUR, damaged.sent[WINDOW]).total_users


def test_logs_at_rest_are_read_in_a_small_share_of_the_time(damaged: Damaged) -> None:
    damaged.send(seed=1)
    assert damaged.recomputer.tick() == 2
    seconds = [0.0]

    def timer() -> float:
        seconds[0] += 2 * STEP_SECONDS
        return seconds[0]

    scrub = Scrub(damaged.store, SurveyDict(COLOUR), damaged.metrics, timer=timer)
    looks, late_ms = 10 * round(1 / SHARE), NOW_MS + 100 * WINDOW_MS
    steps = [scrub.step(now_ms) for _ in range(looks) for now_ms in (NOW_MS, late_ms)]
    assert max(steps) == LOGS_AT_ONCE
    # A step that reads asks for the time three times, and each answer is two steps later.
    assert 0 < sum(map(bool, steps)) * 4 * STEP_SECONDS <= 1.1 * SHARE * seconds[0]
