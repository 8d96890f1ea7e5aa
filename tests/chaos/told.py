"""How long it takes until a worker's log says what is wrong. `--told-within` judges it.

A thread of its own reads the logs: the run itself may wait for a broker that does not answer. Time counts while a
worker runs, since nobody else writes these logs, and until a fault that leaves no trace is over: a worker that starts
afterwards has nothing to name.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

_REDIS_DOWN = rb"Redis[^\n]* is (still )?down|last batch not acknowledged"
_REDIS = _REDIS_DOWN + rb"|Redis (lost acknowledged writes|restarted)|it lost writes"
_KAFKA = rb"Kafka[^\n]* is (still )?down"
_DAMAGE = rb"cannot be read|changed by somebody else|somebody else wrote to it"

TELLING: Final[dict[str, re.Pattern[bytes]]] = {
    "redis": re.compile(_REDIS),
    "stall": re.compile(_REDIS),
    "hang-redis": re.compile(_REDIS),
    "full-redis": re.compile(rb"> 'maxmemory'"),
    "disk": re.compile(_REDIS),
    "power": re.compile(_REDIS),
    "tear": re.compile(_REDIS),
    "stale-replica": re.compile(_REDIS),
    "broker": re.compile(_KAFKA),
    "two-brokers": re.compile(_KAFKA),
    "hang-kafka": re.compile(_KAFKA),
    "corrupt-tally": re.compile(_DAMAGE),
    "corrupt-log": re.compile(_DAMAGE),
}
"""What the log of a worker says of a fault, for the faults that a worker is to notice."""

_STATES: Final = {
    _REDIS: (_REDIS_DOWN, rb"Redis[^\n]* is up again|the store answers again|exiting with status|\"assigned "),
    _KAFKA: (_KAFKA, rb"Kafka[^\n]* is up again|exiting with status|\"assigned "),
}
"""For faults with this pattern: what says that the service is down, and what ends that."""

_LOOK_SECONDS: Final = 0.05


class Told:
    """Watches the logs of all workers for the line that names the current fault.

    Args:
        folder: where the logs are.
        worker_runs: tells whether there is a worker that could say something.
        clock: seconds that only grow.
    """

    def __init__(
        self, folder: Path, worker_runs: Callable[[], bool], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder, self._worker_runs, self._clock = folder, worker_runs, clock
        self._lock = threading.Lock()
        self._kind, self._waited, self._looked = "", 0.0, clock()
        self._number, self._is_over = 0, False
        self._read: dict[Path, int] = {}
        self._down: set[tuple[bytes, Path]] = set()
        """Services that are down according to a log, by the pattern that says so."""
        self.seconds: dict[str, list[float]] = {}
        """By kind of fault: seconds from the fault to the line that names it."""
        self.unnamed: dict[str, list[float]] = {}
        """By kind of fault: seconds that workers had for a line that never came, until the next fault or the end."""

    def start(self) -> None:
        """Look from now on, in a thread that ends with the process."""

        def watch() -> None:
            while True:
                self.look()
                time.sleep(_LOOK_SECONDS)

        threading.Thread(target=watch, name="told", daemon=True).start()

    def expect(self, kind: str) -> None:
        """Look for lines about this fault from now on."""
        self.look()
        with self._lock:
            self._give_up()
            self._kind = kind if kind in TELLING else ""
            self._number += 1
            self._waited, self._looked, self._is_over = 0.0, self._clock(), False
            self._stands()

    @property
    def number(self) -> int:
        """The number of the current fault, for `over`."""
        return self._number

    @property
    def is_named(self) -> bool:
        """Whether a log has named the current fault."""
        with self._lock:
            return not self._kind

    def over(self, number: int) -> None:
        """Take note that the fault of this number is over, and that nothing is left of it to be noticed."""
        self.look()
        with self._lock:
            self._is_over = self._is_over or number == self._number

    def begin(self) -> None:
        """Count from now on: what had to be awaited or prepared for the fault is over."""
        with self._lock:
            self._waited, self._looked = 0.0, self._clock()
            self._stands()

    def _stands(self) -> None:
        """Take a fault as named if a log calls the service down already: it is not said twice."""
        if self._kind and any(TELLING[self._kind].pattern == pattern for pattern, _ in self._down):
            self._named()

    def _named(self) -> None:
        self.seconds.setdefault(self._kind, []).append(self._waited)
        self._kind = ""

    def finish(self) -> None:
        """Expect nothing any more."""
        self.look()
        with self._lock:
            self._give_up()

    def _give_up(self) -> None:
        if self._kind:
            self.unnamed.setdefault(self._kind, []).append(self._waited)
        self._kind = ""

    def look(self) -> None:
        """Read what is new in the logs: whether one of them names the fault, and what is down."""
        runs = self._worker_runs()
        with self._lock:
            now = self._clock()
            self._waited += now - self._looked if runs and not self._is_over else 0.0
            self._looked = now
            for log in self._logs():
                begin = self._read.get(log, 0)
                with log.open("rb") as file:
                    file.seek(begin)
                    text = file.read()
                text = text[: text.rfind(b"\n") + 1]
                self._read[log] = begin + len(text)
                if text:
                    self._note_state(log, text)
                if self._kind and TELLING[self._kind].search(text):
                    self._named()

    def _note_state(self, log: Path, text: bytes) -> None:
        for pattern, states in _STATES.items():
            down_at, up_at = (
                max((found.start() for found in re.finditer(state, text)), default=-1) for state in states
            )
            if down_at > up_at:
                self._down.add((pattern, log))
            elif up_at >= 0:
                self._down.discard((pattern, log))

    def _logs(self) -> list[Path]:
        return sorted(self._folder.glob("worker-*.log"))
