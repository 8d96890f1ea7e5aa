"""The recorded device program: forks processes, lets real devices live in them, and kills some between instructions.

It runs in a fresh interpreter with one thread, so that it may fork. What leaves a device is appended to a file at once:
it outlives the process, as a frame outlives the device that sent it.
"""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from producers.device.agent import Device
from producers.wire.kafka import KafkaTransport
from producers.wire.transport import Message, Transport
from streams.audit.defects import device_class
from streams.audit.plan import PROCESSES, RESTART_EVERY, SLOTS, FleetPlan

DEVICE_CODE = (f"{os.sep}producers{os.sep}device{os.sep}", f"{os.sep}audit{os.sep}defects.py")
"""Paths of the code that is killed between any two of its lines."""
_PARTITIONS = 8


class Wire:
    """A transport that appends every message to a file, after the broker has it if there is one."""

    def __init__(self, path: Path, broker: Transport | None = None) -> None:
        self._broker = broker
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic, or of one that could be."""
        return _PARTITIONS if self._broker is None else self._broker.partitions

    def send(self, messages: Sequence[Message]) -> None:
        """Return when all messages have left."""
        if self._broker is not None:
            self._broker.send(messages)
        for message in messages:
            os.write(self._file, message.value)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def run(plans: Sequence[FleetPlan]) -> None:
    """Carry out plans one after the other; ends this process with status 1 if a device fails."""
    logging.disable(logging.INFO)
    for plan in plans:
        _carry_out(plan)


def _carry_out(plan: FleetPlan) -> None:
    """Let all devices of a plan live, then replay crashes."""
    # Before the fork: what a device class prepares is what all processes inherit.
    make = device_class(plan.defect, plan.values)
    parent = os.getpid()

    if any(_wait([_forked(partial(_live, plan, make, process, parent)) for process in range(PROCESSES)])):
        sys.exit(1)
    if plan.crashes:
        _replay_crashes(plan, make)


def _live(plan: FleetPlan, make: type[Device], process: int, parent: int) -> None:
    """Live as all devices of one process."""
    broker = None
    if plan.kafka is not None:
        broker = KafkaTransport(plan.kafka.brokers, plan.kafka.topic, attempts=5, options=plan.kafka.options)
    for slot in range(SLOTS):
        wire = Wire(plan.wire(process, slot), broker)
        device = _open(plan, make, plan.ledger(process, slot), wire)
        for number, pick in enumerate(plan.picks(slot).tolist()):
            if os.getppid() != parent:
                os._exit(1)
            first, *later = plan.ticks_ms(number)
            device.observe(plan.survey, plan.values[pick], first)
            device.tick(first)
            if number % RESTART_EVERY == 0:
                device.close()
                device = _open(plan, make, plan.ledger(process, slot), wire)
                device.observe(plan.survey, plan.values[pick], first)
                device.tick(first)
            for now_ms in later:
                device.tick(now_ms)
        device.close()
        wire.close()
    if broker is not None:
        broker.close()


def _open(plan: FleetPlan, make: type[Device], ledger: Path, wire: Wire) -> Device:
    return make(ledger, [plan.survey], wire, lifetime_epsilon=math.inf)


def _replay_crashes(plan: FleetPlan, make: type[Device]) -> None:
    """Kill a device before some line of its code, spread over its whole life, and let it live again."""
    counted = plan.crash_folder(0)
    counted.mkdir()
    if any(_wait([_forked(partial(_count_lines, plan, make, counted))])):
        sys.exit(1)
    lines = int((counted / "lines").read_text())
    for number in range(1, plan.crashes + 1):
        folder = plan.crash_folder(number)
        folder.mkdir()
        line = 1 + (lines - 1) * (2 * number - 1) // (2 * plan.crashes)
        (status,) = _wait([_forked(partial(_short_life, plan, make, folder, line))])
        if status not in (0, -signal.SIGKILL):
            sys.exit(1)
        if any(_wait([_forked(partial(_short_life, plan, make, folder, None))])):
            sys.exit(1)


def _count_lines(plan: FleetPlan, make: type[Device], folder: Path) -> None:
    seen = [0]
    sys.settrace(_tracer(seen, None))
    _short_life(plan, make, folder, None)
    sys.settrace(None)
    (folder / "lines").write_text(str(seen[0]))


def _short_life(plan: FleetPlan, make: type[Device], folder: Path, dies_at: int | None) -> None:
    """One value and all of its rungs. A second life repeats what was done and sends the rest."""
    if dies_at is not None:
        sys.settrace(_tracer([0], dies_at))
    wire = Wire(folder / "wire")
    with _open(plan, make, folder / "ledger", wire) as device:
        first, *later = plan.ticks_ms(0)
        device.observe(plan.survey, plan.values[0], first)
        for now_ms in (first, *later):
            device.tick(now_ms)
    wire.close()


def _tracer(seen: list[int], dies_at: int | None) -> Any:
    """Return a trace function that counts the lines of a device's code, and kills the process before one of them."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in DEVICE_CODE):
            return None
        if event == "line":
            seen[0] += 1
            if seen[0] == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    return trace


def _forked(action: Callable[[], None]) -> int:
    child = os.fork()
    if child == 0:
        _act(action)
    return child


def _act(action: Callable[[], None]) -> NoReturn:
    """Do something and end the process, without the clean-up of its parent."""
    try:
        action()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _wait(children: Sequence[int]) -> list[int]:
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
