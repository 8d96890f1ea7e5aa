"""The record of a window as a function of its survey and of what was counted, and of nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import cast

import msgspec

from estimators.estimates import Estimates, Floats, Population
from estimators.estimation.registry import estimator_of
from estimators.inference.pooling_result import HOMOGENEITY_ALPHA
from estimators.tally import Tally
from producers.survey.survey import Survey
from streams.windows.marginals import marginals
from streams.windows.record import EstimateRecord, make_record
from streams.windows.withdrawals import Counted, counted, false_alarm_share
from streams.windows.withheld import withheld_by, withheld_record


def estimate(survey: Survey, tally: Tally) -> Estimates:
    """Estimate as the survey says, or stratified where the rungs contradict what it assumes or cannot be compared."""
    population = cast(Population, survey.population)
    estimate_by = partial(estimator_of(survey.mechanism).estimate, tally, population=population, alpha=survey.alpha)
    found = estimate_by(method=survey.method)
    # `pooled` turns to stratified by itself; `mle` stays the maximum of a likelihood that is wrong or unchecked.
    if found.method == "stratified":
        return found
    if contradicted(survey, found):
        why = f"rungs disagree (homogeneity p = {found.homogeneity_p:.2g})"
    elif found.method == "mle" and found.homogeneity_p is None and estimate_by(method="pooled").method == "stratified":
        why = "too few answers to test whether the rungs agree"
    else:
        return found
    instead = estimate_by(method="stratified")
    return replace(instead, notes=(*instead.notes, f"{why}: stratified, not {found.method}"))


def contradicted(survey: Survey, estimates: Estimates) -> bool:
    """Return whether the rungs of a window contradict what the survey assumes about them."""
    p = estimates.homogeneity_p
    return survey.rungs == "independent" and p is not None and p < HOMOGENEITY_ALPHA


def always_valid(survey: Survey, counts: Counted, estimates: Estimates) -> tuple[Floats, Floats] | None:
    """Return bounds that hold at every look, or None where they cannot be had.

    They need rungs that do not depend on values. A stratified estimate, asked for or chosen because the rungs disagree,
    does not assume that.
    """
    if estimates.method == "stratified":
        return None
    alpha = survey.alpha * false_alarm_share(counts.withdrawn)
    return estimator_of(survey.mechanism).always_valid(counts.tally, alpha=alpha)


def estimate_record(survey: Survey, window_ms: int, stored: Tally, *, settled: bool = True) -> EstimateRecord:
    """Return all of a window's record that follows from its survey and stored tally alone; times are 0.

    The record has no numbers where the survey publishes none yet: too few devices, or a window that is not `settled`
    of a survey that publishes totals only.
    """
    counts = counted(survey, stored)
    tally = counts.tally
    withheld = withheld_by(survey, tally, settled=settled)
    if withheld is not None:
        record = withheld_record(survey, window_ms, tally, withheld)
        return msgspec.structs.replace(record, withdrawn=counts.withdrawn)
    estimates = estimate(survey, tally)
    derived = (*estimates.derived, *marginals(survey, tally, estimates))
    estimates = replace(estimates, notes=(*estimates.notes, *counts.note), derived=derived)
    return make_record(
        survey,
        window_ms,
        tally,
        estimates,
        read_ms=0,
        computed_ms=0,
        always_valid=always_valid(survey, counts, estimates),
        contradicted=contradicted(survey, estimates),
        views=estimator_of(survey.mechanism).views(tally, estimates),
        withdrawn=counts.withdrawn,
    )
