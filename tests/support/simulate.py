"""A fleet on mixed rungs, straight to a tally: no wire, no store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from estimators.channels.bits import count_ones
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Drawn, Mechanism
from estimators.tally import Tally, count_symbols


def tally_of(mechanism: Mechanism, drawn: Drawn, rungs: NDArray[np.int64]) -> Tally:
    """Return the tally of devices that have released their answers up to `rungs`."""
    tally = Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells)
    for rung in range(mechanism.rungs):
        for group in range(mechanism.groups):
            answers = drawn.answers[rung][(rungs == rung) & (drawn.groups == group)]
            tally.users[rung, group] = len(answers)
            if mechanism.answer.kind == "bits":
                tally.counts[rung, group] = count_ones(answers, mechanism.answer.size)
            else:
                tally.counts[rung, group] = count_symbols(answers, mechanism.answer.size)
    return tally


def simulated_values(mechanism: Mechanism, users: int, seed: int) -> Sequence[Any]:
    """Return true values of a fleet whose shares fall with the index."""
    weights = np.arange(mechanism.simulated_values, 0, -1, dtype=np.float64)
    rng = np.random.default_rng(seed)
    picks = rng.choice(mechanism.simulated_values, size=users, p=weights / weights.sum())
    return mechanism.simulate(picks, SeededBits(seed, "values").words(users))


def simulated_tally(mechanism: Mechanism, values: Sequence[Any], seed: int) -> Tally:
    """Draw chains for these values and put each device on a random rung."""
    inputs = mechanism.encode(values, SeededBits(seed, "encode"))
    drawn = mechanism.draw(inputs, SeededBits(seed, "draw"))
    rungs = np.random.default_rng([seed, 1]).integers(0, mechanism.rungs, size=len(values))
    return tally_of(mechanism, drawn, rungs)
