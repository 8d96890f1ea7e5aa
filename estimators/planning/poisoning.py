"""How far lying devices can move an estimate.

Local privacy hides who said what, so a lie looks like noise. An estimate is, up to what it divides by, a sum of scores:
every answer adds its score and no more. With k lying devices among n the share theta of a value becomes

    theta + k / n * (score - theta),     lowest score <= score <= highest score

For generalised randomized response the scores of a value are (1 - q) / (p - q) for its own answer and -q / (p - q) for
any other, with p and q the probabilities of the truth and of one particular lie: the more private the level, the larger
each score. Where estimates are no sums (means of key-value pairs), the scores hold near even shares.

Pooling weights a report by the precision of its rung. So lying devices that answer on a sharp rung while all others are
still on a blurred one count for many times more, until they are enough for the test of homogeneity to notice them.

Server side only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Method
from estimators.estimation.registry import estimator_of
from estimators.mechanism import Specification
from estimators.simulation.tallies import trial_tally
from estimators.tally import Tally

Floats = NDArray[np.float64]

MOST_ANSWERS: Final = 512
"""Answers (or bits) that are tried. Of larger alphabets the first and the last are: within them values are alike."""
_MOST_GROUPS: Final = 4
_PARTS: Final = (0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 0.8, 1.0)


@dataclass(frozen=True)
class Influence:
    """What one report can add to n times the estimate of each label, and take from it, on one rung.

    nan where the label cannot be estimated on this rung alone.
    """

    labels: tuple[str, ...]
    highest: Floats
    lowest: Floats
    leading: NDArray[np.bool_]
    """Labels of the kind of the first."""

    def shift(self, shares: Floats | float, attackers: int, devices: int) -> tuple[Floats, Floats]:
        """Return how far the estimates of labels with these shares fall and rise, at most, with so many lying devices.

        >>> told = Influence(("a",), np.array([2.0]), np.array([-1.0]), np.array([True]))
        >>> [float(end[0]) for end in told.shift(0.5, 10, 1_000)]
        [-0.015, 0.015]
        """
        if not 0 <= attackers <= devices or devices < 1:
            raise ValueError(f"attackers must be 0 to the number of devices; got {attackers} of {devices}")
        part = attackers / devices
        return np.asarray(part * (self.lowest - shares)), np.asarray(part * (self.highest - shares))

    @property
    def loudest(self) -> float:
        """The largest size of a score over the labels of the first one's kind; nan if none is known."""
        sizes = np.maximum(np.abs(self.highest), np.abs(self.lowest))[self.leading]
        return float(np.nanmax(sizes)) if np.isfinite(sizes).any() else float("nan")


def influence(
    mechanism: Specification, rung: int, *, attackers_rung: int | None = None, method: Method = "pooled"
) -> Influence:
    """Return the scores of the loudest answers when all honest devices are on one rung. Deterministic.

    A single lying device is on `attackers_rung`, by default on the same. For pooled estimates of other rungs the scores
    hold for the first few; more of them count for less each.
    """
    honest = trial_tally(mechanism, rung)
    lies = [
        _moved(lie, rung, rung if attackers_rung is None else attackers_rung)
        for lie in _lies(mechanism, rung, honest, method)
    ]
    devices = honest.total_users

    def score(lie: Tally) -> Floats:
        before = estimator_of(mechanism).estimate(honest, method=method).value
        after = estimator_of(mechanism).estimate(honest + lie, method=method).value
        return np.asarray((devices + 1) * after - devices * before)

    scores = np.array([score(lie) for lie in lies])
    known = np.isfinite(scores).any(axis=0)
    safe = np.where(known, scores, 0.0)
    highest, lowest = np.nanmax(safe, axis=0), np.nanmin(safe, axis=0)
    ends = np.where(known, highest, np.nan), np.where(known, lowest, np.nan)
    return Influence(mechanism.labels, *ends, mechanism.leading)


