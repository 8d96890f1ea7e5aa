"""Commands that count again say how far they are: a line that changes on a terminal, one now and then in a log."""

from __future__ import annotations

import io
import sys

import pytest

from streams.cli.terminal.windows import ProgressLines
from streams.repair.rebuild import Progress


class Terminal(io.StringIO):
    """A terminal of one line: shows what stands there after all that was written."""

    def isatty(self) -> bool:
        return True

    def shown(self) -> str:
        line = ""
        for written in self.getvalue().rstrip("\n").split("\r"):
            line = written + line[len(written) :]
        return line.rstrip()


class Clock:
    """Seconds that pass with every look."""

    def __init__(self, step: float) -> None:
        self.now, self._step = 0.0, step

    def __call__(self) -> float:
        self.now += self._step
        return self.now


STEPS = [Progress(1_000, 0, None), Progress(1_234_567, 0, None), Progress(1_234_567, 199, 200)]
CLOSING = "colour: 1,234,567 records read, 200 windows compared"


def test_a_terminal_has_one_line_that_changes_and_nothing_of_a_longer_one_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    tell = ProgressLines("colour", Clock(1))
    seen = []
    for progress in STEPS:
        tell(progress)
        seen.append(terminal.shown())
    tell.done(Progress(1_234_567, 200, 200))
    assert seen == [
        "colour: 1,000 records read",
        "colour: 1,234,567 records read",
        "colour: 1,234,567 records read, 199 of 200 windows compared",
    ]
    assert terminal.shown() == CLOSING
    assert terminal.getvalue().count("\n") == 1


@pytest.mark.parametrize(("step", "lines"), [(6.0, 3), (0.001, 0)], ids=["seconds apart", "at once"])
def test_a_log_gets_a_line_every_ten_seconds_and_the_closing_one(
    step: float, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    tell = ProgressLines("colour", Clock(step))
    for progress in STEPS:
        tell(progress)
        tell(progress)
    tell.done(Progress(1_234_567, 200, 200))
    told = capsys.readouterr().err.splitlines()
    assert len(told) == lines + 1
    assert told[-1] == CLOSING
    assert "\r" not in "".join(told)
