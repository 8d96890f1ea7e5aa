"""Covariance between the estimated shares of a retention family: for sums of shares."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.channels.nested import Retaining
from estimators.estimates import Population
from estimators.inference.inversion import Rungs, clip_to_simplex
from estimators.inference.pooling import fleet_covariance, gls, gls_covariance, stratified_covariance

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


def pooled_covariance(
    channels: Sequence[Retaining], counts: Counts, users: Counts, *, method: str, population: Population
) -> Floats:
    """Return the covariance [value, value] of what `pool_retention` estimates from counts [rung, value].

    NaN without answers. Inside the simplex the maximum of the likelihood has the covariance of the pooled
    estimate; on its border that is an upper bound.
    """
    rungs = Rungs.of(channels, counts, users)
    if rungs.total == 0:
        return np.full((rungs.size, rungs.size), np.nan)
    if method == "stratified" or len(rungs.users) == 1:
        inside = np.stack([clip_to_simplex(share) for share in rungs.inverted])
        return stratified_covariance(rungs.sigma, rungs.base, inside, rungs.users, population)
    fit = gls(rungs)
    if population == "sampling":
        return gls_covariance(fit.inverse_information)
    return fleet_covariance(rungs, fit.inverse_information, fit.pilot)
