"""A process of real device agents, each with a ledger of its own in SQLite, over a few connections to a gateway.

    python -m tests.chaos.agents FOLDER SURVEY COUNT URL

It may be killed at any moment: the next one goes on from the ledgers. After SIGTERM no new chain is started; the
process ends with status 0 once every rung of every chain has been released and acknowledged.
"""

from __future__ import annotations

import heapq
import math
import random
import signal
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path

from producers.clock import system_clock
from producers.device.agent import Device
from producers.survey.survey import Survey, load_survey
from producers.wire.http import HttpTransport
from producers.wire.transport import Message, Transport, TransportError

PAUSE_MS = 1_000
"""Pause of all devices after a failure: a thousand devices in one thread would wait for one gateway in turn."""
LOOK_SECONDS = 0.5
THREADS = 12
"""Devices mostly wait for the gateway, which holds reports and waits for the broker; few at a time send too little."""
ANSWER_SECONDS = 30.0


class Shared:
    """One transport for all devices of a thread."""

    def __init__(self, inner: Transport) -> None:
        self._inner, self._until_ms = inner, 0

    @property
    def partitions(self) -> int:
        return self._inner.partitions

    def send(self, messages: Sequence[Message]) -> None:
        if system_clock() < self._until_ms:
            raise TransportError("the gateway did not confirm a moment ago")
        try:
            self._inner.send(messages)
        except TransportError:
            self._until_ms = system_clock() + PAUSE_MS
            raise


def ledger_path(folder: Path, number: int) -> Path:
    """Return the ledger of one device."""
    return folder / f"{number:05d}.ledger"


def value_of(survey: Survey, number: int, window_ms: int) -> str:
    """Return what a device observes: the same after a restart, or the ledger would refuse it; it changes rarely."""
    span = window_ms // survey.windows.step_ms // 3
    return survey.mechanism.labels[zlib.crc32(f"{number}:{span}".encode()) % len(survey.mechanism.labels)]


class Agents:
    """The devices of one thread, each looked after when it has something to do."""

    def __init__(self, folder: Path, survey: Survey, numbers: Sequence[int], transport: Transport) -> None:
        self._folder, self._survey, self._transport = folder, survey, transport
        self._devices: dict[int, Device] = {}
        now_ms, size_ms = system_clock(), survey.windows.size_ms
        # Spread over the window, so that there is something to kill at any moment.
        self._due = [(now_ms + place * size_ms // len(numbers), number) for place, number in enumerate(numbers)]

    def run(self, stopping: threading.Event) -> None:
        """Observe and tick until asked to stop, then tick until nothing is left to do."""
        while not stopping.is_set():
            wait_ms = self._due[0][0] - system_clock()
            if wait_ms > 0:
                stopping.wait(wait_ms / 1_000)
                continue
            _, number = heapq.heappop(self._due)
            heapq.heappush(self._due, (self._visit(number), number))
        left = [number for _, number in self._due]
        while left := [number for number in left if self._has_more(number)]:
            time.sleep(LOOK_SECONDS)
        for device in self._devices.values():
            device.close()

    def _device(self, number: int) -> Device:
        if number not in self._devices:
            path = ledger_path(self._folder, number)
            self._devices[number] = Device(path, [self._survey], self._transport, lifetime_epsilon=math.inf)
        return self._devices[number]

    def _visit(self, number: int) -> int:
        """Do what a device has to do now; return when it has to do something again."""
        device, now_ms = self._device(number), system_clock()
        window_ms, size_ms = self._survey.windows.latest(now_ms), self._survey.windows.size_ms
        device.observe(self._survey, value_of(self._survey, number, window_ms), now_ms)
        device.tick(now_ms)
        following_ms = window_ms + size_ms + random.randrange(size_ms)
        return min(following_ms, device.next_ms() or following_ms)

    def _has_more(self, number: int) -> bool:
        """Do what is to be done; tell whether something waits for its moment or for the gateway."""
        device = self._device(number)
        return device.tick().waiting > 0 or device.next_ms() is not None


def main(arguments: Sequence[str]) -> int:
    """Run the agents named by the arguments."""
    folder, survey_file, count, url = arguments
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    Path(folder).mkdir(parents=True, exist_ok=True)
    survey = load_survey(Path(survey_file))
    failures: list[BaseException] = []

    def live(first: int) -> None:
        try:
            carrier = HttpTransport(url, timeout_seconds=ANSWER_SECONDS)
            Agents(Path(folder), survey, range(first, int(count), THREADS), Shared(carrier)).run(stopping)
            carrier.close()
        except BaseException as error:
            failures.append(error)
            stopping.set()
            raise

    threads = [threading.Thread(target=live, args=(first,)) for first in range(min(THREADS, int(count)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
