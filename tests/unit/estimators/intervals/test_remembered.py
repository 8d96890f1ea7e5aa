"""What was calculated is found again by the contents of what it was calculated from, and by nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.intervals.remembered import remembered

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Pair:
    first: Floats
    second: Floats


def test_equal_contents_are_calculated_once_and_others_anew() -> None:
    calls = []

    @remembered(8)
    def total(pair: Pair, factor: float = 1.0, *, sign: float = 1.0) -> Pair:
        calls.append(factor)
        return Pair(sign * factor * (pair.first + pair.second), pair.first * 0.0)

    ones, twos = np.ones(3), np.full(3, 2.0)
    assert total(Pair(ones, twos)) is total(Pair(ones.copy(), twos.copy()))
    assert len(calls) == 1
    others = [
        total(Pair(twos, ones)),
        total(Pair(ones, twos), 2.0),
        total(Pair(ones, twos), sign=-1.0),
        total(Pair(ones.reshape(3, 1), twos.reshape(3, 1))),
        total(Pair(ones.astype(np.int64).astype(np.float32), twos)),
    ]
    assert len(calls) == 6
    assert [float(other.first.sum()) for other in others] == [9.0, 18.0, -9.0, 9.0, 9.0]


def test_the_oldest_result_is_forgotten() -> None:
    calls = []

    @remembered(2)
    def same(number: float) -> float:
        calls.append(number)
        return number

    for number in (1.0, 2.0, 1.0, 3.0, 1.0, 2.0):
        assert same(number) == number
    assert calls == [1.0, 2.0, 3.0, 2.0]


def test_a_result_that_others_get_too_cannot_be_written_to() -> None:
    @remembered(2)
    def halves(array: Floats) -> tuple[Floats, Pair]:
        return array / 2.0, Pair(array / 4.0, array / 8.0)

    half, pair = halves(np.ones(2))
    for array in (half, pair.first, pair.second):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7.0
