"""What all ways of combining rungs share: which method is reported, and how values become intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from estimators.estimates import Estimates, Method, Population
from estimators.intervals.one_look import simultaneous_alpha, two_sided_z

Floats = NDArray[np.float64]

Ends = Callable[[float], tuple[Floats, Floats]]
"""Lower and upper ends of every value's two-sided interval at an error rate."""

PILOT_FLOOR: Final = 1e-4
"""Shares for weights stay this far inside [0, 1]: at the ends a rung's variance vanishes."""
SCORING_STEPS: Final = 50
"""Steps of an iterated fit. More change nothing that matters; a fit that needs more says so in a note."""
SCORING_TOLERANCE: Final = 1e-6
"""A fit has settled when it moves by less than this part of its standard error."""

_SLIVER: Final = 0.05
"""Less than this part of its half width inside [0, 1] makes an interval useless."""

HOMOGENEITY_ALPHA: Final = 0.001
"""Below this p-value the rungs contradict a common share, and the stratified estimate is reported."""


def choose_method(
    method: Method, homogeneity_p: float | None, rungs: int, notes: tuple[str, ...]
) -> tuple[Method, tuple[str, ...]]:
    """Replace `pooled`, which needs rungs with common shares, by `stratified` where they disagree or cannot be told to.

    Without enough answers to compare rungs, a few reports on a sharp rung would otherwise decide an estimate unchecked.
    `mle` stays what was asked for; a note says where its assumption fails.
    """
    if method not in ("pooled", "stratified", "mle"):
        raise ValueError(f"method must be pooled, stratified or mle; got {method!r}")
    if method == "stratified" or rungs < 2:
        return method, notes
    chosen: Method = "stratified" if method == "pooled" else method
    consequence = "stratified, not pooled" if method == "pooled" else "the likelihood assumes that they agree"
    if homogeneity_p is not None and homogeneity_p < HOMOGENEITY_ALPHA:
        return chosen, (*notes, f"rungs disagree (homogeneity p = {homogeneity_p:.2g}): {consequence}")
    if homogeneity_p is None and method == "pooled":
        return chosen, (*notes, f"too few answers to test whether the rungs agree: {consequence}")
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


@dataclass(frozen=True)
class Combined:
    """Estimates of all rungs together: values, variances, intervals at any error rate, covariance where known."""

    shares: Floats
    variance: Floats
    ends: Ends
    covariance: Floats | None = None

    def inside(self, likely: Floats) -> Combined:
        """Report `likely` (maximum likelihood, inside the simplex) with these intervals, cut to [0, 1] around it.

        The maximum has no variance of its own at the border; near it the intervals of the unconstrained estimate hold.
        """

        def ends(alpha: float) -> tuple[Floats, Floats]:
            lower, upper = self.ends(alpha)
            # An interval that lies outside (almost) altogether keeps its half width around the maximum.
            half = (upper - lower) / 2.0
            away = np.clip(upper, 0.0, 1.0) - np.clip(lower, 0.0, 1.0) < _SLIVER * half
            lower, upper = np.where(away, likely - half, lower), np.where(away, likely + half, upper)
            return np.minimum(np.clip(lower, 0.0, 1.0), likely), np.maximum(np.clip(upper, 0.0, 1.0), likely)

        return Combined(likely, self.variance, ends, self.covariance)

    def without(self, unknown: NDArray[np.bool_]) -> Combined:
        """Report NaN where nothing is known."""
        if not unknown.any():
            return self

        def ends(alpha: float) -> tuple[Floats, Floats]:
            lower, upper = self.ends(alpha)
            return np.where(unknown, np.nan, lower), np.where(unknown, np.nan, upper)

        return Combined(np.where(unknown, np.nan, self.shares), np.where(unknown, np.nan, self.variance), ends)


def normal_ends(values: Floats, variance: Floats) -> Ends:
    """Return intervals value -+ z sqrt(variance)."""
    deviation = np.sqrt(variance)

    def ends(alpha: float) -> tuple[Floats, Floats]:
        reach = two_sided_z(alpha) * deviation
        return values - reach, values + reach

    return ends


def finish(
    labels: tuple[str, ...],
    found: Combined,
    *,
    users: int,
    method: str,
    population: Population,
    alpha: float,
    homogeneity_p: float | None = None,
    notes: tuple[str, ...] = (),
) -> Estimates:
    """Report what was found, with per-value and simultaneous intervals."""
    lower, upper = found.ends(alpha)
    joint_lower, joint_upper = found.ends(simultaneous_alpha(alpha, max(len(labels), 1), found.covariance))
    return Estimates(
        labels=labels,
        value=found.shares,
        variance=found.variance,
        lower=lower,
        upper=upper,
        users=users,
        method=method,
        population=population,
        alpha=alpha,
        simultaneous_lower=joint_lower,
        simultaneous_upper=joint_upper,
        homogeneity_p=homogeneity_p,
        notes=notes,
    )


@dataclass(frozen=True)
class Pool:
    """All rungs combined, before an error rate is chosen."""

    labels: tuple[str, ...]
    found: Combined
    users: int
    method: Method
    population: Population
    homogeneity_p: float | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def empty(cls, labels: tuple[str, ...], method: Method, population: Population, notes: tuple[str, ...]) -> Pool:
        """Combine nothing: NaN everywhere, zero users."""
        nothing = np.full(len(labels), np.nan)
        return cls(
            labels, Combined(nothing, nothing, normal_ends(nothing, nothing)), 0, method, population, None, notes
        )

    def estimates(self, alpha: float) -> Estimates:
        """Report what was found, with intervals at level 1 - alpha."""
        return finish(
            self.labels,
            self.found,
            users=self.users,
            method=self.method,
            population=self.population,
            alpha=alpha,
            homogeneity_p=self.homogeneity_p,
            notes=self.notes,
        )
