"""When a window is settled: after its last rung, its jitter and the time of arrival, if workers counted since."""

import pytest

from streams.store.contract import QueuedWindow
from streams.store.heartbeats import Heartbeat
from streams.windows.settled import (
    ARRIVAL_MS,
    counted_until_ms,
    is_settled,
    released_ms,
    settles_ms,
    window_state,
)
from tests.support.exporter import record_of
from tests.support.surveys import WEEK, survey

END_MS = WEEK + 60_000


def test_jitter_and_arrival_are_waited_for() -> None:
    known = survey(jitter='jitter = "5s"')
    assert released_ms(known, WEEK) == END_MS + 35_000
    assert settles_ms(known, WEEK) == END_MS + 35_000 + ARRIVAL_MS


@pytest.mark.parametrize(
    ("now_ms", "read_ms", "counted_ms", "state"),
    [
        (END_MS - 1, END_MS - 1, END_MS - 1, "open"),
        (END_MS, END_MS, END_MS, "releasing"),
        (END_MS + 30_000 + ARRIVAL_MS - 1, END_MS + 31_000, END_MS + 31_000, "releasing"),
        (END_MS + 30_000 + ARRIVAL_MS, END_MS + 30_000, None, "settled"),
        # No worker since the window was open: its stored estimate stays that of an open window, at any time.
        (END_MS + 900_000, END_MS - 30_000, END_MS + 29_999, "waiting"),
        (END_MS + 900_000, END_MS - 30_000, None, "waiting"),
        # Nothing came for the last rung, but the workers counted other windows since.
        (END_MS + 900_000, END_MS + 10_000, END_MS + 30_000, "settled"),
    ],
)
def test_states_follow_time_and_counting(now_ms: int, read_ms: int, counted_ms: int | None, state: str) -> None:
    known = survey(jitter='jitter = "0s"')
    record = record_of(known, WEEK, [0.5, 0.3, 0.2], read_ms=read_ms)
    assert window_state(known, record, now_ms, counted_ms) == state
    assert is_settled(known, record, now_ms, counted_ms) == (state == "settled")


def beat(worker: str, time_ms: int, lag_seconds: float | None) -> Heartbeat:
    return Heartbeat(worker, time_ms, None, None, None, None, lag_seconds=lag_seconds)


NOW_MS = END_MS + 90_000


@pytest.mark.parametrize(
    ("beats", "queued", "until_ms"),
    [
        ([("a", NOW_MS - 1_000, 0.5)], [], NOW_MS - 1_500),
        # The slowest worker decides, and a window whose counts changed and that was not estimated since.
        ([("a", NOW_MS - 1_000, 0.5), ("b", NOW_MS, 65.0)], [], NOW_MS - 65_000),
        ([("a", NOW_MS - 1_000, 0.5)], [(WEEK, NOW_MS - 20_000)], NOW_MS - 20_000),
        # A worker that is dead left its partitions to others; if all are dead, nothing was counted since.
        ([("a", NOW_MS, 0.0), ("b", NOW_MS - 300_000, 9.0)], [], NOW_MS),
        ([("a", NOW_MS - 400_000, 0.0), ("b", NOW_MS - 300_000, 9.0)], [], NOW_MS - 309_000),
        # An old window waits for its turn, which says nothing about current ones.
        ([("a", NOW_MS, 0.0)], [(WEEK - 600_000, NOW_MS - 500_000)], NOW_MS),
        # Nobody tells: the newest estimate is all that is known.
        ([("a", NOW_MS, None)], [], NOW_MS - 7_000),
        ([], [], NOW_MS - 7_000),
    ],
)
def test_reports_are_counted_until_the_oldest_one_that_waits(
    beats: list[tuple[str, int, float | None]], queued: list[tuple[int, int]], until_ms: int
) -> None:
    known = survey()
    queue = [QueuedWindow(known.id, start_ms, 1_000.0 * score_ms) for start_ms, score_ms in queued]
    assert counted_until_ms([known], [beat(*one) for one in beats], queue, NOW_MS - 7_000, NOW_MS) == until_ms


def test_a_window_waits_while_the_workers_are_behind() -> None:
    """Estimates were computed a moment ago, of counts that end a minute before: few devices, at the lowest rung."""
    known = survey(jitter='jitter = "0s"')
    record = record_of(known, WEEK, [0.5, 0.3, 0.2], read_ms=NOW_MS - 100)
    behind, even = (
        counted_until_ms([known], [beat("a", NOW_MS, lag)], [], NOW_MS - 100, NOW_MS) for lag in (65.0, 1.0)
    )
    assert window_state(known, record, NOW_MS, behind) == "waiting"
    assert window_state(known, record, NOW_MS, even) == "settled"
