"""Numbers that follow from all values together: their truth, and their bands.

Totals and averages of key-value data and the spread of numbers come with an estimate. Where shares add up, sums of some
of them are judged, as surveys with several attributes show: of every second value, and of those listed last, which the
populations here leave absent or rare.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates
from estimators.mechanisms.key_value import KeyValue
from estimators.mechanisms.mean import Mean
from estimators.tally import Tally
from tests.calibration.worlds import World

Floats = NDArray[np.float64]

FEWEST = 4
"""Values from which on sums are judged: of fewer they are single shares."""


def sums_of(world: World) -> dict[str, tuple[int, ...]]:
    """Return the places of the values of every sum; none where shares do not add up."""
    size = len(world.mechanism.labels)
    if not world.mechanism.specification.adds_up or size < FEWEST:
        return {}
    return {"every second value": tuple(range(1, size, 2)), "last half": tuple(range(size // 2, size))}


def names_of(world: World) -> tuple[str, ...]:
    """Return what is derived in a world."""
    specification = world.mechanism.specification
    if isinstance(specification, KeyValue):
        # Averages of edges are the same band in another unit.
        return "edges", "weight", "mean edge weight"
    if isinstance(specification, Mean) and specification.moments > 1:
        return "variance", "standard deviation"
    return tuple(sums_of(world))


def truths(world: World, people: Floats) -> dict[str, float]:
    """Return the true numbers of people of whom there are so many of each kind; NaN where there is none."""
    specification, shares = world.mechanism.specification, world.truth(people)
    if isinstance(specification, KeyValue):
        edges, weight = (float((people @ world.parts[0])[first::2].sum()) for first in (0, 1))
        return {"edges": edges, "weight": weight, "mean edge weight": weight / edges if edges > 0 else np.nan}
    if isinstance(specification, Mean) and specification.moments > 1:
        variance = max(float(shares[1] - shares[0] ** 2), 0.0)
        return {"variance": variance, "standard deviation": variance**0.5}
    return {name: float(shares[list(cells)].sum()) for name, cells in sums_of(world).items()}


def bands(world: World, tally: Tally, found: Estimates) -> dict[str, tuple[float, float]]:
    """Return the bands that are shown for them."""
    sums = sums_of(world)
    if sums and found.users:
        told = world.mechanism.estimator.sums(tally, list(sums.values()), found)
        return dict(zip(sums, zip(told.lower.tolist(), told.upper.tolist(), strict=True), strict=True))
    return {one.name: (one.lower, one.upper) for one in found.derived}
