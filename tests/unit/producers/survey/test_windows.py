"""Windows are half-open: a moment on the boundary belongs to the later one."""

from __future__ import annotations

import pytest

from producers.survey.windows import Windows


def test_a_moment_on_the_boundary_belongs_to_the_later_window() -> None:
    windows = Windows(60_000, 60_000)
    assert list(windows.starts(59_999)) == [0]
    assert list(windows.starts(60_000)) == [60_000]
    assert windows.latest(60_000) == 60_000
    assert windows.end(60_000) == 120_000


def test_overlapping_windows_are_listed_oldest_first() -> None:
    assert list(Windows(60_000, 20_000).starts(59_999)) == [0, 20_000, 40_000]


def test_moments_before_the_epoch_have_windows_too() -> None:
    assert list(Windows(60_000, 60_000).starts(-1)) == [-60_000]


@pytest.mark.parametrize(("size_ms", "step_ms"), [(0, 0), (10, 0), (10, -1), (10, 11)])
def test_windows_that_would_leave_gaps_are_refused(size_ms: int, step_ms: int) -> None:
    with pytest.raises(ValueError, match="windows need 0 < step <= size, otherwise some moments belong to none"):
        Windows(size_ms, step_ms)
