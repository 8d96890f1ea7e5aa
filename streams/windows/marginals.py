"""Shares of single attributes and of pairs of them, from the shares of all combinations."""

from __future__ import annotations

from estimators.estimates import Derived, Estimates
from estimators.estimation.registry import estimator_of
from estimators.tally import Tally
from producers.survey.survey import Survey


def marginals(survey: Survey, tally: Tally, found: Estimates) -> list[Derived]:
    """Return the sums of a survey with several attributes; none for other surveys.

    A share is the sum of the shares shown; its band is that of the answers added up, and holds the sum.
    """
    if survey.attributes is None or not found.users:
        return []
    sums = list(survey.attributes.sums())
    told = estimator_of(survey.mechanism).sums(tally, [one.cells for one in sums], found)
    columns = (told.value, told.variance, told.lower, told.upper)
    return [
        Derived(one.name, "share", f"share of the devices that answered with {one.name}", *map(float, numbers))
        for one, *numbers in zip(sums, *columns, strict=True)
    ]
