"""The budget table of a survey file, checked against what answers cost."""

from __future__ import annotations

import math
from dataclasses import dataclass

from estimators.mechanism import ParameterError, Specification
from producers.survey.file import BudgetTable
from producers.survey.unlocking import Unlock, parse_unlock


@dataclass(frozen=True)
class SurveyBudget:
    """What a survey may spend on a device."""

    lifetime_epsilon: float
    unlock: Unlock | None
    reserve_epsilon: float


def budget_of(table: BudgetTable, mechanism: Specification) -> SurveyBudget:
    """Return the budget; ParameterError names the field that cannot be."""
    lifetime, first, reserve = table.lifetime, mechanism.epsilons[0], table.reserve
    if not lifetime > 0:
        raise ParameterError("budget.lifetime", lifetime, "must be above 0: the epsilon that a device may spend in all")
    if math.isinf(first) and not math.isinf(lifetime):
        raise ParameterError(
            "budget.lifetime",
            lifetime,
            "an answer of this mechanism has no finite local cost, so no finite budget can pay for it; write inf",
        )
    if math.isinf(lifetime) and not math.isinf(mechanism.epsilons[-1]):
        raise ParameterError("budget.lifetime", lifetime, "this mechanism has a finite cost; write a finite budget")
    if lifetime < first:
        raise ParameterError(
            "budget.lifetime",
            lifetime,
            f"does not pay for one answer of the first rung, which costs {first:.6g}; raise it or lower the ladder",
        )
    if not 0.0 <= reserve <= lifetime or math.isinf(reserve):
        raise ParameterError("budget.reserve", reserve, f"must be a number from 0 to the lifetime of {lifetime:g}")
    if table.unlock is None:
        return SurveyBudget(lifetime, None, reserve)
    try:
        unlock = parse_unlock(table.unlock)
    except ValueError as error:
        raise ParameterError("budget.unlock", table.unlock, str(error)) from None
    if math.isinf(mechanism.epsilons[-1]):
        raise ParameterError("budget.unlock", table.unlock, "an answer without a finite cost cannot unlock; remove it")
    return SurveyBudget(lifetime, unlock, reserve)
