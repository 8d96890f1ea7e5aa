"""The band that calibrated bands are measured against: estimate -+ 1.96 deviations, with observed counts as chances.

It is what textbooks print and what collapses where an answer is rare: a value that no device named gets almost no
variance. The table states its coverage and width on the same windows, as the price of bands that hold.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import two_sided_z

Floats = NDArray[np.float64]

_FLOOR = 1e-4


def wald_band(
    questions: YesNo, *, stratified: bool, population: Population, alpha: float = 0.05
) -> tuple[Floats, Floats]:
    """Return the ends per value, for shares; rungs that say nothing about a value are left out."""
    slope = questions.truth - questions.lie
    used = (questions.users > 0) & (slope != 0)
    slope, users = np.where(used, slope, 1.0), np.where(used, questions.users, 1.0)
    observed = questions.ones / users
    inverted = np.where(used, (observed - questions.lie) / slope, 0.0)
    parts = np.where(used, questions.users, 0.0) / np.maximum((questions.users * used).sum(axis=0), 1.0)
    share = (parts * inverted).sum(axis=0)
    if stratified or not np.any(used.sum(axis=0) > 1):
        spread = observed * (1.0 - observed)
        if population == "fleet":
            spread = questions.truth * questions.lie + observed * (1.0 - questions.truth - questions.lie)
        variance = np.where(used, parts**2 * np.maximum(spread, 0.0) / (users * slope**2), 0.0).sum(axis=0)
    else:
        answers = questions.lie + slope * np.clip(share, _FLOOR, 1.0 - _FLOOR)
        information = np.where(used, users * slope**2 / (answers * (1.0 - answers)), 0.0)
        total = np.maximum(information.sum(axis=0), np.finfo(float).tiny)
        share, variance = (information * inverted).sum(axis=0) / total, 1.0 / total
        if population == "fleet":
            inside = np.clip(share, 0.0, 1.0)
            variance = np.maximum(variance - inside * (1.0 - inside) / np.maximum(questions.users.sum(axis=0), 1.0), 0)
    reach = two_sided_z(alpha) * np.sqrt(variance)
    return share - reach, share + reach
