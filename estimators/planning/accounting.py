"""What answers cost a person, always rounded up.

A chain costs the level of its highest released answer: lower ones are noisier copies of it. Everything that is drawn
anew (another window, another value, another survey) adds up. Mechanisms know the price of one chain for the whole
record (`Specification.epsilons`); this module adds chains together and holds the rules that are common to several.
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


def vector_cost(bit_epsilon: float, differing_bits: int) -> float:
    """Return the cost of a vector of independent bits when two records differ in at most so many of them."""
    if differing_bits < 0:
        raise ValueError(f"the number of differing bits cannot be negative; got {differing_bits}")
    total = bit_epsilon * differing_bits
    return total if total == 0 or math.isinf(total) else math.nextafter(total, math.inf)


def bloom_cost(bit_epsilon: float, hashes: int) -> float:
    """Return the cost of a Bloom filter report: two strings differ in up to two bits per hash."""
    return vector_cost(bit_epsilon, 2 * hashes)


def one_hot_cost(bit_epsilon: float) -> float:
    """Return the cost of a one-hot vector with symmetric bits: two values differ in two bits."""
    return vector_cost(bit_epsilon, 2)


def key_value_cost(key_epsilon: float, value_epsilon: float) -> float:
    """Return the cost of a key-value report (Ma & Wang, Lemma 2, corrected), for the person's whole set of pairs.

    max(eps2, eps1 + ln(2 / (1 + e^-eps2))): the index is drawn without looking at the data.
    """
    # lpp_loss is right to a few units in the last place; the factor covers them.
    return lpp_loss(key_epsilon, value_epsilon) * (1.0 + 1e-15)


def group_cost(epsilon: float, people: int) -> float:
    """Return what `people` who answer alike (a household) reveal together."""
    return vector_cost(epsilon, people)


def composed_delta(epsilon: float, releases: int, target: float) -> float:
    """Return the smallest delta for which `releases` independent epsilon-private answers are (target, delta)-private.

    The exact optimum for answers that use their level fully (Kairouz, Oh & Viswanath): the privacy loss is then a sum
    of +-epsilon steps. Rounded up. target at or above releases * epsilon: 0.

    >>> composed_delta(0.5, 4, 2.0)
    0.0
    >>> 0 < composed_delta(0.5, 4, 1.0) < composed_delta(0.5, 4, 0.5) < 1
    True
    """
    if releases < 0 or epsilon < 0:
        raise ValueError(f"releases and epsilon cannot be negative; got {releases} and {epsilon}")
    if target >= releases * epsilon:
        return 0.0
    log_half = -math.log1p(math.exp(-epsilon))
    terms = []
    for lies in range(releases + 1):
        loss = (releases - 2 * lies) * epsilon
        if loss > target:
            log_chance = math.log(math.comb(releases, lies)) + releases * log_half - lies * epsilon
            terms.append(math.exp(log_chance) * -math.expm1(target - loss))
    # Each term is right to a few units in the last place; the factor covers all of them.
    return min(1.0, math.fsum(terms) * (1.0 + 1e-12))
