"""Devices with one broken part each, which an audit must catch.

Every class is the real device with one method replaced. None of them can be reached but by `thaw audit --self-test`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SeededBits
from estimators.mechanism import Specification
from estimators.mechanisms.registry import randomizer_of
from producers.device.agent import Device
from producers.device.ledger import StoredChain
from producers.device.outbox import OutgoingReport
from producers.survey.survey import Survey
from producers.wire.transport import answer_bytes


@dataclass(frozen=True)
class Defect:
    """A planted defect: its name, what is broken, and the device that has it."""

    name: str
    what: str
    build: Callable[[], type[Device]]
    """Called once, before the program forks."""
    bits: bool = False
    """Whether it needs answers that are bit vectors."""


def _drawn(mechanism: Specification, chain: StoredChain) -> tuple[StoredChain, NDArray[np.uint8]]:
    """Return a chain and a copy of its answers that may be changed, [rung, copy, width]."""
    shape = (mechanism.rungs, mechanism.copies, mechanism.answer.width)
    return chain, np.frombuffer(chain.answers or b"", dtype=np.uint8).reshape(shape).copy()


class Redraws(Device):
    """Draws the answer of every level afresh when it is released, instead of the one that belongs to the chain."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        self._last_value = value
        return super()._draw(survey, window_ms, value, now_ms)

    def _encoded(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> list[OutgoingReport]:
        fresh = super()._draw(survey, chain.window_ms, self._last_value, now_ms) if rung else chain
        return super()._encoded(survey, replace(chain, answers=fresh.answers), rung, now_ms)

    def observe(self, survey: Survey | str, value: Any, now_ms: int | None = None) -> tuple[StoredChain, ...]:
        """Remember the value as well."""
        self._last_value = value
        return super().observe(survey, value, now_ms)


class Forgets(Device):
    """Keeps its chains in memory only: a restart draws them again, under the same token."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        with self._ledger.transaction():
            for table in ("chains", "outbox"):
                self._ledger.connection.execute(f"DELETE FROM {table}")


class NeverFlipsOnes(Device):
    """Tells a bit that is set as it is; of symbols, tells the second one as it is."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        mechanism = survey.mechanism
        chain, answers = _drawn(mechanism, super()._draw(survey, window_ms, value, now_ms))
        entered = int(randomizer_of(mechanism).encode([value], self._bits).ravel()[0])
        if mechanism.answer.kind == "bits":
            answers[:, :, entered // 8] |= np.uint8(1 << entered % 8)
        elif entered == 1:
            answers[:] = answer_bytes(np.array([entered]), mechanism.answer.width)
        return replace(chain, answers=answers.tobytes())


def _reuses_noise_after_fork() -> type[Device]:
    """Return a device whose random words come from a generator in memory, which a fork copies."""
    shared = SeededBits(int.from_bytes(os.urandom(8), "little"), "made before the fork")

    class ReusesNoise(Device):
        """Draws from a generator that every process inherits in the same state."""

        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._bits = shared  # type: ignore[assignment]  # that is the defect

    return ReusesNoise


class DependsOnProcess(Device):
    """Draws from a generator that is seeded with the number of the process."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._bits = SeededBits(os.getpid(), "process")  # type: ignore[assignment]  # that is the defect


class OrdersByProcess(Device):
    """Numbers the values in an order that differs from process to process, like the order of a set."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        labels = survey.mechanism.labels
        if value in labels:
            value = labels[(labels.index(value) + os.getpid()) % len(labels)]
        return super()._draw(survey, window_ms, value, now_ms)


class ReusesNoiseInWindows(Device):
    """Makes the noise of every window from the device's secret alone."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        seed = int.from_bytes(hashlib.sha256(self._ledger.secret).digest()[:8], "little")
        self._bits = SeededBits(seed, "device")  # type: ignore[assignment]  # that is the defect
        return super()._draw(survey, window_ms, value, now_ms)


class TellsTheValue(Device):
    """Sharpens too much: its top level is the value itself; the levels below are as declared."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        mechanism = survey.mechanism
        chain, answers = _drawn(mechanism, super()._draw(survey, window_ms, value, now_ms))
        entered = int(randomizer_of(mechanism).encode([value], self._bits).ravel()[0])
        answers[-1] = 0
        if mechanism.answer.kind == "bits":
            answers[-1, :, entered // 8] = 1 << entered % 8
        else:
            answers[-1] = answer_bytes(np.array([entered]), mechanism.answer.width)
        return replace(chain, answers=answers.tobytes())


class PaysLess(Device):
    """Charges half of what a level costs."""

    def _price(self, survey: Survey, chain: StoredChain, rung: int) -> float:
        return super()._price(survey, chain, rung) / 2


class NamesItself(Device):
    """Begins all of its tokens with the same four bytes."""

    def _token(self, survey: Survey, window_ms: int, copy: int) -> bytes:
        return self._ledger.secret[:4] + super()._token(survey, window_ms, copy)[4:]


class TellsItsClock(Device):
    """Writes the time of its own clock into frames."""

    def _encoded(self, survey: Survey, chain: StoredChain, rung: int, now_ms: int) -> list[OutgoingReport]:
        late = replace(survey, opens_ms=tuple(opens + 7 for opens in survey.opens_ms))
        return super()._encoded(late if rung else survey, chain, rung, now_ms)


DEFECTS = {
    defect.name: defect
    for defect in (
        Defect("redraws a level", Redraws.__doc__ or "", lambda: Redraws),
        Defect("redraws after a restart", Forgets.__doc__ or "", lambda: Forgets),
        Defect("never flips ones", NeverFlipsOnes.__doc__ or "", lambda: NeverFlipsOnes, bits=True),
        Defect(
            "reuses noise after fork",
            "Draws from a generator that every process inherits in the same state.",
            _reuses_noise_after_fork,
        ),
        Defect("answers depend on the process", OrdersByProcess.__doc__ or "", lambda: OrdersByProcess),
        Defect("noise depends on the process", DependsOnProcess.__doc__ or "", lambda: DependsOnProcess),
        Defect("reuses noise in every window", ReusesNoiseInWindows.__doc__ or "", lambda: ReusesNoiseInWindows),
        Defect("sharpens more than declared", TellsTheValue.__doc__ or "", lambda: TellsTheValue),
        Defect("pays less than it releases", PaysLess.__doc__ or "", lambda: PaysLess),
        Defect("names itself in tokens", NamesItself.__doc__ or "", lambda: NamesItself),
        Defect("tells its own clock", TellsItsClock.__doc__ or "", lambda: TellsItsClock),
    )
}
"""The planted defects, by name."""


def device_class(defect: str | None) -> type[Device]:
    """Return the device to be audited: the real one, or one with a planted defect."""
    return Device if defect is None else DEFECTS[defect].build()
