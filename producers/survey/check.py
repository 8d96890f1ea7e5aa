"""What a survey means, in sentences and numbers: releases, costs, widths, warnings. Server side only."""

from __future__ import annotations

import datetime
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np

from estimators.estimates import Population
from estimators.estimation.registry import estimator_of
from estimators.planning.odds import highest_suspicion
from estimators.simulation.tallies import TRIAL_DEVICES, tally_of, trial_chains
from producers.survey.alert_ranges import rule_problems
from producers.survey.durations import format_duration
from producers.survey.file import PERSON_LIFETIME_EPSILON
from producers.survey.survey import Survey

USERS = (1_000, 100_000, 10_000_000)
"""Numbers of users for which widths are given."""
DAY_MS = 86_400_000

TOP_SHARE = 0.8
"""Share of users on the top rung for which stratified and pooled bands are compared: some devices are always late."""

GAIN_RATIO = 0.05
"""A rung that narrows the band by less than this gets a warning."""

LIFETIME_DAYS = 30
"""How long a budget should last: what a warning about one that is used up within a day computes a remedy for."""

SUSPICION = 0.2
"""The suspicion for which `thaw survey check` translates epsilon into odds."""


@dataclass(frozen=True)
class RungPlan:
    """One rung: epsilon asked for and delivered, opening time, probability of a true answer, half-widths."""

    rung: int
    epsilon_asked: float
    epsilon: float
    opens_ms: int
    truth_probability: float | None
    half_widths: tuple[float, ...] | None
    """One per entry of USERS, if all of them are on this rung; None where it is not known."""


