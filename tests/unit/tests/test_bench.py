"""Goals are met or missed by what they say."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.bench.__main__ import PARTS, as_json, main
from tests.bench.engines.job import Counted, reports_of
from tests.bench.goals import Measured, Result, Series, Spent, side_by_side, table
from tests.bench.processes import forget_peak, peak_mib
from tests.support.reports import CATEGORICAL, Report, messages_of, token_in


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


def test_a_limit_shows_how_much_of_it_is_needed() -> None:
    assert "0.75" in table([Result("g", 1.5, "MB", most=2)])


def test_what_was_measured_is_written_with_machine_verdicts_and_curves() -> None:
    found: list[Measured] = [
        Result("a", 3, "s", most=2),
        Series("users", "ours", [(1.0, 2.0)]),
        Spent("all", {"worker": 0.1}),
    ]
    written = json.loads(as_json(found, {"processor": "two"}))
    assert written["machine"] == {"processor": "two"}
    assert written["results"][0]["verdict"] == "goal a: missed by 1 s"
    assert written["series"] == [{"name": "users", "label": "ours", "points": [[1.0, 2.0]]}]
    assert written["spent"] == [{"name": "all", "parts": {"worker": 0.1}}]


def test_other_stream_processors_read_the_same_reports_and_keep_the_highest_rung() -> None:
    some = [Report(token_in(1, user, CATEGORICAL), rung, bytes([user])) for user in (1, 2) for rung in (1, 0)]
    [message] = messages_of(CATEGORICAL, some, partitions=1).values()
    counted, held = Counted(), dict[bytes, tuple[int, int]]()
    counted.begin()
    for token, rung, answer in reports_of(message):
        counted.replace(held.get(token), (rung, answer))
        held[token] = max(held.get(token, (-1, 0)), (rung, answer))
    assert counted.reports == len(some)
    assert +counted.tally == {"1:1": 1, "1:2": 1}


def test_a_peak_that_is_forgotten_is_not_told_again() -> None:
    # Each line that comes in: take 200 MiB, give them back, and say so.
    loop = "import sys\nfor _ in sys.stdin:\n    held = bytearray(200 << 20)\n    del held\n    print(flush=True)"
    with subprocess.Popen([sys.executable, "-c", loop], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        peaks = []
        for _ in range(2):
            forget_peak(child.pid)
            peaks.append(peak_mib(child.pid))
            child.stdin.write(b"\n")
            child.stdin.flush()
            child.stdout.readline()
            peaks.append(peak_mib(child.pid))
        child.stdin.close()
    before, taken, forgotten, again = peaks
    assert min(taken, again) > 200 > 100 > max(before, forgotten)
