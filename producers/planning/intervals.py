"""The intervals to expect of a survey: per value, rung and number of users, and when people stop early."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from estimators.estimates import Floats, Method, Population
from estimators.planning.fleets import Planned, TrialFleet, fewest
from estimators.simulation.simulator import simulator_of
from estimators.simulation.tallies import TRIAL_DEVICES
from producers.survey.check import TOP_SHARE
from producers.survey.survey import Survey


@dataclass(frozen=True)
class ExpectedInterval:
    """One value on one rung with so many users: its assumed true quantity, and the interval to expect around it.

    In the unit of the quantity: a share, or a number in the unit of a mean. None where it cannot be estimated.
    """

    users: int
    rung: int
    value: str
    assumed: float | None
    half_width: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class StopOutlook:
    """The interval of a typical value when people stop early, under one reading of it. half_width: None if unknown."""

    reading: str
    method: str
    users: int
    half_width: float | None
    used: bool
    """Whether this is how the survey estimates."""


class Expectation:
    """A survey, a trial fleet with its expected shares, and which parts of the users stop at which rung."""

    def __init__(
        self, survey: Survey, *, shares: Sequence[float] | None = None, stops: Sequence[float] | None = None
    ) -> None:
        self.survey = survey
        self.shares = None if shares is None else checked_parts(shares, kinds_of(survey), "shares", "kind of value")
        given = default_stops(survey.mechanism.rungs) if stops is None else stops
        self.stops = checked_parts(given, survey.mechanism.rungs, "stops", "rung")
        self.fleet = TrialFleet.of(survey.mechanism, self.shares)

    def planned(self, users: int, parts: Sequence[float] | Floats, *, method: Method | None = None) -> Planned:
        """Return the intervals with so many users, of whom these parts are on each rung."""
        survey = self.survey
        return self.fleet.planned(
            users,
            parts,
            method=method or survey.method,
            population=cast(Population, survey.population),
            alpha=survey.alpha,
        )

    def half_width(self, rung: int, users: int) -> float | None:
        """Return the half-width of a typical value if all users are on one rung."""
        return known(self.planned(users, self.all_on(rung)).typical)

    def users_for(self, rung: int, band: float) -> int | None:
        """Return how many users on one rung bring the half-width of a typical value down to `band`."""
        on = self.all_on(rung)
        return fewest(lambda users: self.planned(users, on).typical <= band, near=TRIAL_DEVICES)

    def intervals(self, users: Sequence[int]) -> list[ExpectedInterval]:
        """Return the interval of every value, on every rung, for each of these numbers of users."""
        found = []
        for number in users:
            for rung in range(self.survey.mechanism.rungs):
                planned = self.planned(number, self.all_on(rung))
                rows = zip(
                    planned.labels, planned.truth, planned.half_widths, planned.below, planned.above, strict=True
                )
                found += [
                    ExpectedInterval(
                        number, rung, label, known(truth), known(half), known(truth - below), known(truth + above)
                    )
                    for label, truth, half, below, above in rows
                ]
        return found

    def stopping(self, users: int) -> list[StopOutlook]:
        """Return what people who stop early do to the interval of a typical value; nothing where there is one rung.

        Under `independent` a device that may not reach the top does not answer, so that fewer remain; only those that
        are late are on lower rungs.
        """
        survey, top = self.survey, self.survey.mechanism.rungs - 1
        if top == 0:
            return []
        reaching = max(math.floor(users * self.stops[-1]), 0)
        independent = survey.rungs == "independent"

        def row(reading: str, method: Method, number: int, parts: Sequence[float] | Floats, used: bool) -> StopOutlook:
            planned = self.planned(number, parts, method=method).typical if number else math.inf
            return StopOutlook(reading, method, number, known(planned), used)

        rows = [
            row("nobody stops early", survey.method, users, self.all_on(top), True),
            row("they stop early, perhaps because of the value", "stratified", users, self.stops, not independent),
        ]
        if "pooled" in survey.mechanism.methods:
            rows += [
                row("they are late, whatever the value", "pooled", users, self.stops, independent),
                row("they may not reach the top and do not answer", "pooled", reaching, self.all_on(top), independent),
            ]
        return rows

    def all_on(self, rung: int) -> Floats:
        """Return the parts of the users if all are on one rung."""
        parts = np.zeros(self.survey.mechanism.rungs)
        parts[rung] = 1.0
        return parts


def kinds_of(survey: Survey) -> int:
    """Return how many kinds of values people have in a trial fleet."""
    return simulator_of(survey.mechanism).kinds


def default_stops(rungs: int) -> tuple[float, ...]:
    """Return TOP_SHARE on the top rung and the others evenly on the lower ones, as `thaw survey check` assumes."""
    return (1.0,) if rungs == 1 else (*[(1 - TOP_SHARE) / (rungs - 1)] * (rungs - 1), TOP_SHARE)


def checked_parts(parts: Sequence[float], number: int, name: str, of: str) -> tuple[float, ...]:
    """Return parts that are not negative and sum to one, one per entry.

    Raises:
        ValueError: they are not; the message names `name` and what an entry is for.
    """
    if len(parts) != number:
        raise ValueError(f"{name}: give one number per {of}, {number} in all; got {len(parts)}")
    if not all(part >= 0 and math.isfinite(part) for part in parts) or abs(math.fsum(parts) - 1) > 1e-6:
        raise ValueError(f"{name}: numbers must not be negative and must sum to 1; got {', '.join(map(str, parts))}")
    return tuple(float(part) for part in parts)


def known(number: float) -> float | None:
    """Return a number, or None where it is not finite: JSON has no other word for it."""
    return float(number) if math.isfinite(number) else None
