"""Events that tell true values apart, fixed before an answer is seen, and how often they happened.

A device whose answers cost epsilon makes every event at most e^epsilon times as likely under one value as under
another. So devices whose values are known show how large its epsilon must be at least (`epsilon_bounds.py`). The events
are chosen from the specification alone: choosing them from the answers would count chance as evidence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import unpack
from estimators.mechanism import Specification
from estimators.mechanisms.symbols import SymbolSpecification
from estimators.mechanisms.unary import Unary

Bools = NDArray[np.bool_]
Counts = NDArray[np.int64]

MOST_EVENTS: Final = 64
"""Events per answer at most. Each takes its part of alpha: with more, every single one needs more answers."""

OWN, TOGETHER = 0, 1
"""Second index of counts: the event in the answer of a rung, or in all answers up to that rung."""

LIKELY, LIKELY_HITS, UNLIKELY, UNLIKELY_HITS = range(4)
"""Last index of counts: answers of devices with a likely value and how many of them showed the event; the same for
those with an unlikely value."""


@dataclass(frozen=True, eq=False)
class TellingEvents(ABC):
    """Events, each with the values under which it should be most and least likely: arrays [event, value]."""

    likely: Bools
    unlikely: Bools

    def __len__(self) -> int:
        """Return the number of events."""
        return len(self.likely)

    @abstractmethod
    def happened(self, answers: NDArray[Any]) -> Bools:
        """Tell which events [answer, event] answers show, in the form of `Drawn.answers` of one rung."""

    def count(self, values: NDArray[np.int64], answers: NDArray[Any], seen: Bools) -> Counts:
        """Count devices and events, array [rung, own or together, event, 4].

        Args:
            values: index of the true value of each device.
            answers: answers in the form of `Drawn.answers`; those that were not seen are not looked at.
            seen: which answers arrived, [rung, device].
        """
        happened = np.stack([self.happened(rung) for rung in answers])
        own = self._tallies(values, seen, happened)
        together = self._tallies(
            values, np.logical_and.accumulate(seen, axis=0), np.logical_and.accumulate(happened, axis=0)
        )
        together[0] = 0  # At the lowest rung it is the same event, and must not be tested twice.
        return np.stack([own, together], axis=1)

    def _tallies(self, values: NDArray[np.int64], seen: Bools, happened: Bools) -> Counts:
        hits = happened & seen[:, :, None]
        columns = []
        for held in (self.likely[:, values], self.unlikely[:, values]):
            columns.append(seen.astype(np.int64) @ held.T.astype(np.int64))
            columns.append((hits & held.T).sum(axis=1, dtype=np.int64))
        return np.stack(columns, axis=-1)


@dataclass(frozen=True, eq=False)
class SymbolEvents(TellingEvents):
    """The answer is one symbol."""

    symbols: NDArray[np.int64]

    def happened(self, answers: NDArray[Any]) -> Bools:
        """Compare answers (n,) with the symbols."""
        return np.asarray(answers[:, None] == self.symbols)


@dataclass(frozen=True, eq=False)
class BitEvents(TellingEvents):
    """One bit of the answer is set and another is not: the bits of two values."""

    ones: NDArray[np.int64]
    zeros: NDArray[np.int64]
    size: int

    def happened(self, answers: NDArray[Any]) -> Bools:
        """Compare the bits of packed answers (n, width)."""
        bits = unpack(answers, self.size).astype(np.bool_)
        return np.asarray(bits[:, self.ones] & ~bits[:, self.zeros])


def telling_events(specification: Specification) -> TellingEvents | None:
    """Return the events of a mechanism; None where values or promises are of another form, or there are too many.

    One symbol per device: each symbol, with the values that give it most and least often at the top of the ladder.
    Unary encoding: for each two values, the bit of the first set and that of the second not.
    """
    if not specification.guarantee.local:
        return None
    if isinstance(specification, SymbolSpecification):
        return _of_symbols(specification) if specification.answer.size <= MOST_EVENTS else None
    if isinstance(specification, Unary):
        size = len(specification.labels)
        return _of_pairs(size) if 0 < size * (size - 1) <= MOST_EVENTS else None
    return None


def _of_symbols(specification: SymbolSpecification) -> SymbolEvents | None:
    chances = specification.chain.top.matrix.T
    highest, lowest = chances.max(axis=1, keepdims=True), chances.min(axis=1, keepdims=True)
    telling = np.flatnonzero((highest > lowest * (1.0 + 1e-9)).ravel())
    if not len(telling):
        return None
    likely, unlikely = chances >= highest * (1.0 - 1e-9), chances <= lowest * (1.0 + 1e-9)
    return SymbolEvents(likely[telling], unlikely[telling], telling.astype(np.int64))


def _of_pairs(size: int) -> BitEvents:
    ones, zeros = np.nonzero(~np.eye(size, dtype=np.bool_))
    one_hot = np.eye(size, dtype=np.bool_)
    return BitEvents(one_hot[ones], one_hot[zeros], ones.astype(np.int64), zeros.astype(np.int64), size)
