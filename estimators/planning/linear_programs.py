"""Planning with linear programs: is there a kernel, or at least a joint law, between two arbitrary channels?

Correct up to rounding. Devices use closed forms and exact fractions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from estimators.channels.chain import LadderError, check_ladder
from estimators.planning.degradation import Degradation

Floats = NDArray[np.float64]
Family = Callable[[float], ArrayLike]
"""A channel for every level, as a matrix of probabilities; rows are true values."""

# The solver's own feasibility tolerance is 1e-9; a channel that is off by this much is the same channel.
_TOLERANCE = 1e-8


def find_kernel(lower: ArrayLike, upper: ArrayLike) -> Degradation | None:
    """Return a kernel K with upper @ K = lower, or None if `lower` is not a degradation of `upper`."""
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    if low.shape[0] != high.shape[0]:
        raise ValueError(f"both channels need the same values; got {low.shape[0]} and {high.shape[0]} rows")
    sharp, coarse = high.shape[1], low.shape[1]
    rows_sum = np.kron(np.eye(sharp), np.ones(coarse))
    products = np.kron(high, np.eye(coarse))
    # Least total deviation: feasible always, zero exactly when the kernel exists, and robust against rounding.
    slack = np.eye(low.size)
    result = linprog(
        np.r_[np.zeros(sharp * coarse), np.ones(2 * low.size)],
        A_eq=np.block([[rows_sum, np.zeros((sharp, 2 * low.size))], [products, slack, -slack]]),
        b_eq=np.r_[np.ones(sharp), low.reshape(-1)],
        method="highs",
    )
    if not result.success or result.fun > _TOLERANCE:
        return None
    return Degradation(low, high, np.asarray(result.x[: sharp * coarse]).reshape(sharp, coarse))


def find_joint(lower: ArrayLike, upper: ArrayLike, epsilon: float) -> Floats | None:
    """Return a joint law [value, lower answer, upper answer] with these marginals and loss at most epsilon, or None.

    Where the upper channel is not extremal such a law can exist although no kernel does.
    """
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    values, (coarse, sharp) = low.shape[0], (low.shape[1], high.shape[1])
    cells = coarse * sharp
    to_lower = np.kron(np.eye(coarse), np.ones(sharp))
    to_upper = np.kron(np.ones(coarse), np.eye(sharp))
    marginals = np.kron(np.eye(values), np.vstack([to_lower, to_upper]))
    targets = np.concatenate([np.r_[low[x], high[x]] for x in range(values)])
    growth = math.exp(epsilon)
    ratios = []
    for x in range(values):
        for other in range(values):
            if x != other:
                block = np.zeros((cells, values * cells))
                block[:, x * cells : (x + 1) * cells] = np.eye(cells)
                block[:, other * cells : (other + 1) * cells] = -growth * np.eye(cells)
                ratios.append(block)
    result = linprog(
        np.zeros(values * cells),
        A_ub=np.vstack(ratios) if ratios else None,
        b_ub=np.zeros(len(ratios) * cells) if ratios else None,
        A_eq=marginals,
        b_eq=targets,
        method="highs",
    )
    return np.asarray(result.x).reshape(values, coarse, sharp) if result.success else None


def plan_kernels(family: Family, ladder: Sequence[float]) -> list[Degradation]:
    """Return a kernel per step of the ladder, lowest first; LadderError names the first impossible step.

    The nearest possible ladder lowers the offending level as far as needed, or leaves it out where no level of the
    family lies below.
    """
    check_ladder(ladder, highest=math.inf)
    channels = [np.asarray(family(level), dtype=np.float64) for level in ladder]
    found: list[Degradation] = []
    for rung in range(len(ladder) - 1):
        kernel = find_kernel(channels[rung], channels[rung + 1])
        if kernel is None:
            raise LadderError(
                f"the channel of level {ladder[rung]!r} tells something that the channel of level "
                f"{ladder[rung + 1]!r} does not: no kernel takes one to the other",
                nearest_ladder(family, ladder),
            )
        found.append(kernel)
    return found


def nearest_ladder(family: Family, ladder: Sequence[float], *, steps: int = 40) -> tuple[float, ...]:
    """Return the ladder with the same top whose lower levels are as high as possible, but not above those asked for."""
    kept: list[float] = [ladder[-1]]
    for level in reversed(ladder[:-1]):
        upper = family(kept[0])
        if find_kernel(family(level), upper) is not None:
            kept.insert(0, level)
            continue
        low, high = 0.0, level
        for _ in range(steps):
            middle = (low + high) / 2
            low, high = (middle, high) if find_kernel(family(middle), upper) is not None else (low, middle)
        if low > 0 and find_kernel(family(low), upper) is not None:
            kept.insert(0, low)
    return tuple(kept)
