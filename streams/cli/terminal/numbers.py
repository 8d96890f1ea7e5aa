"""Numbers of estimates as text, in the unit of their quantity: shares as percent, means in the unit of the numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from estimators.mechanism import Quantity
from producers.survey.survey import Survey

MOST_DIGITS: Final = 12
_MEAN_DIGITS: Final = 3
"""Digits of a mean beside those that its range has before the point: a mean in [0, 100] is written as 21.90."""


@dataclass(frozen=True)
class Scale:
    """How the numbers of a quantity are written, and between which ends they are drawn.

    >>> share, age = Scale.of(Quantity("red")), Scale.of(Quantity("age", kind="mean", unit="years", high=100.0))
    >>> share.text(0.2190637), age.text(21.90637)
    ('21.91%', '21.91 years')
    """

    is_share: bool
    unit: str
    digits: int
    low: float
    high: float

    @classmethod
    def of(cls, quantity: Quantity, *, percent_digits: int = 2) -> Scale:
        """Return the scale of a quantity; shares have that many digits after the point of a percentage."""
        if quantity.kind == "share":
            return cls(True, "%", percent_digits, 0.0, 1.0)
        span = quantity.high - quantity.low
        digits = max(0, min(_MEAN_DIGITS - math.floor(math.log10(span) + 0.5) + 1, MOST_DIGITS)) if span > 0 else 2
        return cls(False, f" {quantity.unit}" if quantity.unit else "", digits, quantity.low, quantity.high)

    @classmethod
    def of_survey(cls, survey: Survey) -> Scale:
        """Return the scale of the first kind of quantity of a survey: what its widths are about."""
        return cls.of(survey.mechanism.quantities[0])

    @property
    def factor(self) -> float:
        """What a number is multiplied by before it is written."""
        return 100.0 if self.is_share else 1.0

    def text(self, number: float | None) -> str:
        """Return a number with its unit; `-` if there is none."""
        return "-" if number is None else f"{self.factor * number:,.{self.digits}f}{self.unit}"

    def of_width(self, half: float) -> Scale:
        """Return the scale with as many digits as a band of this half-width deserves: two that count.

        >>> Scale.of(Quantity("edges", kind="mean")).of_width(424.0).text(7072.31)
        '7,072'
        >>> Scale.of(Quantity("keys", kind="mean")).of_width(0.24).text(1.4412)
        '1.44'
        """
        if not half > 0:
            return self
        return replace(self, digits=max(0, min(1 - math.floor(math.log10(self.factor * half)), MOST_DIGITS)))

    def short(self, number: float | None) -> str:
        """Return a number with three significant digits and its unit; `-` if there is none.

        >>> Scale.of(Quantity("red")).short(0.0123456), Scale.of(Quantity("km", kind="mean", high=1e6)).short(123456.0)
        ('1.23%', '123,000')
        """
        if number is None:
            return "-"
        shown = float(f"{self.factor * number:.3g}")
        return f"{shown:,.0f}{self.unit}" if abs(shown) >= 1_000 else f"{shown:g}{self.unit}"

    def band(self, lower: float | None, upper: float | None) -> str:
        """Return both ends of a band, with as many digits as tell them apart; `-` if there is none.

        No estimate is without error: width 0 is no band.

        >>> Scale.of(Quantity("age", kind="mean", high=100.0)).band(25.0, 75.0)
        '25.00 to 75.00'
        >>> Scale.of(Quantity("red"), percent_digits=1).band(-0.00001, 0.00002)
        '-0.001% to 0.002%'
        >>> Scale.of(Quantity("red")).band(0.0, 0.0)
        '-'
        """
        if lower is None or upper is None or not lower < upper:
            return "-"
        digits = self.digits
        while digits < MOST_DIGITS and round(self.factor * lower, digits) == round(self.factor * upper, digits):
            digits += 1
        return " to ".join(f"{self.factor * end:,.{digits}f}{self.unit}" for end in (lower, upper))

    def ends(self, numbers: Iterable[float | None]) -> tuple[float, float]:
        """Return the ends of an axis for these numbers: shares begin at 0, means where the smallest number is."""
        known = [number for number in numbers if number is not None]
        if self.is_share:
            return min([0.0, *known]) if min(known, default=0.0) < -0.2 else 0.0, max([0.05, *known])
        return (min(known), max(known)) if known and min(known) < max(known) else (self.low, self.high)


def axis(scale: Scale, low: float, high: float, cells: int) -> str:
    """Return the heading of a column of bars: both ends of the axis, as far apart as the bars are wide."""
    left, right = scale.short(low), scale.short(high)
    return f"{left}{'':{max(cells - len(left) - len(right), 1)}}{right}"


def scales_of(survey: Survey, labels: Sequence[str], *, percent_digits: int = 2) -> dict[Scale, list[str]]:
    """Return the labels of each scale of a survey, in their order: shares and means are not drawn on one axis.

    A label that the survey does not have (an estimate of an older version) is taken for a share.
    """
    known = {quantity.label: quantity for quantity in survey.mechanism.quantities}
    scales: dict[Scale, list[str]] = {}
    for label in labels:
        scale = Scale.of(known.get(label, Quantity(label)), percent_digits=percent_digits)
        scales.setdefault(scale, []).append(label)
    return scales
