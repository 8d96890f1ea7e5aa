"""Why a release is refused: which window and level, what it would cost, what is left, and who spent the rest."""

from __future__ import annotations

from collections.abc import Mapping

from producers.device.accounts import Account, Allowance
from producers.device.budget import UNBOUNDED, BudgetError, Odometer, as_epsilon
from producers.device.ledger import StoredChain
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
