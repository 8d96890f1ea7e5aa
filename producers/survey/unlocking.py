"""Budgets that unlock over time, as people write them: `0.5 per day`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from producers.survey.durations import format_duration, parse_duration

_PERIODS = {"minute": "1m", "hour": "1h", "day": "1d", "week": "7d"}
_FORM = re.compile(r"\s*([0-9.eE+-]+)\s+per\s+(.+?)\s*")


@dataclass(frozen=True)
class Unlock:
    """So much epsilon when a device is first asked, and again with every further period."""

    epsilon: float
    period_ms: int

    def periods(self, first_ms: int | None, now_ms: int) -> int:
        """Return how many periods have begun since the device was first asked; one before that."""
        return 1 if first_ms is None else max(0, 1 + (now_ms - first_ms) // self.period_ms)

    def next_ms(self, first_ms: int, now_ms: int) -> int:
        """Return when the next period begins."""
        return first_ms + self.periods(first_ms, now_ms) * self.period_ms

    def __str__(self) -> str:
        words = {parse_duration(period): word for word, period in _PERIODS.items()}
        return f"{self.epsilon:g} per {words.get(self.period_ms, format_duration(self.period_ms))}"


def parse_unlock(text: str) -> Unlock:
    """Return what `text` means; ValueError says how to write it.

    >>> parse_unlock("0.5 per day") == parse_unlock("0.5 per 24h") == Unlock(0.5, 86_400_000)
    True
    >>> str(parse_unlock("0.5 per 24h")), str(parse_unlock("1 per 90m"))
    ('0.5 per day', '1 per 1h 30m')
    """
    form = _FORM.fullmatch(text)
    remedy = 'write an epsilon and a time, such as "0.5 per day" or "1 per 12h"'
    if form is None:
        raise ValueError(remedy)
    try:
        epsilon, period_ms = float(form[1]), parse_duration(_PERIODS.get(form[2], form[2]))
    except ValueError:
        raise ValueError(remedy) from None
    if not 0.0 < epsilon < math.inf or period_ms == 0:
        raise ValueError(f"both numbers must be above 0; {remedy}")
    return Unlock(epsilon, period_ms)
