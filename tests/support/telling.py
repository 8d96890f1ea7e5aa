"""How long it takes until somebody is told of a fault, measured by the tests that make the faults on real services.

The names of faults are the beginnings of rows of the table in `docs/reliability.md`. Nothing in `make test` asserts how
fast something was; `make told` runs these tests alone, prints what they measured and judges it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from producers.clock import system_clock
from streams.local.process import Child
from tests.support.deadline import until

Result = TypeVar("Result")

_PRESSURE = Path("/proc/pressure/cpu")


@dataclass(frozen=True)
class Told:
    """One fault, where it was told, and after how long."""

    fault: str
    where: str
    seconds: float
    waited: float | None
    """Share of this time in which some process waited for a processor; None where the kernel does not say."""

    def line(self) -> str:
        """Return it as a row of a table."""
        waited = "" if self.waited is None else f"{100 * min(1.0, self.waited):4.0f} %"
        return f"{self.seconds:6.1f} s  {waited:>6}  {self.fault} ({self.where})"


TOLD: list[Told] = []
"""What the tests of this session measured."""


class Tells:
    """Waits until somebody is told of a fault, and notes how long that took. One for each test."""

    def __init__(self) -> None:
        self._since_ms, self._stalled = system_clock(), _stalled_seconds()

    def begin(self) -> None:
        """Count from now on: the fault has just been made."""
        self._since_ms, self._stalled = system_clock(), _stalled_seconds()

    def log(self, fault: str, child: Child, text: str, *, after: str = "") -> None:
        """Wait until the log of a process says it.

        Args:
            fault: the row of the table.
            child: whose log.
            text: what a line that tells has in it.
            after: count from the first line with this on, for a fault that is older than the process.
        """
        until(lambda: any(text in line for _, line in _lines(child, self._since_ms)), 60, f"{child.name}: {text}")
        lines = list(_lines(child, self._since_ms))
        told_ms = next(time_ms for time_ms, line in lines if text in line)
        since_ms = next(time_ms for time_ms, line in lines if after in line) if after else self._since_ms
        self._note(fault, f"log of {child.name}", (told_ms - since_ms) / 1_000)

    def seen(
        self, fault: str, where: str, condition: Callable[[], Result | None], *, poll_seconds: float = 0.02
    ) -> Result:
        """Wait until a condition holds that an operator can see, and return what it returned."""
        result = until(condition, 60, f"{where} to tell: {fault}", poll_seconds=poll_seconds)
        self.note(fault, where)
        return result

    def note(self, fault: str, where: str) -> None:
        """Take note that somebody is told now."""
        self._note(fault, where, (system_clock() - self._since_ms) / 1_000)

    def _note(self, fault: str, where: str, seconds: float) -> None:
        elapsed, stalled = (system_clock() - self._since_ms) / 1_000, _stalled_seconds()
        waited = None
        if self._stalled is not None and stalled is not None and elapsed > 0:
            waited = (stalled - self._stalled) / elapsed
        TOLD.append(Told(fault, where, seconds, waited))


def _stalled_seconds() -> float | None:
    """Return for how long, since the machine started, some process was ready and had to wait for a processor."""
    try:
        some = _PRESSURE.read_text().splitlines()[0]
    except OSError:
        return None
    return int(some.rpartition("total=")[2]) / 1e6


def _lines(child: Child, since_ms: int) -> Iterator[tuple[int, str]]:
    """Yield time and text of the lines of a log from a moment on."""
    for line in child.log.read_text().splitlines():
        if line.startswith("{") and line.endswith("}"):
            time_ms = json.loads(line)["time_ms"]
            if time_ms >= since_ms:
                yield time_ms, json.loads(line)["message"]


def report(limit_seconds: float) -> Iterator[str]:
    """Say what was measured, slowest first, and what took longer than allowed."""
    yield "told after, processes waited for a processor, fault (where)"
    yield from (told.line() for told in sorted(TOLD, key=lambda told: -told.seconds))
    late = late_ones(limit_seconds)
    yield f"{len(TOLD)} faults, {len(late)} told later than {limit_seconds:g} s"


def late_ones(limit_seconds: float) -> list[Told]:
    """Return what was told too late."""
    return [told for told in TOLD if told.seconds > limit_seconds]
