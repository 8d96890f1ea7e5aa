"""What answers cost a person, always rounded up.

A chain costs the level of its highest released answer: lower ones are noisier copies of it. Everything that is drawn
anew (another window, another value, another survey) adds up. Mechanisms know the price of one chain for the whole
record (`Specification.epsilons`); this module adds chains together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from estimators.inference.key_value import lpp_loss


def add_up(epsilons: Iterable[float]) -> float:
    """Return the cost of independent releases about one person: the sum, rounded up.

    >>> add_up([0.1, 0.2]) >= 0.3
    True
    """
    costs = list(epsilons)
    if any(cost < 0 or math.isnan(cost) for cost in costs):
        raise ValueError(f"a privacy cost cannot be negative; got {costs}")
    total = math.fsum(costs)
    return total if len(costs) < 2 or math.isinf(total) or total == 0 else math.nextafter(total, math.inf)


def repeated_cost(epsilon: float, times: int) -> float:
    """Return the cost of `times` independent releases of one level: what `add_up` gives, without a list of them.

    >>> repeated_cost(0.1, 3) == add_up([0.1, 0.1, 0.1])
    True
    """
    if times < 0:
        raise ValueError(f"a number of releases cannot be negative; got {times}")
    # The product is rounded once, as the exact sum is.
    return add_up([epsilon * times, 0.0]) if times > 1 and epsilon > 0 else add_up([epsilon] * times)


def chain_cost(epsilons: Sequence[float], released: Iterable[int]) -> float:
    """Return the cost of releasing these rungs of one chain: that of the highest one, 0 if none was released.

    >>> chain_cost((0.5, 1.0, 2.0), [0, 1])
    1.0
    """
    rungs = list(released)
    if any(not 0 <= rung < len(epsilons) for rung in rungs):
        raise ValueError(f"rungs must be between 0 and {len(epsilons) - 1}; got {rungs}")
    return max((epsilons[rung] for rung in rungs), default=0.0)


def windows_cost(epsilons: Sequence[float], highest: Iterable[int]) -> float:
    """Return the cost of one chain per window, given the highest rung released in each (-1 for none)."""
    return add_up(chain_cost(epsilons, [rung] if rung >= 0 else []) for rung in highest)


def key_value_cost(key_epsilon: float, value_epsilon: float) -> float:
    """Return the cost of a key-value report (Ma & Wang, Lemma 2, corrected), for the person's whole set of pairs.

    max(eps2, eps1 + ln(2 / (1 + e^-eps2))): the index is drawn without looking at the data.
    """
    # lpp_loss is right to a few units in the last place; the factor covers them.
    return lpp_loss(key_epsilon, value_epsilon) * (1.0 + 1e-15)
