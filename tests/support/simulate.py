"""A fleet on mixed rungs, straight to a tally."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from estimators.exact.randomness import SeededBits
from estimators.simulation.tallies import tally_of
from estimators.tally import Tally
from tests.support.mechanism import Mechanism


def simulated_values(mechanism: Mechanism, users: int, seed: int) -> Sequence[Any]:
    """Return true values of a fleet whose shares fall with the index."""
    weights = np.arange(mechanism.simulator.kinds, 0, -1, dtype=np.float64)
    rng = np.random.default_rng(seed)
    picks = rng.choice(mechanism.simulator.kinds, size=users, p=weights / weights.sum())
    return mechanism.simulate(picks, SeededBits(seed, "values").words(users))


def simulated_tally(mechanism: Mechanism, values: Sequence[Any], seed: int) -> Tally:
    """Draw chains for these values and put each device on a random rung."""
    inputs = mechanism.encode(values, SeededBits(seed, "encode"))
    drawn = mechanism.draw(inputs, SeededBits(seed, "draw"))
    rungs = np.random.default_rng([seed, 1]).integers(0, mechanism.rungs, size=len(values))
    return tally_of(mechanism.specification, drawn, rungs)
