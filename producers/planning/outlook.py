"""What to expect of a survey, rung by rung: widths, devices needed, and how far lying devices can move an estimate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from estimators.estimation.registry import estimator_of
from estimators.planning.poisoning import furthest_shift, influence
from estimators.simulation.tallies import trial_tally
from producers.planning.intervals import Expectation, known
from producers.survey.survey import Survey

MOST_DEVICES = 100_000
"""Devices of the trial fleet on which lying devices are tried. More: it takes longer and says the same."""


@dataclass(frozen=True)
class RungOutlook:
    """One rung, if all honest devices are on it; None where something is not known.

    Widths, scores and shifts are of the first kind of quantity, in its unit: shares, or numbers in the unit of a mean.

    half_width: of the survey's interval for a typical value. users_for_band: devices that bring it down to the band
    asked for. loudest_score: the most that one report on this rung counts, in honest devices. loudest_ahead: the same
    for a report on the highest rung. shift: how far the attackers, or fewer of them, move
    the estimate of some value in a trial fleet, on whichever of the two rungs they choose.
    attackers_for_half_width: how many move it out of its interval from the honest devices' own rung.
    """

    rung: int
    epsilon: float | None
    half_width: float | None
    users_for_band: int | None
    loudest_score: float | None
    loudest_ahead: float | None
    shift: float | None
    attackers_for_half_width: int | None


def outlook(expected: Expectation, *, users: int, attackers: int, band: float | None) -> list[RungOutlook]:
    """Return the outlook of every rung: widths at the expected shares, lying devices at even ones."""
    survey = expected.survey
    method = survey.method
    # A fleet of any size is moved by the same part of lying devices; the trial fleet only has to be large enough.
    scaled = attackers if users <= MOST_DEVICES else max(round(attackers * MOST_DEVICES / users), min(attackers, 1))
    rows = []
    for rung, epsilon in enumerate(survey.mechanism.epsilons):
        shares = estimator_of(survey.mechanism).estimate(trial_tally(survey.mechanism, rung), method=method).value
        beside = influence(survey.mechanism, rung, method=method)
        ahead = influence(survey.mechanism, rung, attackers_rung=survey.mechanism.rungs - 1, method=method)
        reach = np.abs([*beside.shift(shares, 1, 1), *ahead.shift(shares, 1, 1)])[:, survey.mechanism.leading]
        furthest = float(np.nanmax(reach)) if np.isfinite(reach).any() else math.nan
        shift = partial(
            furthest_shift, survey.mechanism, rung, users=min(users, MOST_DEVICES), attackers=scaled, method=method
        )
        half_width = expected.half_width(rung, users)
        rows.append(
            RungOutlook(
                rung=rung,
                epsilon=known(epsilon),
                half_width=half_width,
                users_for_band=None if band is None else expected.users_for(rung, band),
                loudest_score=known(beside.loudest),
                loudest_ahead=known(ahead.loudest),
                shift=known(max(shift(attackers_rung=other) for other in {rung, survey.mechanism.rungs - 1})),
                attackers_for_half_width=(
                    None if half_width is None or not furthest > 0 else math.ceil(half_width * users / furthest)
                ),
            )
        )
    return rows


def documentation(survey: Survey, *, users: int, attackers: int) -> str:
    """Return the outlook as Markdown, for docs/threats.md."""
    head = "| honest devices on | band | one lying device counts as | on the top rung "
    lines = [f"{head}| {attackers} lying devices move it by up to |", "|---|---|---|---|---|"]
    for row in outlook(Expectation(survey), users=users, attackers=attackers, band=None):
        cells = [f"rung {row.rung}, epsilon {cell(row.epsilon, '{:.3g}')}", cell(row.half_width, "±{:.1%}")]
        cells += [cell(row.loudest_score, "{:.1f}"), cell(row.loudest_ahead, "{:.1f}"), cell(row.shift, "{:.1%}")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def cell(number: float | None, form: str) -> str:
    """Format a number for a table; a dash where there is none."""
    return "-" if number is None else form.format(number)
