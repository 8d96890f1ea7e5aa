"""What a survey costs a person over a year of windows, as the ledger adds it up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from estimators.planning.accounting import repeated_cost
from producers.planning.intervals import known
from producers.survey.check import DAY_MS
from producers.survey.file import PERSON_LIFETIME_EPSILON
from producers.survey.survey import Survey

YEAR_MS = 365 * DAY_MS


@dataclass(frozen=True)
class YearOutlook:
    """Costs of a device that answers in every window of a year, None where they have no bound.

    fresh: one chain per window, all of them added up. fresh_mean: the mean over people who stop early. windows_paid,
    days_paid: how long the budget lasts then. standing: with standing values, one chain per value that the person had,
    so at most `changes` + 1 of them. repeated: whether the survey has standing values.
    """

    windows: int
    epsilon_per_window: float | None
    fresh: float | None
    fresh_mean: float | None
    budget: float | None
    windows_paid: int | None
    days_paid: float | None
    changes: int
    standing: float | None
    repeated: bool = False


def year_of(survey: Survey, *, stops: Sequence[float], changes: int) -> YearOutlook:
    """Add up a year of windows of a survey whose people stop at each rung in these parts."""
    step_ms, epsilons = survey.windows.step_ms, survey.mechanism.epsilons
    windows, top = YEAR_MS // step_ms, epsilons[-1]
    mean = math.fsum(part * epsilon for part, epsilon in zip(stops, epsilons, strict=True) if part)
    budget = min(survey.lifetime_epsilon, PERSON_LIFETIME_EPSILON) if math.isfinite(top) else math.inf
    paid = math.floor(budget / top) if math.isfinite(top) else None
    return YearOutlook(
        windows=windows,
        epsilon_per_window=known(top),
        fresh=known(repeated_cost(top, windows)),
        fresh_mean=known(mean * windows),
        budget=known(budget),
        windows_paid=paid,
        days_paid=None if paid is None else paid * step_ms / DAY_MS,
        changes=changes,
        standing=known(repeated_cost(top, changes + 1)),
        repeated=survey.standing,
    )
