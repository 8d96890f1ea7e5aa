"""What recorded devices do: which processes, devices, windows and values, as a function of the seed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.auditing.declared import DeclaredLaw, worst_values
from estimators.exact.randomness import SeededBits
from producers.survey.survey import Survey

PROCESSES = 4
"""Processes that devices live in. Fewer compare less; each starts as a copy of one parent, as after a fork."""
SLOTS = 4
"""Devices of a process, one after the other, in pairs that hold the same values."""
RESTART_EVERY = 5
"""Every so many windows a device is closed after its first answer, opened again and asked again."""
_START_MS = 1_600_000_000_000


@dataclass(frozen=True)
class Kafka:
    """A broker that reports travel through: its address, the topic, and the options of kafka-python."""

    brokers: str
    topic: str
    options: dict[str, Any]


@dataclass(frozen=True)
class FleetPlan:
    """Recorded devices. `survey` has its schedule pressed together; its id is that of the audited survey."""

    survey: Survey
    folder: Path
    values: tuple[Any, ...]
    weights: tuple[float, ...]
    """Share of the windows in which a device holds each value."""
    moments: int
    """Values that each device takes, one after the other, each in windows of its own."""
    crashes: int
    """Crashes of the device program that are replayed."""
    seed: int
    defect: str | None = None
    kafka: Kafka | None = None

    @classmethod
    def of(
        cls, survey: Survey, law: DeclaredLaw, folder: Path, *, users: int, crashes: int, seed: int, defect: str | None
    ) -> FleetPlan:
        """Plan devices with at least `users` chains: half of them hold one of the two values that differ most."""
        weights = np.full(len(law.values), 0.5 / len(law.values))
        for value in worst_values(law):
            weights[value] += 0.25
        chains = PROCESSES * SLOTS * len(survey.windows.starts(_START_MS)) * survey.mechanism.copies
        moments = max(-(-users // chains), 2)
        return cls(pressed(survey), folder, law.values, tuple(weights.tolist()), moments, crashes, seed, defect)

    def windows_ms(self) -> list[int]:
        """Return the starts of all windows that a device answers."""
        return [start for number in range(self.moments) for start in self.survey.windows.starts(self.moment_ms(number))]

    @property
    def reports(self) -> int:
        """Reports that a sound fleet sends."""
        mechanism = self.survey.mechanism
        return PROCESSES * SLOTS * len(self.windows_ms()) * mechanism.copies * mechanism.rungs

    def wire(self, process: int, slot: int) -> Path:
        """Return the file that receives all bytes that leave a device."""
        return self.folder / f"{process}-{slot}.wire"

    def ledger(self, process: int, slot: int) -> Path:
        """Return the ledger of a device."""
        return self.folder / f"{process}-{slot}.ledger"

    def crash_folder(self, number: int) -> Path:
        """Return where a device lives that is killed."""
        return self.folder / f"crash-{number}"

    def picks(self, slot: int) -> NDArray[np.int64]:
        """Return which value a device of this slot takes at each moment."""
        words = SeededBits(self.seed, "audit", slot // 2).words(self.moments)
        edges = np.cumsum(self.weights)
        return np.searchsorted(edges / edges[-1], words / 2.0**64, side="right").clip(0, len(self.weights) - 1)

    def moment_ms(self, number: int) -> int:
        """Return when a device takes its value with this number: in the middle of a step, so far apart that no window
        contains two of them.
        """
        windows = self.survey.windows
        return windows.latest(_START_MS) + number * self._period_ms + windows.step_ms // 2

    @property
    def _period_ms(self) -> int:
        windows = self.survey.windows
        return -(-windows.size_ms // windows.step_ms) * windows.step_ms

    def number_of(self, window_ms: int) -> int:
        """Return the number of the value that belongs to a window."""
        return -((self.moment_ms(0) - window_ms) // self._period_ms)

    def ticks_ms(self, number: int) -> Sequence[int]:
        """Return when a device is called after it has taken a value, so that every rung of every window is released."""
        now_ms, survey = self.moment_ms(number), self.survey
        later = {
            survey.opening_ms(start, rung)
            for start in survey.windows.starts(now_ms)
            for rung in range(1, survey.mechanism.rungs)
        }
        return [now_ms, *sorted(later)]


def pressed(survey: Survey) -> Survey:
    """Return the survey with rungs a millisecond apart, no jitter and no end: all that is not part of its id."""
    rungs = survey.mechanism.rungs
    copy = replace(
        survey,
        opens_ms=tuple(range(rungs)),
        jitter_ms=0,
        retention_ms=rungs + 1,
        lifetime_epsilon=math.inf,
        end_ms=None,
        on_demand=False,
        stop=None,
        unlock=None,
    )
    if copy.id != survey.id:
        raise AssertionError(f"the schedule became part of the survey id: {copy.id} instead of {survey.id}")
    return copy
