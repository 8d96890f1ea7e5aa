"""Do all rungs see the same shares? The test that watches the assumption behind pooling.

The common shares are fitted without constraints, never by maximum likelihood inside the simplex: where a value is
absent, the likelihood's maximum lies on the border, its residuals do not follow the chi-square law, and a test that
gives up there misses exactly the cases that matter. Expected counts, which scale the residuals, are taken at shares
cut to what is possible. Answers that expect fewer than five on some rung are merged into one cell.
Rungs with hardly any users are not compared at all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import special

from estimators.inference.inversion import Rungs, clip_to_simplex

Floats = NDArray[np.float64]

LEAST_USERS = 20
"""A rung with fewer users is not compared. Whether it can be would depend on what those few answered, through the
expected counts that their own answers decide: rungs were pooled just where the few were uneven, and bands of pooled
estimates missed too often (.923 with ten users on a sharp rung)."""
SMALL_CELL = 5.0
"""Expected counts below this are merged: the chi-square law is poor there."""
_STEPS = 8
_TINY = 1e-9


def retention_homogeneity(rungs: Rungs) -> float | None:
    """Return the p-value of the test for a retention family (GRR, uRR); None where nothing can be told apart."""
    if len(rungs.users) < 2 or rungs.users.min() < LEAST_USERS:
        return None
    users, sigma = rungs.users[:, None], rungs.sigma[:, None]
    inverted = rungs.inverted
    shares = np.asarray((rungs.users / rungs.total) @ inverted)
    for _ in range(_STEPS):
        answers = np.maximum(rungs.answer_shares(np.clip(shares, 0.0, 1.0)), _TINY)
        information = users * sigma**2 / answers
        total = information.sum(axis=0)
        raw, inverse = (information * inverted).sum(axis=0) / total, 1.0 / total
        shares = raw + inverse * (1.0 - raw.sum()) / inverse.sum()
    scale = np.maximum(rungs.answer_shares(np.clip(shares, 0.0, 1.0)), _TINY**2)
    scale /= scale.sum(axis=1, keepdims=True)
    return _p_value(*chi_square(rungs.counts, users * rungs.answer_shares(shares), users * scale))


def dense_homogeneity(matrices: Floats, counts: Floats, shares: Floats) -> float | None:
    """Return the p-value for any channels [rung, value, answer], given shares fitted without constraints."""
    users = counts.sum(axis=1)[:, None]
    if len(matrices) < 2 or users.min() < LEAST_USERS:
        return None
    scale = clip_to_simplex(shares) @ matrices
    return _p_value(*chi_square(counts, users * (shares @ matrices), users * scale, parameters=matrices.shape[1] - 1))


def bits_homogeneity(truth: Floats, lie: Floats, ones: Floats, users: Floats) -> float | None:
    """Return a p-value that all rungs see the same share of every bit; arrays [rung, bit], valid however bits depend.

    The smallest p-value of the bits times the number of bits tested. A rung takes part in the test of a bit if it
    expects at least five ones and five zeros.
    """
    live = (users > 0) & (truth != lie)
    asked = np.where(live, users, 0.0).max(axis=1, initial=0.0)
    if np.any((asked > 0) & (asked < LEAST_USERS)):
        return None
    slope = np.where(live, truth - lie, 1.0)
    inverted = np.where(live, ones / np.maximum(users, 1.0) - lie, 0.0) / slope
    shares = np.sum(np.where(live, users, 0.0) * inverted, axis=0) / np.maximum(np.where(live, users, 0.0).sum(0), 1.0)
    fitted, answers = live, lie
    # The last step leaves out what is not tested. Not before: a rung that seems to expect hardly any ones at the share
    # that a noisy rung sees would never be asked.
    for left in reversed(range(_STEPS)):
        answers = np.clip(lie + slope * np.clip(shares, 0.0, 1.0), _TINY, 1.0 - _TINY)
        expected = users * answers
        if not left:
            fitted = live & (np.minimum(expected, users - expected) >= SMALL_CELL)
        information = np.where(fitted, users * slope**2 / (answers * (1.0 - answers)), 0.0)
        total = information.sum(axis=0)
        shares = np.where(total > 0, (information * inverted).sum(axis=0) / np.maximum(total, _TINY), shares)
    tested = fitted
    residual = ones - users * (lie + slope * shares)
    statistic = np.where(tested, residual**2 / np.maximum(users * answers * (1.0 - answers), _TINY), 0.0).sum(axis=0)
    freedom = tested.sum(axis=0) - 1
    decided = freedom > 0
    if not decided.any():
        return None
    p_values = special.chdtrc(freedom[decided], statistic[decided])
    return float(min(1.0, p_values.min() * decided.sum()))


def chi_square(counts: Floats, expected: Floats, scale: Floats, *, parameters: int | None = None) -> tuple[float, int]:
    """Return the chi-square statistic of counts against expected ones, [rung, answer], and its degrees of freedom.

    scale holds possible expected counts. Answers with a small one on any rung become one cell on all rungs. parameters
    counts the free shares; None: as many as cells, less one.
    """
    small = np.any(scale < SMALL_CELL, axis=0)
    squares = (counts - expected) ** 2
    statistic = float(np.sum(squares[:, ~small] / scale[:, ~small]))
    cells = int((~small).sum())
    if small.any():
        left, wanted, size = (array[:, small].sum(axis=1) for array in (counts, expected, scale))
        statistic += float(np.sum((left - wanted) ** 2 / np.maximum(size, _TINY)))
        cells += 1
    free = cells - 1 if parameters is None else min(parameters, cells - 1)
    return statistic, len(counts) * (cells - 1) - free


def _p_value(statistic: float, freedom: int) -> float | None:
    return float(special.chdtrc(freedom, statistic)) if freedom > 0 else None
