"""Bands of the share of people who have any of several values, each of which has a share of its own.

Adding up the variances of the shares is no way to a band: a value that nobody named has almost none, so sums of rare
values would get bands of no width. The answers are added up instead. Where an answer is one symbol, "any of these" is
one yes/no question: a symbol is named by the others as often as all its parts together. Where answers are bits, as many
answers as there are bits were given to one question that all bits ask alike; bits that ask differently (uRAP's
sensitive and other values) are one question each, and their bands, each at its part of the error rate, add up.

Taking each bit for an answer of another device leaves out that no device has two of the values, and so is on the safe
side: the spread of those who have one of k values is share (1 - share), and share (1 - share / k) is charged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Method, Population
from estimators.inference.pooling_bits import pool_bits
from estimators.intervals.always_valid import YesNo

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SummedBands:
    """Sums of shares with their variances, and the ends of bands that hold them."""

    value: Floats
    variance: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True)
class _Question:
    """What some values of one sum ask together: `bits` answers of every device, arrays [rung]."""

    sum: int
    bits: int
    truth: Floats
    lie: Floats
    ones: Floats
    parts: int
    """Questions that the sum falls into."""


def summed_bands(
    questions: YesNo,
    sums: Sequence[Sequence[int]],
    shares: Floats,
    *,
    one_symbol: bool,
    method: Method,
    population: Population,
    alpha: float,
) -> SummedBands:
    """Return sums of shares, given by the places of their values, with bands at level 1 - alpha.

    one_symbol: an answer names one value; otherwise it has one bit for every value.
    """
    ask = _of_symbols if one_symbol else _of_bits
    asked = [question for number, cells in enumerate(sums) for question in ask(questions, number, np.array(cells))]
    variance, lower, upper = np.zeros((3, len(sums)))
    for bits, parts in sorted({(question.bits, question.parts) for question in asked}):
        alike = [question for question in asked if (question.bits, question.parts) == (bits, parts)]
        truth, lie, ones = (
            np.stack([getattr(question, name) for question in alike], axis=1) for name in ("truth", "lie", "ones")
        )
        found = pool_bits(
            [str(question.sum) for question in alike],
            truth,
            lie,
            ones.astype(np.int64),
            (bits * questions.users[:, 0]).astype(np.int64),
            method=method,
            population=population,
            alpha=alpha / parts,
        )
        places = np.array([question.sum for question in alike])
        np.add.at(variance, places, bits**2 * found.variance)
        np.add.at(lower, places, bits * found.lower)
        np.add.at(upper, places, bits * found.upper)
    value = np.array([shares[list(cells)].sum() for cells in sums])
    return SummedBands(value, variance, np.minimum(lower, value), np.maximum(upper, value))


def _of_symbols(questions: YesNo, number: int, cells: NDArray[np.int64]) -> Iterator[_Question]:
    """One question: the chance of a symbol is that of keeping it, the same for all, and of drawing it anyway."""
    kept = questions.truth[:, cells[0]] - questions.lie[:, cells[0]]
    lie = questions.lie[:, cells].sum(axis=1)
    yield _Question(number, 1, np.minimum(kept + lie, 1.0), lie, questions.ones[:, cells].sum(axis=1), 1)


def _of_bits(questions: YesNo, number: int, cells: NDArray[np.int64]) -> Iterator[_Question]:
    """One question for all bits that have the same chances on every rung."""
    chances = np.concatenate([questions.truth[:, cells], questions.lie[:, cells]])
    kinds, kind_of = np.unique(chances, axis=1, return_inverse=True)
    rungs = len(questions.truth)
    for kind, chance in enumerate(kinds.T):
        own = cells[kind_of.ravel() == kind]
        ones = questions.ones[:, own].sum(axis=1)
        yield _Question(number, len(own), chance[:rungs], chance[rungs:], ones, kinds.shape[1])
