"""Numbers of estimates as text: bands with as many digits as tell their ends apart."""

from __future__ import annotations

from typing import Final

MOST_DIGITS: Final = 12


def band_text(lower: float | None, upper: float | None, *, digits: int, percent: bool = False) -> str:
    """Return both ends of a band; `-` if there is none. No estimate is without error: width 0 is no band.

    >>> band_text(0.25, 0.75, digits=4)
    '0.2500 to 0.7500'
    >>> band_text(-0.00001, 0.00002, digits=1, percent=True)
    '-0.001% to 0.002%'
    >>> band_text(0.0, 0.0, digits=4)
    '-'
    """
    if lower is None or upper is None or not lower < upper:
        return "-"
    scale, sign = (100.0, "%") if percent else (1.0, "")
    while digits < MOST_DIGITS and round(scale * lower, digits) == round(scale * upper, digits):
        digits += 1
    return " to ".join(f"{scale * end:.{digits}f}{sign}" for end in (lower, upper))
