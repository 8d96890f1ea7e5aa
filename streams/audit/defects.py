"""Devices with one broken part each, which an audit must catch.

Every class is the real device with one method replaced. None of them can be reached but by `thaw audit --self-test`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import one_hot
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Specification
from estimators.mechanisms.key_value import PCKVUE
from estimators.mechanisms.registry import randomizer_of
from producers.device.agent import Device
from producers.device.ledger import StoredChain
from producers.device.outbox import OutgoingReport
from producers.survey.survey import Survey
from producers.wire.transport import answer_bytes

Build = Callable[[Sequence[Any]], type[Device]]
"""Takes the true values of an audit, each as a device takes it."""
NoEffect = Callable[[Survey], str | None]
"""Says why a defect would change nothing that leaves the devices of a survey; None: it has an effect."""


@dataclass(frozen=True)
class Defect:
    """A planted defect: its name and the device that has it."""

    name: str
    build: Build
    """Called once, before the program forks."""
    no_effect: NoEffect = lambda _: None
    bits: bool = False
    """Whether an audit without a survey plants it where answers are bit vectors."""


def _single_level(survey: Survey) -> str | None:
    return "the survey has a single level" if survey.mechanism.rungs == 1 else None


def _tokens_from_keys(survey: Survey) -> str | None:
    return "tokens follow from keys, of which nothing shows" if survey.layout.keyed else None


def _bits_in_pairs(survey: Survey) -> str | None:
    pairs = isinstance(survey.mechanism, PCKVUE)
    return "of the two bits of a key at most one is ever set, so none can be told alone" if pairs else None


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


def _never_flips_ones(values: Sequence[Any]) -> type[Device]:
    """Return a device that tells set bits as they are."""

    class NeverFlipsOnes(Device):
        """Tells every bit that is set as it is; of symbols, tells that of one value as it is."""

        def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
            mechanism, randomizer = survey.mechanism, randomizer_of(survey.mechanism)
            seed = int.from_bytes(os.urandom(8), "little")
            # Known words, as good as any: what is drawn for the value, such as its cohort, can be drawn once more.
            self._bits = SeededBits(seed, "draw")  # type: ignore[assignment]
            chain, answers = _drawn(mechanism, super()._draw(survey, window_ms, value, now_ms))
            entered = randomizer.truth(randomizer.encode([value], SeededBits(seed, "draw")))
            if mechanism.answer.kind == "bits":
                answers |= entered if entered.ndim == 2 else one_hot(entered, mechanism.answer.size)
            elif value == values[1]:
                answers[:] = answer_bytes(mechanism.symbols(entered), mechanism.answer.width)
            return replace(chain, answers=answers.tobytes())

    return NeverFlipsOnes


def _reuses_noise_after_fork(_: Sequence[Any]) -> type[Device]:
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


def _orders_by_process(values: Sequence[Any]) -> type[Device]:
    """Return a device that takes one value for another."""

    class OrdersByProcess(Device):
        """Numbers the values in an order that differs from process to process, like the order of a set."""

        def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
            # Never the survey's own order, whichever numbers the processes have: of two values there is one other.
            moved = values.index(value) + 1 + os.getpid() % (len(values) - 1)
            return super()._draw(survey, window_ms, values[moved % len(values)], now_ms)

    return OrdersByProcess


class ReusesNoiseInWindows(Device):
    """Makes the noise of every window from the device's secret alone."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        seed = int.from_bytes(hashlib.sha256(self._ledger.secret).digest()[:8], "little")
        self._bits = SeededBits(seed, "device")  # type: ignore[assignment]  # that is the defect
        return super()._draw(survey, window_ms, value, now_ms)


class TellsTheValue(Device):
    """Sharpens too much: a value has the same top level every time; the levels below are as declared."""

    def _draw(self, survey: Survey, window_ms: int, value: Any, now_ms: int) -> StoredChain:
        mechanism, secure = survey.mechanism, self._bits
        self._bits = SeededBits(0, repr(value))  # type: ignore[assignment]  # that is the defect
        _, fixed = _drawn(mechanism, super()._draw(survey, window_ms, value, now_ms))
        self._bits = secure
        chain, answers = _drawn(mechanism, super()._draw(survey, window_ms, value, now_ms))
        answers[-1] = fixed[-1]
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


def _always(made: type[Device]) -> Build:
    return lambda _: made


DEFECTS = {
    defect.name: defect
    for defect in (
        Defect("redraws a level", _always(Redraws), _single_level),
        Defect("redraws after a restart", _always(Forgets)),
        Defect("never flips ones", _never_flips_ones, _bits_in_pairs, bits=True),
        Defect("reuses noise after fork", _reuses_noise_after_fork),
        Defect("answers depend on the process", _orders_by_process),
        Defect("noise depends on the process", _always(DependsOnProcess)),
        Defect("reuses noise in every window", _always(ReusesNoiseInWindows)),
        Defect("sharpens more than declared", _always(TellsTheValue)),
        Defect("pays less than it releases", _always(PaysLess)),
        Defect("names itself in tokens", _always(NamesItself), _tokens_from_keys),
        Defect("tells its own clock", _always(TellsItsClock), _single_level),
    )
}
"""The planted defects, by name."""


def device_class(defect: str | None, values: Sequence[Any]) -> type[Device]:
    """Return the device to be audited: the real one, or one with a planted defect; `values` are those it will hold."""
    return Device if defect is None else DEFECTS[defect].build(values)
