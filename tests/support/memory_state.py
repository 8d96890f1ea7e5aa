"""What the parts of the store in memory share: all it keeps, in the form in which Redis keeps it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from producers.clock import Clock
from streams.store.contract import NO_STAMP
from streams.store.counters import Counters
from streams.store.shape import Key


@dataclass
class Log:
    """One report log."""

    stamp: bytes = NO_STAMP
    segments: list[bytes] = field(default_factory=list)
    tally: bytearray = field(default_factory=bytearray)
    counters: Counters = field(default_factory=Counters)
    expires_ms: int = 0
    limit: int | None = None


@dataclass
class State:
    """All that a store keeps."""

    logs: dict[Key, Log] = field(default_factory=dict)
    offsets: dict[tuple[str, int, int], int] = field(default_factory=dict)
    totals: dict[str, Counters] = field(default_factory=dict)
    shard_totals: dict[str, list[int]] = field(default_factory=dict)
    states: dict[tuple[str, str, int | None], tuple[bytes, int]] = field(default_factory=dict)
    refused: dict[tuple[str, int | None], tuple[Counters, int]] = field(default_factory=dict)
    queues: dict[str, dict[tuple[str, int], float]] = field(default_factory=dict)
    locks: dict[tuple[str, int, str], tuple[bytes, int]] = field(default_factory=dict)
    estimates: dict[tuple[str, int], tuple[bytes, int]] = field(default_factory=dict)
    histories: dict[tuple[str, int], tuple[list[bytes], int]] = field(default_factory=dict)


RECOMPUTE = "windows"
"""Name of the recompute queue."""


class Shared:
    """What the parts of one store share."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.state = State()
        self.mutex = threading.RLock()
        self.restarted = False

    def forget_expired(self) -> None:
        now_ms = self.clock()
        state = self.state
        state.logs = {key: log for key, log in state.logs.items() if log.expires_ms > now_ms}
        state.refused = {key: held for key, held in state.refused.items() if held[1] > now_ms}
        state.locks = {key: held for key, held in state.locks.items() if held[1] > now_ms}
        state.estimates = {key: held for key, held in state.estimates.items() if held[1] > now_ms}
        state.states = {key: held for key, held in state.states.items() if held[1] > now_ms}
        state.histories = {key: held for key, held in state.histories.items() if held[1] > now_ms}


def holds(shared: Shared, survey_id: str, window_ms: int, secret: bytes, queue: str) -> bool:
    shared.forget_expired()
    return shared.state.locks.get((survey_id, window_ms, queue), (None, 0))[0] == secret
