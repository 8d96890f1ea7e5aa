"""Fleets straight to tallies: no wire, no store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bit_chain import BitChain
from estimators.channels.bits import count_ones
from estimators.channels.channel import Channel
from estimators.channels.nested import Retaining
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Drawn, Specification
from estimators.mechanisms.mean import Mean
from estimators.mechanisms.registry import randomizer_of
from estimators.mechanisms.symbols import SymbolSpecification
from estimators.mechanisms.uldp import UtilityOptimized
from estimators.mechanisms.unary import Unary
from estimators.simulation.simulator import simulator_of
from estimators.tally import Tally, count_symbols

TRIAL_DEVICES = 20_000
"""Devices of a trial fleet."""


def tally_of(specification: Specification, drawn: Drawn, rungs: int | NDArray[np.int64] = -1) -> Tally:
    """Count the last released answer of every device.

    rungs is the rung that all devices have reached (-1: the highest one), or one entry per device.
    """
    if isinstance(rungs, int):
        reached = np.full(len(drawn.groups), range(specification.rungs)[rungs], dtype=np.int64)
    else:
        reached = rungs
    tally = Tally.empty(specification.rungs, specification.groups, specification.answer.cells)
    for rung in np.unique(reached).tolist():
        for group in range(specification.groups):
            answers = drawn.answers[rung][(reached == rung) & (drawn.groups == group)]
            tally.users[rung, group] = len(answers)
            if specification.answer.kind == "bits":
                tally.counts[rung, group] = count_ones(answers, specification.answer.size)
            else:
                tally.counts[rung, group] = count_symbols(answers, specification.answer.size)
    return tally


def trial_values(
    specification: Specification, devices: int = TRIAL_DEVICES, shares: Sequence[float] | None = None
) -> Sequence[Any]:
    """Return the true values of a trial fleet: kinds of values with these shares, by default even ones. Deterministic.

    Any part of the fleet that is taken in order has about the same shares.
    """
    simulator = simulator_of(specification)
    if shares is None:
        picks = np.arange(devices, dtype=np.int64) % simulator.kinds
    else:
        ends = np.rint(np.cumsum(shares) * devices).astype(np.int64)
        picks = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        picks = picks[np.argsort(SeededBits(0, "poisoning", "order").words(len(picks)))]
    return simulator.simulate(picks, SeededBits(0, "poisoning", "values").words(len(picks)))


def chains_of(specification: Specification, values: Sequence[Any]) -> Drawn:
    """Return the chains of a trial fleet with these values. Deterministic."""
    bits = SeededBits(0, "poisoning", "draw")
    return randomizer_of(specification).draw(_encoded(specification, values), bits)


def _encoded(specification: Specification, values: Sequence[Any]) -> NDArray[Any]:
    # Nobody can deal a deck to oneself alone: one device is the first of two.
    asked = [*values, *values] if len(values) == 1 else values
    inputs = randomizer_of(specification).encode(asked, SeededBits(0, "poisoning", "encode"))[: len(values)]
    return np.repeat(inputs, specification.copies, axis=0)


def expected_cells(specification: Specification, values: Sequence[Any]) -> NDArray[np.float64] | None:
    """Return the expected part of these devices' answers in every cell, [rung, cell], from the exact channels.

    None for mechanisms whose answers are not drawn from the index of a value through one chain.
    """
    if not isinstance(specification, SymbolSpecification | Mean | Unary | UtilityOptimized):
        return None
    if specification.groups > 1:
        return None
    chain = specification.chain
    inputs = np.bincount(_encoded(specification, values), minlength=specification.answer.size) / len(values)
    if isinstance(chain, BitChain):
        ones, zeros = chain.probabilities
        return np.asarray(zeros + (ones - zeros) * inputs)
    return np.array([_answers(channel, inputs) for channel in chain.channels])


def _answers(channel: Channel, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
    if isinstance(channel, Retaining):  # without its matrix, which is large where there are many values
        return np.asarray(channel.response.lie + channel.response.slope * inputs)
    return np.asarray(inputs[: channel.inputs] @ channel.matrix)


def trial_chains(specification: Specification, devices: int = TRIAL_DEVICES) -> Drawn:
    """Return the chains of a trial fleet whose values have even shares. Deterministic."""
    return chains_of(specification, trial_values(specification, devices))


def trial_tally(specification: Specification, rung: int, devices: int = TRIAL_DEVICES) -> Tally:
    """Return the tally of a trial fleet of which all devices are on one rung."""
    drawn = trial_chains(specification, devices)
    return tally_of(specification, drawn, rung)
