"""What a privacy level means for an observer who already suspects something."""

from __future__ import annotations

import math


def highest_suspicion(before: float, epsilon: float) -> float:
    """Return the highest probability to which answers of privacy level `epsilon` can raise a suspicion `before`.

    Local privacy bounds the factor on the odds by e^epsilon, whatever the answers are.

    >>> round(highest_suspicion(0.2, 0.0), 6), round(highest_suspicion(0.2, math.log(4)), 6)
    (0.2, 0.5)
    """
    if not 0.0 <= before <= 1.0 or not epsilon >= 0.0:
        raise ValueError(f"before must be in [0, 1] and epsilon not negative; got {before} and {epsilon}")
    return before / (before + (1.0 - before) * math.exp(-epsilon))


def highest_percent(before: float, epsilon: float) -> str:
    """Return `highest_suspicion` for people to read, rounded up.

    >>> highest_percent(0.2, 2.0)
    '64.9 %'
    """
    return f"{math.ceil(1_000 * highest_suspicion(before, epsilon)) / 10:.1f} %"
