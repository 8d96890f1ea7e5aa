"""Shares of single attributes and of pairs of them, from the shares of all combinations."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from estimators.estimates import Derived, Estimates
from producers.survey.survey import Survey


def marginals(survey: Survey, found: Estimates) -> list[Derived]:
    """Return the sums of a survey with several attributes; none for other surveys.

    The bands are rather too wide. Errors of two values are independent (bits of a vector) or against each other (one
    answer in place of another), so the variance of a sum is at most the sum of variances. Where all shares sum to one,
    the sum of those left out has the same error: the smaller of both bounds it.
    """
    if survey.attributes is None or not found.users:
        return []
    z = NormalDist().inv_cdf(1.0 - found.alpha / 2.0)
    whole = abs(float(found.value.sum()) - 1.0) < 1e-9
    derived = []
    for one in survey.attributes.sums():
        cells = list(one.cells)
        share, variance = float(found.value[cells].sum()), float(found.variance[cells].sum())
        if whole:
            variance = min(variance, float(np.delete(found.variance, cells).sum()))
        half = z * float(np.sqrt(variance))
        meaning = f"share of the devices that answered with {one.name}"
        derived.append(Derived(one.name, "share", meaning, share, variance, share - half, share + half))
    return derived
