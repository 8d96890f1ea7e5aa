"""Processes that hang: stopped and not ended, so that their connections stay open and nothing answers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streams.local.process import Child
from tests.support.deadline import until


@contextmanager
def hung(child: Child) -> Iterator[None]:
    """Stop a process until the end of the block. Returns when all its threads have stopped."""
    child.send_signal(signal.SIGSTOP)
    try:
        until(lambda: _states(child.pid) <= {"T"}, 30, f"{child.name} to stop")
        yield
    finally:
        child.send_signal(signal.SIGCONT)


def _states(pid: int) -> set[str]:
    stats = [task.read_text() for task in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(")")[2].split()[0] for stat in stats}
