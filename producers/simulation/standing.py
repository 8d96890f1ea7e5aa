"""Simulated people whose value rarely changes, for surveys with standing values.

Every device gets a value after `PERIOD` windows, each at another moment, which may be one that it had before. Its
answers belong to the value, as those of a real device do.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from estimators.simulation.simulator import simulator_of
from producers.simulation.recordings import Recording
from producers.simulation.scenarios import Scenario, pick
from producers.survey.survey import Survey

PERIOD = 20
"""Windows for which a device keeps its value."""


class Standing(NamedTuple):
    """Values of devices, and their answers (rungs, rows, ...) and groups (rows,): a row for each copy."""

    values: Sequence[Any]
    answers: NDArray[Any]
    groups: NDArray[np.uint16]


def spans_of(survey_id: str, seed: int, block: int, size: int, window: int) -> NDArray[np.int64]:
    """Return by device of a block which of its values it has in a window, by number."""
    offsets = SeededBits(seed, survey_id, block, "standing").words(size) % np.uint64(PERIOD)
    return (window + offsets.astype(np.int64)) // PERIOD


def standing_values(
    survey: Survey,
    scenario: Scenario,
    shares: NDArray[np.float64],
    recording: Recording | None,
    *,
    seed: int,
    block: tuple[int, int, int],
    window: int,
    present: NDArray[np.intp],
) -> Standing:
    """Return what these devices of a block answer in a window: a function of the seed, the block and the window.

    Args:
        survey: the survey, with standing values.
        scenario: how shares change between windows.
        shares: the shares to begin with.
        recording: real data instead; then every device has one value for ever.
        seed: of the fleet.
        block: its number, the number of its first device, and how many it has.
        window: number of the window since the epoch.
        present: the devices that take part.
    """
    number, first, size = block
    copies = survey.mechanism.copies
    if recording is not None:
        held = list(recording.days[0][first : first + size])
        present = present[present < len(held)]
        kinds = np.zeros(len(present), dtype=np.int64)
        people = {0: _people(survey, seed, number, held, 0)}
    else:
        kinds = _kinds(survey, scenario, shares, seed, (number, size), window)[present]
        people = {kind: _of_kind(survey, seed, number, size, kind) for kind in np.unique(kinds).tolist()}
    some = next(iter(people.values()), None) or _of_kind(survey, seed, number, size, 0)
    rows = (present[:, None] * copies + np.arange(copies)).ravel()
    answers = np.zeros((len(some.answers), len(rows), *some.answers.shape[2:]), some.answers.dtype)
    groups = np.zeros(len(rows), dtype=np.uint16)
    values: list[Any] = [None] * len(present)
    for kind, they in people.items():
        chosen = np.flatnonzero(kinds == kind)
        mine = (chosen[:, None] * copies + np.arange(copies)).ravel()
        answers[:, mine] = they.answers[:, rows[mine]]
        groups[mine] = they.groups[rows[mine]]
        for place in chosen.tolist():
            values[place] = they.values[present[place]]
    return Standing(values, answers, groups)


def _kinds(
    survey: Survey,
    scenario: Scenario,
    shares: NDArray[np.float64],
    seed: int,
    block: tuple[int, int],
    window: int,
) -> NDArray[np.int64]:
    """Return by device of a block which kind of value it has in a window."""
    spans = spans_of(survey.id, seed, *block, window)
    kinds = np.empty(len(spans), dtype=np.int64)
    for span in np.unique(spans).tolist():
        words = SeededBits(seed, survey.id, block[0], span, "standing value").words(block[1])
        now = scenario.shares(shares, span * PERIOD, 0, np.zeros(block[1]))
        mine = spans == span
        # Where there is one kind of value, as for numbers, every new value is one of its own.
        kinds[mine] = pick(now, words)[mine] if len(shares) > 1 else span
    return kinds


@lru_cache(maxsize=64)
def _of_kind(survey: Survey, seed: int, block: int, size: int, kind: int) -> Standing:
    """Return what every device of a block answers while it has a value of this kind: the same each time."""
    words = SeededBits(seed, survey.id, block, kind, "standing kind").words(size)
    simulator = simulator_of(survey.mechanism)
    held = simulator.populate(np.full(size, kind % simulator.kinds), words)
    return _people(survey, seed, block, list(held), kind)


def _people(survey: Survey, seed: int, block: int, held: list[Any], kind: int) -> Standing:
    randomizer, labels = randomizer_of(survey.mechanism), (survey.id, block, kind)
    inputs = randomizer.encode(held, SeededBits(seed, *labels, "standing encode"))
    repeated = np.repeat(inputs, survey.mechanism.copies, axis=0)
    drawn = randomizer.draw(repeated, SeededBits(seed, *labels, "standing chain"))
    return Standing(held, drawn.answers, drawn.groups)
