"""When a window is settled: after its last rung, its jitter and the time of arrival, if workers counted since."""

import pytest

from streams.windows.settled import ARRIVAL_MS, is_settled, released_ms, settles_ms, window_state
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
