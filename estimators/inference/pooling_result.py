"""What all ways of pooling share: which method is reported, and values with variances turned into intervals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates, Method, Population
from estimators.intervals.one_look import simultaneous_z, two_sided_z

Floats = NDArray[np.float64]

HOMOGENEITY_ALPHA = 0.001
"""Below this p-value a pooled estimate is replaced by the stratified one."""
SMALL_CELL = 5.0
"""Expected counts below this are merged in the homogeneity test: the chi-square law is poor there."""


def choose_method(
    method: Method, homogeneity_p: float | None, notes: tuple[str, ...]
) -> tuple[Method, tuple[str, ...]]:
    """Replace `pooled` by `stratified` when the rungs disagree, and say so."""
    if method not in ("pooled", "stratified", "mle"):
        raise ValueError(f"method must be pooled, stratified or mle; got {method!r}")
    if method == "pooled" and homogeneity_p is not None and homogeneity_p < HOMOGENEITY_ALPHA:
        return "stratified", (*notes, f"rungs disagree (homogeneity p = {homogeneity_p:.2g}): stratified, not pooled")
    return method, notes


def uninformative_notes(uninformative: int) -> tuple[str, ...]:
    """Return the note about users whose answers carry no information."""
    return (f"{uninformative} users on rungs that carry no information are left out",) if uninformative else ()


def no_estimate(
    labels: tuple[str, ...], method: str, population: Population, alpha: float, notes: tuple[str, ...]
) -> Estimates:
    """Return estimates that say nothing: NaN everywhere, zero users."""
    nothing = np.full(len(labels), np.nan)
    return Estimates(
        labels, nothing, nothing, nothing, nothing, 0, method, population, alpha, nothing, nothing, None, notes
    )


def finish(
    labels: tuple[str, ...],
    shares: Floats,
    variance: Floats,
    covariance: Floats | None,
    *,
    users: int,
    method: str,
    population: Population,
    alpha: float,
    homogeneity_p: float | None = None,
    notes: tuple[str, ...] = (),
) -> Estimates:
    """Add per-value and simultaneous normal intervals to values and variances."""
    sd = np.sqrt(variance)
    own = two_sided_z(alpha) * sd
    joint = simultaneous_z(alpha, max(len(labels), 1), covariance) * sd
    return Estimates(
        labels=labels,
        value=shares,
        variance=variance,
        lower=shares - own,
        upper=shares + own,
        users=users,
        method=method,
        population=population,
        alpha=alpha,
        simultaneous_lower=shares - joint,
        simultaneous_upper=shares + joint,
        homogeneity_p=homogeneity_p,
        notes=notes,
    )


def merged_chi_square(seen: Floats, wanted: Floats) -> tuple[float, int]:
    """Return sum (seen - wanted)^2 / wanted and the number of cells left after merging those that expect fewer than 5.

    Small cells become one; if it still expects fewer than 5, the next larger cells join it.
    """
    possible = wanted > 0
    seen, wanted = seen[possible], wanted[possible]
    order = np.argsort(wanted, kind="stable")
    seen, wanted = seen[order], wanted[order]
    merged = int(np.searchsorted(wanted, SMALL_CELL))
    while 0 < merged < len(wanted) and wanted[:merged].sum() < SMALL_CELL:
        merged += 1
    if merged > 1:
        seen = np.append(seen[merged:], seen[:merged].sum())
        wanted = np.append(wanted[merged:], wanted[:merged].sum())
    return float(np.sum((seen - wanted) ** 2 / wanted)), len(wanted)
