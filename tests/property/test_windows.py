"""Windows against brute force."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from producers.survey.windows import Windows


@given(st.integers(1, 60), st.data(), st.integers(-500, 500))
def test_the_windows_of_a_moment_are_those_that_contain_it(size: int, data: st.DataObject, time_ms: int) -> None:
    step = data.draw(st.integers(1, size))
    windows = Windows(size, step)
    brute = [start for start in range(-600, 600) if windows.is_start(start) and start <= time_ms < windows.end(start)]
    assert list(windows.starts(time_ms)) == brute
    assert brute, "every moment belongs to a window"
    assert windows.latest(time_ms) == brute[-1]
