"""Goals are met or missed by what they say."""

from __future__ import annotations

import pytest

from tests.bench.__main__ import PARTS, main
from tests.bench.goals import Result, side_by_side, table


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (Result("a", 100, "M/s", "peer", 2, least_ratio=50), "goal a: met"),
        (Result("b", 100, "M/s", "peer", 2.5, least_ratio=50), "goal b: missed by 10 times"),
        (Result("e", 0.28, "M/s", "drain", 1, least_ratio=0.3), "goal e: missed by 0.02 times"),
        (Result("c", 2, "GB", most=2), "goal c: met"),
        (Result("d", 2.5, "GB", most=2), "goal d: missed by 0.5 GB"),
    ],
)
def test_a_goal_says_whether_it_is_met(result: Result, line: str) -> None:
    assert result.verdict == line
    assert line.split()[1].rstrip(":") in table([result])


def test_a_row_without_a_goal_is_only_shown() -> None:
    result = Result("f", 7, "M/s", "peer", 2)
    assert result.verdict is None
    assert "3.50" in table([result])


def test_an_unfinished_rival_is_marked() -> None:
    assert "> 50" in table([Result("a", 100, "M/s", "peer", 2, least_ratio=50, still_running=True)])


def test_both_sides_are_measured_in_turns() -> None:
    calls: list[str] = []
    side_by_side(lambda: calls.append("ours"), lambda: calls.append("theirs"), rounds=2)
    assert calls == ["ours", "theirs"] * 3


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["no-such-part"]) == 2
    assert PARTS[0] in capsys.readouterr().err
