"""Why a release is refused: which window and level, what it would cost, what is left, and who spent the rest."""

from __future__ import annotations

from collections.abc import Mapping

from producers.device.accounts import Account, Allowance, Budget
from producers.device.budget import UNBOUNDED, BudgetError, Odometer, as_epsilon
from producers.device.ledger import Ledger, StoredChain
from producers.survey.survey import Survey


def refusal(
    survey: Survey,
    chain: StoredChain,
    rung: int,
    increment: int,
    odometer: Odometer,
    accounts: Mapping[str, Account],
    allowance: Allowance,
) -> BudgetError:
    """Return the error for a release that the budget does not pay."""
    price = "cost without bound" if increment == UNBOUNDED else f"cost {as_epsilon(increment):.6g} more"
    if survey.rungs == "independent":
        price += " with all rungs above it, which this survey needs"
    spent = sorted(((account.spent_units, name) for name, account in accounts.items()), reverse=True)
    by = ", ".join(f"{name} {as_epsilon(units):.6g}" for units, name in spent if units)
    return BudgetError(
        f"{survey.id}, window {chain.window_ms}: rung {rung} (level {survey.mechanism.ladder[rung]:g}) would {price}, "
        f"and {allowance.because} ({odometer.epsilon:.6g} spent on all surveys{': ' if by else ''}{by}); "
        "it is not released"
    )


def check_budget(
    ledger: Ledger, budget: Budget, survey: Survey, chain: StoredChain, rung: int, increment: int, now_ms: int
) -> None:
    """Raise BudgetError unless the budget pays `increment` units for a rung of a chain."""
    odometer, accounts = ledger.odometer(), ledger.accounts()
    allowance = budget.allowance(survey, odometer.spent_units, accounts, now_ms)
    if not allowance.covers(increment):
        raise refusal(survey, chain, rung, increment, odometer, accounts, allowance)


def beyond_cap(survey: Survey, chain: StoredChain, rung: int, cap: float) -> str:
    """Say why a rung that was asked for is not released where the person allows only `cap` per window."""
    return (
        f"{survey.id}, window {chain.window_ms}: rung {rung} (level {survey.mechanism.ladder[rung]:g}) was asked for, "
        f"and the person allows {cap:.6g} per window; it is not released"
    )


def by_clock(survey_id: str) -> str:
    """Say why no level of a survey is released on demand."""
    return f'{survey_id}: its levels open by the clock; only kind = "on_demand" is released on demand'


def of_all_windows(error: BudgetError, answered: Mapping[int, bool]) -> BudgetError:
    """Return the error of a value that belongs to these windows; those with an answer of an earlier call keep it."""
    new = sorted(start_ms for start_ms, before in answered.items() if not before)
    old = sorted(answered.keys() - new)
    text = str(error)
    if len(new) > 1:
        text += (
            f"; the value belongs to {len(new)} windows without an answer, which are answered all or none: nothing was "
            "released for any of them"
        )
    if old:
        text += f"; answered before, and as it was: window {', '.join(map(str, old))}"
    return BudgetError(text)


def kept_out(survey: Survey, cap: float) -> str:
    """Say why a device whose person allows `cap` per window does not answer a survey at all; empty if it does.

    Where all devices must be able to reach the top rung, a lower cap would make rungs depend on the person.
    """
    top = survey.mechanism.epsilons[-1]
    if survey.rungs == "any" or top <= cap:
        return ""
    return (
        f"{survey.id} is not answered: the person allows {cap:.6g} per window and the top rung costs {top:.6g}; this "
        "survey counts only devices that may release every rung; raise the cap to take part"
    )
