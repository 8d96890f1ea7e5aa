"""Fleets straight to tallies: no wire, no store."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import count_ones
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Drawn, Specification
from estimators.mechanisms.registry import randomizer_of
from estimators.simulation.simulator import simulator_of
from estimators.tally import Tally, count_symbols

TRIAL_DEVICES = 20_000
"""Devices of a trial fleet."""


def tally_of(specification: Specification, drawn: Drawn, rungs: NDArray[np.int64]) -> Tally:
    """Return the tally of devices that have released their answers up to `rungs`."""
    tally = Tally.empty(specification.rungs, specification.groups, specification.answer.cells)
    for rung in np.unique(rungs).tolist():
        for group in range(specification.groups):
            answers = drawn.answers[rung][(rungs == rung) & (drawn.groups == group)]
            tally.users[rung, group] = len(answers)
            if specification.answer.kind == "bits":
                tally.counts[rung, group] = count_ones(answers, specification.answer.size)
            else:
                tally.counts[rung, group] = count_symbols(answers, specification.answer.size)
    return tally


def trial_chains(specification: Specification, devices: int = TRIAL_DEVICES) -> Drawn:
    """Return the chains of a trial fleet whose values have even shares. Deterministic."""
    simulator, randomizer = simulator_of(specification), randomizer_of(specification)
    picks = np.arange(devices, dtype=np.int64) % simulator.kinds
    values = simulator.simulate(picks, SeededBits(0, "poisoning", "values").words(devices))
    inputs = randomizer.encode(values, SeededBits(0, "poisoning", "encode"))
    return randomizer.draw(np.repeat(inputs, specification.copies, axis=0), SeededBits(0, "poisoning", "draw"))


def trial_tally(specification: Specification, rung: int, devices: int = TRIAL_DEVICES) -> Tally:
    """Return the tally of a trial fleet of which all devices are on one rung."""
    drawn = trial_chains(specification, devices)
    return tally_of(specification, drawn, np.full(len(drawn.groups), rung, dtype=np.int64))
