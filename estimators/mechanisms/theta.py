"""The default theta of uRAP: the one with the smallest mean error if all values are equally frequent.

Devices and servers must find the same number, so it is sought among thousandths, with sums, products and square roots
alone, which every machine rounds in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from estimators.channels.chain import check_ladder
from estimators.channels.response import EXACT, Formulas, Response

STEPS = 1000
"""Thetas that are tried. Fewer: up to a percent is lost; more: it takes longer and gains less than a millionth."""


def mean_error(epsilon: float, theta: Fraction, sensitive: int, values: int) -> float:
    """Return the mean over all values of the standard error of its share, for one answer and even shares."""
    return _mean_error(_formulas(epsilon), float(theta), sensitive, values)


def best_thetas(ladder: Sequence[float], sensitive: int, values: int) -> tuple[Fraction, ...]:
    """Return the best theta of every level, moved as little as it takes to draw each level from the one above.

    A lower level can be drawn if neither bit tells more there than above: with hide = (1 - theta) e^eps + theta both
    hide and e^eps / hide must not fall from a level to the one above it.
    """
    check_ladder(ladder)
    found: list[Fraction] = []
    above = ladder[-1]
    for epsilon in reversed(ladder):
        theta = _best(epsilon, sensitive, values)
        if found and epsilon > 0:
            lower, upper = 1 / EXACT.decay(epsilon), 1 / EXACT.decay(above)
            hide = (1 - found[-1]) * upper + found[-1]
            least, most = (lower - hide) / (lower - 1), (lower - lower * hide / upper) / (lower - 1)
            theta = min(max(theta, least), most)
        found.append(theta)
        above = epsilon
    return tuple(reversed(found))


def _best(epsilon: float, sensitive: int, values: int) -> Fraction:
    formulas = _formulas(epsilon)
    # At high levels the best one is closer to 1 than a thousandth; the paper's is good there.
    tried = [*(Fraction(step, STEPS) for step in range(1, STEPS)), EXACT.sue(epsilon).truth]
    return min(tried, key=lambda theta: _mean_error(formulas, float(theta), sensitive, values))


def _formulas(epsilon: float) -> Formulas[float]:
    small = float(EXACT.decay(epsilon))
    return Formulas(lambda _: small, lambda _: 1 - small)


def _mean_error(formulas: Formulas[float], theta: float, sensitive: int, values: int) -> float:
    bits, share = formulas.urap(0.0, theta), 1 / values
    return (sensitive * _error(bits.sensitive, share) + (values - sensitive) * _error(bits.other, share)) / values


def _error(bit: Response[float], share: float) -> float:
    told = bit.answer(share)
    return math.sqrt(told * (1 - told)) / bit.slope if bit.slope > 0 else math.inf