@dataclass(frozen=True)
class Explanation:
    """All that `thaw survey check` says."""

    survey: Survey
    rungs: tuple[RungPlan, ...]
    windows_per_value: float
    stratified_ratio: float | None
    """How many times as wide stratified bands are as pooled ones if TOP_SHARE of the users reach the top rung and the
    others are spread evenly over the lower ones; None where it is not known or there is one rung."""
    warnings: tuple[str, ...]

    @property
    def epsilon_per_window(self) -> float:
        """What all answers for one window cost together."""
        return self.rungs[-1].epsilon

    @property
    def epsilon_per_day(self) -> float:
        """What a device spends that answers in every window of a day."""
        return self.epsilon_per_window * DAY_MS / self.survey.windows.step_ms

    @property
    def lifetime_windows(self) -> int | None:
        """How many windows the lifetime budget pays for with all rungs; None if it is unlimited."""
        if math.isinf(self.epsilon_per_window) or math.isinf(self.survey.lifetime_epsilon):
            return None
        return math.floor(self.survey.lifetime_epsilon / self.epsilon_per_window)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The explanation as sentences."""
        survey, mechanism = self.survey, self.survey.mechanism
        size, step = survey.windows.size_ms, survey.windows.step_ms
        first = f"Each device answers once per window of {format_duration(size)}"
        if step < size:
            first += f", and a new window begins every {format_duration(step)}"
        releases = (
            f"Its first answer is released when the value is taken; {len(self.rungs) - 1} sharper "
            f"{'one replaces' if len(self.rungs) == 2 else 'ones replace'} it after the window's end, the last one "
            f"{format_duration(survey.opens_ms[-1])} later"
            if len(self.rungs) > 1
            else "Its only answer is released when the value is taken"
        )
        if survey.jitter_ms:
            releases += f". Every report is sent later by a random time of up to {format_duration(survey.jitter_ms)}"
        cost = (
            f"All answers of a window together cost epsilon {_number(self.epsilon_per_window)}, the cost of the last "
            f"one alone; a device that answers in every window spends {_number(self.epsilon_per_day)} a day"
        )
        return (
            f"{first}.",
            f"{releases}.",
            f"{cost}.",
            f"{self._lifetime()}.",
            *self._assumption(),
            f"Late answers count until {format_duration(survey.retention_ms)} after the window's end.",
            *self._end(),
            f"Guarantee: {mechanism.guarantee.sentence}{self._odds()}",
            f"Threat model: {mechanism.guarantee.threat_model}",
        )

    def _end(self) -> tuple[str, ...]:
        if self.survey.end_ms is None:
            return ()
        moment = datetime.datetime.fromtimestamp(self.survey.end_ms / 1_000, datetime.UTC)
        return (f"It ends at {moment:%Y-%m-%d %H:%M:%S} UTC: devices start no window at or after that moment.",)

    def _assumption(self) -> tuple[str, ...]:
        if len(self.rungs) == 1:
            return ()
        method = self.survey.method
        if self.survey.rungs == "any":
            assumed = f"Nothing is assumed about which device stops at which rung (rungs = any, method {method})"
            other = ' as with rungs = "independent"'
        else:
            assumed = (
                f"It is assumed that the rung of a device does not depend on its value (rungs = independent, method "
                f"{method}): a device whose person allows less than the top rung, or whose budget does not pay for it, "
                "does not answer, and a test watches the assumption"
            )
            other = " as pooled ones, which is what the assumption saves"
        if self.stratified_ratio is None:
            return (f"{assumed}.",)
        return (
            f"{assumed}. With {TOP_SHARE:.0%} of the users on the top rung and the others spread evenly over the lower "
            f"ones, stratified bands are {self.stratified_ratio:.1f} times as wide{other}.".replace("%", " %"),
        )

    def _odds(self) -> str:
        epsilon = self.epsilon_per_window
        if not self.survey.mechanism.guarantee.local or math.isinf(epsilon):
            return ""
        highest = math.ceil(1_000 * highest_suspicion(SUSPICION, epsilon)) / 1_000
        return (
            f" In odds: a suspicion of {SUSPICION:.0%} can rise to at most {highest:.1%} (epsilon {_number(epsilon)}) "
            "for protected values."
        ).replace("%", " %")

    def _lifetime(self) -> str:
        windows = self.lifetime_windows
        if windows is None:
            return (
                "The lifetime budget is unlimited: the cost of an answer has no finite bound; a device answers only if "
                "its person has set no finite bound either"
            )
        lasts = format_duration(windows * self.survey.windows.step_ms // 1_000 * 1_000)
        return (
            f"The lifetime budget of {_number(self.survey.lifetime_epsilon)}, shared with all other surveys of a "
            f"device, pays for {windows:,} whole windows, {lasts} if the device answers in every window; the "
            f"person's own bound, {_number(PERSON_LIFETIME_EPSILON)} unless they set another, holds as well"
        )


def explain(survey: Survey) -> Explanation:
    """Return what a survey releases, costs and shows. Deterministic; takes well under a second."""
    mechanism = survey.mechanism
    truths = mechanism.truth_probabilities
    widths = _half_widths(survey)
    rungs = tuple(
        RungPlan(
            rung, mechanism.ladder[rung], mechanism.epsilons[rung], survey.opens_ms[rung], truths[rung], widths[rung]
        )
        for rung in range(mechanism.rungs)
    )
    windows_per_value = survey.windows.size_ms / survey.windows.step_ms
    return Explanation(survey, rungs, windows_per_value, _stratified_ratio(widths), tuple(_warnings(survey, rungs)))


def _stratified_ratio(widths: list[tuple[float, ...] | None]) -> float | None:
    """Return how much wider stratified bands are than pooled ones, from the widths of single rungs.

    Of n users a part w_g is on rung g, where all n would have the variance v_g. Stratified: sum of w_g v_g. Pooled: the
    harmonic mean, 1 / (sum of w_g / v_g).
    """
    known = [width[0] for width in widths if width is not None and width[0] > 0]
    if len(known) < len(widths) or len(known) < 2:
        return None
    variances = np.square(known)
    parts = np.full(len(known), (1 - TOP_SHARE) / (len(known) - 1))
    parts[-1] = TOP_SHARE
    return math.sqrt(float(parts @ variances) * float(parts @ (1 / variances)))


def _warnings(survey: Survey, rungs: tuple[RungPlan, ...]) -> list[str]:
    mechanism, top = survey.mechanism, rungs[-1].epsilon
    found = []
    if not mechanism.guarantee.local:
        found.append(
            f"{mechanism.name} is not locally private. {mechanism.guarantee.sentence} The survey accepts this: "
            f"{survey.accept_risk!r}"
        )
    elif survey.accept_risk:
        found.append(f"{mechanism.name} needs no accept_risk; remove it")
    ratio = survey.windows.size_ms / survey.windows.step_ms
    if ratio > 1:
        found.append(
            f"windows overlap: every value enters {math.ceil(ratio)} of them, each with a chain of its own, and the "
            f"costs add up to epsilon {_number(math.ceil(ratio) * top)}; use step = size unless overlap is needed"
        )
    found += mechanism.warnings()
    for below, above in pairwise(rungs):
        if below.half_widths and above.half_widths and above.half_widths[0] > (1 - GAIN_RATIO) * below.half_widths[0]:
            found.append(
                f"rung {above.rung} (epsilon {above.epsilon_asked:g}) narrows the band by less than {GAIN_RATIO:.0%}; "
                "remove it or raise its level"
            )
    found += [
        f"rung {rung.rung} was asked to have epsilon {rung.epsilon_asked:g} and delivers {rung.epsilon:.6g}"
        for rung in rungs
        if rung.epsilon < 0.99 * rung.epsilon_asked
    ]
    if survey.lifetime_epsilon < top:
        closed = [str(rung.rung) for rung in rungs if rung.epsilon > survey.lifetime_epsilon]
        found.append(
            f"the lifetime budget of {survey.lifetime_epsilon:g} never pays for rung {', '.join(closed)}; raise it, or "
            "end the ladder earlier"
        )
    else:
        found += _lifetime_warnings(survey, top)
    if mechanism.ladder[-1] > 8 and mechanism.guarantee.local:
        found.append(
            f"at epsilon {mechanism.ladder[-1]:g} an answer is almost always the true value; this offers little privacy"
        )
    if survey.jitter_ms == 0:
        found.append(
            "without jitter the moment of sending links the windows (and copies) of one device; remove release.jitter: "
            "the default is half a window's step"
        )
    found += rule_problems(survey)
    if survey.shards < 8:
        found.append(f"{survey.shards} shards cannot keep 8 partitions busy; 64 is a good number")
    return found


def _lifetime_warnings(survey: Survey, top: float) -> list[str]:
    """Judge what a device spends over its life: a bound that bounds nothing, and one that is used up at once.

    Simulated devices have no life: a canary is not judged.
    """
    lifetime, step_ms = survey.lifetime_epsilon, survey.windows.step_ms
    if math.isinf(lifetime) or survey.canary is not None:
        return []
    found = []
    per_day = top * DAY_MS / step_ms
    if lifetime > PERSON_LIFETIME_EPSILON:
        found.append(
            f"budget.lifetime = {_number(lifetime)} protects nobody: a device that answers in every window spends "
            f"{_number(per_day)} a day, and stops at {_number(PERSON_LIFETIME_EPSILON)} only where its person has set "
            f"no higher bound; write at most {_number(PERSON_LIFETIME_EPSILON)}, and for real devices longer windows "
            "or lower levels"
        )
    budget = min(lifetime, PERSON_LIFETIME_EPSILON)
    lasts_ms = math.floor(budget / top) * step_ms
    if lasts_ms < DAY_MS:
        wanted_ms = math.ceil(top * LIFETIME_DAYS * DAY_MS / budget / 60_000) * 60_000
        found.append(
            f"a device that answers in every window spends {_number(per_day)} a day and has used up its budget of "
            f"{_number(budget)} after {format_duration(lasts_ms)}; then it answers no more. With window.size = "
            f'"{format_duration(wanted_ms)}" it lasts {LIFETIME_DAYS} days; or use lower levels'
        )
    return found


def _half_widths(survey: Survey) -> list[tuple[float, ...] | None]:
    """Return half of the typical interval, per rung and number of users, from a simulated fleet with even shares."""
    mechanism, estimator = survey.mechanism, estimator_of(survey.mechanism)
    drawn = trial_chains(mechanism)
    widths: list[tuple[float, ...] | None] = []
    for rung in range(mechanism.rungs):
        estimates = estimator.estimate(
            tally_of(mechanism, drawn, np.full(len(drawn.groups), rung)),
            method=survey.method,
            population=cast(Population, survey.population),
            alpha=survey.alpha,
        )
        half = (estimates.upper - estimates.lower) / 2
        known = half[np.isfinite(half)]
        typical = float(np.median(known)) if len(known) else None
        widths.append(None if typical is None else tuple(typical * math.sqrt(TRIAL_DEVICES / users) for users in USERS))
    return widths


def _number(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "without bound"
    return f"{epsilon:.6g}" if epsilon < 1e5 else f"{epsilon:,.0f}"