def furthest_shift(
    mechanism: Specification, rung: int, *, attackers_rung: int, users: int, attackers: int, method: Method = "pooled"
) -> float:
    """Return how far up to so many lying devices on one rung move an estimate of the first label's kind.

    There are `users` honest ones. Where a pooled estimate weighs the lying ones' rung by its precision, a number in
    between can move it further than all: more of them are noticed, and the estimate is stratified. So several numbers
    are tried. nan if nothing is estimable.
    """
    honest = trial_tally(mechanism, rung, users)
    estimate = estimator_of(mechanism).estimate
    before = estimate(honest, method=method).value
    numbers = sorted({max(1, round(attackers * part)) for part in _PARTS}) if attackers else []
    found = [0.0] if np.isfinite(before).any() else []
    for lie in _loudest(mechanism, rung, honest, method):
        moved = _moved(lie, rung, attackers_rung)
        for number in numbers:
            after = estimate(honest + Tally(number * moved.counts, number * moved.users), method=method).value
            shift = np.abs(after - before)[mechanism.leading]
            found += [float(np.nanmax(shift))] if np.isfinite(shift).any() else []
    return max(found, default=float("nan"))


def _loudest(mechanism: Specification, rung: int, honest: Tally, method: Method) -> list[Tally]:
    """Return the lies that raise and that lower some label most, told on the honest devices' own rung."""
    lies = list(_lies(mechanism, rung, honest, method))
    estimate = estimator_of(mechanism).estimate
    before = estimate(honest, method=method).value
    moves = [np.nan_to_num(estimate(honest + lie, method=method).value - before) for lie in lies]
    places = {int(np.argmax([move.max() for move in moves])), int(np.argmin([move.min() for move in moves]))}
    return [lies[place] for place in sorted(places)] if lies else []


def _lies(mechanism: Specification, rung: int, honest: Tally, method: Method) -> Iterator[Tally]:
    """Return the tallies of single devices that answer so as to move some label as far as possible."""
    for group in range(min(mechanism.groups, _MOST_GROUPS)):
        if mechanism.answer.kind == "index":
            symbols = np.array(_some(mechanism.answer.size))
            for symbol in symbols[mechanism.valid(symbols)].tolist():
                yield _one(mechanism, rung, group, [symbol])
        else:
            for ones in _loud_vectors(mechanism, rung, group, honest, method):
                yield _one(mechanism, rung, group, np.flatnonzero(ones).tolist())


def _some(size: int) -> list[int]:
    half = MOST_ANSWERS // 2
    return list(range(size)) if size <= MOST_ANSWERS else [*range(half), *range(size - half, size)]


def _one(mechanism: Specification, rung: int, group: int, cells: list[int]) -> Tally:
    tally = Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells)
    tally.users[rung, group] = 1
    tally.counts[rung, group, cells] = 1
    return tally


def _moved(lie: Tally, rung: int, to: int) -> Tally:
    """Return the same lie on another rung."""
    moved = Tally.empty(*lie.shape)
    moved.users[to], moved.counts[to] = lie.users[rung], lie.counts[rung]
    return moved


def _loud_vectors(
    mechanism: Specification, rung: int, group: int, honest: Tally, method: Method
) -> Iterator[NDArray[np.bool_]]:
    """Return bit vectors that set just the bits which raise a label, or just those which lower it."""
    size = mechanism.answer.size
    # With the lying device itself: among one or two honest ones, a bit without a device of its own may be impossible.
    told = honest + _one(mechanism, rung, group, [])
    before = estimator_of(mechanism).estimate(told, method=method).value
    slopes = np.zeros((len(before), size))
    for bit in _some(size):
        told.counts[rung, group, bit] += 1
        slopes[:, bit] = estimator_of(mechanism).estimate(told, method=method).value - before
        told.counts[rung, group, bit] -= 1
    # A bit that does not matter moves an estimate by rounding only.
    slopes = np.nan_to_num(slopes)
    slopes[np.abs(slopes) < 1e-9 * np.abs(slopes).max(initial=0.0)] = 0.0
    seen: set[bytes] = set()
    for slope in slopes[_some(len(slopes))]:
        for ones in (slope > 0, slope < 0):
            for vector in _valid(mechanism, ones):
                if vector.tobytes() not in seen:
                    seen.add(vector.tobytes())
                    yield vector


def _valid(mechanism: Specification, ones: NDArray[np.bool_]) -> Iterator[NDArray[np.bool_]]:
    """Return a vector if a correct device could send it; else its two nearest forms as planes of keys and values."""
    half = len(ones) // 2
    keys, values = ones[:half], ones[half:]
    candidates = [ones]
    if 2 * half == len(ones):
        candidates += [np.concatenate((keys | values, values)), np.concatenate((keys, values & keys))]
    for vector in candidates:
        if mechanism.valid(np.packbits(vector[None, :], axis=1, bitorder="little"))[0]:
            yield vector
            if vector is ones:
                return
