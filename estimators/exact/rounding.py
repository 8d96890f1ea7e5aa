"""Exact integers to floating point and back, always rounded so that a privacy claim stays true."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext

GRID = 1 << 64
"""Denominator of every probability that is drawn: one random word decides."""

# 80 digits: far beyond what 2**64 thresholds can resolve, so that rounding of the logarithms never decides anything.
_DIGITS = 80
_SLACK = Decimal(10) ** -70


def log_ratio_up(numerator: int, denominator: int) -> float:
    """Return ln(numerator / denominator) rounded up to a float; inf when the denominator is 0 and the numerator is not.

    >>> log_ratio_up(1, 1)
    0.0
    >>> log_ratio_up(3, 0)
    inf
    """
    if numerator < 0 or denominator < 0:
        raise ValueError(f"probabilities cannot be negative; got {numerator}/{denominator}")
    if numerator == denominator:
        return 0.0
    if denominator == 0:
        return math.inf
    if numerator == 0:
        return -math.inf
    with localcontext() as context:
        context.prec = _DIGITS
        exact = (Decimal(numerator) / Decimal(denominator)).ln() + _SLACK
        rounded = float(exact)
        return rounded if Decimal(rounded) >= exact else math.nextafter(rounded, math.inf)


def exp_decimal(epsilon: float) -> Decimal:
    """Return e**epsilon with 80 digits; epsilon must be finite."""
    if not math.isfinite(epsilon):
        raise ValueError(f"a level must be a finite number; got {epsilon!r}")
    with localcontext() as context:
        context.prec = _DIGITS
        return Decimal(epsilon).exp()


def scaled_ceil(numerator: Decimal | int, denominator: Decimal | int, scale: int = GRID) -> int:
    """Return the smallest integer that is at least scale * numerator / denominator."""
    return _scaled(numerator, denominator, scale, ROUND_CEILING)


def scaled_floor(numerator: Decimal | int, denominator: Decimal | int, scale: int = GRID) -> int:
    """Return the largest integer that is at most scale * numerator / denominator."""
    return _scaled(numerator, denominator, scale, ROUND_FLOOR)


def _scaled(numerator: Decimal | int, denominator: Decimal | int, scale: int, rounding: str) -> int:
    with localcontext() as context:
        context.prec = 2 * _DIGITS
        return int((Decimal(scale) * Decimal(numerator) / Decimal(denominator)).to_integral_value(rounding=rounding))
