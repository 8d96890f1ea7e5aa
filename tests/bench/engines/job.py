"""The job: of every token the answer of its highest rung counts. Standard library only: other environments run it."""

from __future__ import annotations

import json
import struct
import time
from collections import Counter
from collections.abc import Iterator

HEADER = struct.Struct("<3sBI8sqqHI2x")


def reports_of(message: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield token, rung and answer of every report; answers have one byte, and there is one group."""
    at = 0
    while at < len(message):
        _, _, length, _, _, _, _, count = HEADER.unpack_from(message, at)
        tokens = at + HEADER.size
        answers = tokens + 16 * count
        rungs = answers + count + -count % 8
        for i in range(count):
            yield message[tokens + 16 * i : tokens + 16 * i + 16], message[rungs + i], message[answers + i]
        at += length


class Counted:
    """Counts by rung and answer, and the processor time since the first report."""

    def __init__(self) -> None:
        self.tally: Counter[str] = Counter()
        self.reports = 0
        self._started: tuple[float, float] | None = None

    def begin(self) -> None:
        """Note that a message is here; what was before is starting."""
        if self._started is None:
            self._started = time.process_time(), time.perf_counter()

    def replace(self, old: tuple[int, int] | None, new: tuple[int, int]) -> None:
        """Count an answer, and take out the one that it replaces."""
        self.reports += 1
        if old is not None and old >= new:
            return
        if old is not None:
            self.tally[f"{old[0]}:{old[1]}"] -= 1
        self.tally[f"{new[0]}:{new[1]}"] += 1

    def print(self) -> None:
        """Print what was counted as one line of JSON."""
        assert self._started is not None, "there was no message"
        cpu, passed = time.process_time() - self._started[0], time.perf_counter() - self._started[1]
        counts = {name: number for name, number in self.tally.items() if number}
        print(json.dumps({"tally": counts, "reports": self.reports, "cpu_seconds": cpu, "seconds": passed}), flush=True)
