"""Alert rules on values and health thresholds of a survey. Not part of the survey id."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

from producers.survey.durations import parse_duration
from producers.survey.file import AlertTable, LimitsTable

Side = Literal["above", "below"]

MAX_RULES = 100
"""Every rule divides the false-alarm rate once more and is a time series of its own."""


@dataclass(frozen=True)
class AlertRule:
    """Alert when the always-valid bound of the value is above, or below, the threshold.

    threshold is in the unit of the estimate: a share, or a mean. alpha is this rule's own probability of a false alarm
    per window, over all evaluations: the file's alpha divided by the number of rules.
    """

    value: str
    side: Side
    threshold: float
    alpha: float


@dataclass(frozen=True)
class Limits:
    """Health thresholds; None: there is no such alert, or it has a default of its own."""

    band_ratio: float | None = None
    stale_ms: int | None = None
    budget_ratio: float = 0.8
    reports_per_shard_per_second: float | None = None
    canary_z: float = 6.0


NO_LIMITS = Limits()
"""The thresholds of a file without a `[limits]` table."""


class AlertError(ValueError):
    """An impossible rule or threshold: field, value, remedy."""

    def __init__(self, field: str, value: object, remedy: str) -> None:
        super().__init__(f"{field}: {remedy}; got {value!r}")
        self.field, self.value, self.remedy = field, value, remedy


def rules_of(tables: Sequence[AlertTable], labels: Sequence[str]) -> tuple[AlertRule, ...]:
    """Check the `[[alert]]` tables of a file whose mechanism estimates `labels`; AlertError names the first fault."""
    if len(tables) > MAX_RULES:
        raise AlertError("alert", len(tables), f"a survey has at most {MAX_RULES} rules; remove some")
    rules: list[AlertRule] = []
    for i, table in enumerate(tables):
        place = f"alert[{i}]"
        if table.value not in labels:
            some = ", ".join(labels[:5]) + (", ..." if len(labels) > 5 else "")
            raise AlertError(f"{place}.value", table.value, f"must be one of what is estimated ({some})")
        sides = [side for side in ("above", "below") if getattr(table, side) is not None]
        if len(sides) != 1:
            raise AlertError(place, sides, "give one threshold, above or below; for both write two tables")
        side = cast(Side, sides[0])
        threshold = cast(float, getattr(table, side))
        if not math.isfinite(threshold):
            raise AlertError(f"{place}.{side}", threshold, "must be a finite number")
        if not 0.0 < table.alpha < 0.5:
            raise AlertError(f"{place}.alpha", table.alpha, "must be between 0 and 0.5; 0.01 is one window in 100")
        if any((rule.value, rule.side) == (table.value, side) for rule in rules):
            raise AlertError(f"{place}.{side}", threshold, f"{table.value} has such a rule already; remove one")
        rules.append(AlertRule(table.value, side, threshold, table.alpha / len(tables)))
    return tuple(rules)


def limits_of(table: LimitsTable) -> Limits:
    """Check the `[limits]` table."""
    for name, number in (("band", table.band), ("flood", table.flood), ("canary", table.canary)):
        if number is not None and not (number > 0 and math.isfinite(number)):
            raise AlertError(f"limits.{name}", number, "must be a finite number above 0")
    if not 0.0 < table.budget <= 1.0:
        raise AlertError("limits.budget", table.budget, "is a part of the lifetime budget: above 0, at most 1")
    stale_ms = None
    if table.stale is not None:
        try:
            stale_ms = parse_duration(table.stale)
        except ValueError as error:
            raise AlertError("limits.stale", table.stale, str(error)) from None
        if stale_ms < 1_000:
            raise AlertError("limits.stale", table.stale, "must be at least 1s: estimates come once a second")
    return Limits(table.band, stale_ms, table.budget, table.flood, table.canary)
