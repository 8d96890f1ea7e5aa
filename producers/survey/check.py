"""What a survey means, in sentences and numbers: releases, costs, widths, warnings. Server side only."""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import numpy as np

from estimators.estimates import Population
from estimators.estimation.registry import estimator_of
from estimators.mechanism import Attacker
from estimators.planning.fleets import TrialFleet
from estimators.planning.odds import highest_percent
from producers.survey.alert_ranges import rule_problems
from producers.survey.durations import format_duration
from producers.survey.file import PERSON_LIFETIME_EPSILON
from producers.survey.lasting import cost_sentence, lasting_sentences, lasting_warnings, lifetime_sentence
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
    truths: Mapping[str, float]
    """By kind of value the probability that the answer is the true value; empty where an answer is no single value."""
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
    attackers: tuple[Attacker, ...] = ()
    """What each kind of attacker can learn, where the guarantee is not one number for all of them."""

    @property
    def epsilon_per_window(self) -> float:
        """What all answers for one window cost together."""
        return self.rungs[-1].epsilon

    @property
    def epsilon_per_day(self) -> float:
        """What a device spends that answers in every window of a day, as far as its budget unlocks."""
        return min(_asked_per_day(self.survey, self.epsilon_per_window), _unlocked_per_day(self.survey))

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
        rule = (
            f"when the person or their application says so, from {format_duration(survey.opens_ms[-1])} after the "
            "window's end on"
            if survey.on_demand
            else f"after the window's end, the last one {format_duration(survey.opens_ms[-1])} later"
        )
        releases = (
            f"Its first answer is released when the value is taken; {len(self.rungs) - 1} sharper "
            f"{'one replaces' if len(self.rungs) == 2 else 'ones replace'} it {rule}"
            if len(self.rungs) > 1
            else "Its only answer is released when the value is taken"
        )
        if survey.jitter_ms:
            releases += f". Every report is sent later by a random time of up to {format_duration(survey.jitter_ms)}"
        cost = cost_sentence(survey, _number(self.epsilon_per_window), _number(self.epsilon_per_day))
        return (
            *(made.sentence() for made in (survey.grid, survey.attributes) if made is not None),
            f"{first}.",
            f"{releases}.",
            f"{cost}.",
            *lasting_sentences(survey),
            f"{self._lifetime()}.",
            *self._sharing(),
            *self._assumption(),
            *self._publication(),
            *self._choices(),
            f"Late answers count until {format_duration(survey.retention_ms)} after the window's end.",
            *self._end(),
            *self._registry(),
            f"Guarantee: {mechanism.guarantee.sentence}{self._odds()}",
            f"Threat model: {mechanism.guarantee.threat_model}",
        )

    def _publication(self) -> tuple[str, ...]:
        publication, found = self.survey.publication, []
        if publication.least_devices:
            found.append(
                f"Nothing of a window is published before answers of {publication.least_devices:,} devices are counted."
            )
        if publication.totals_only:
            found.append(
                "Only totals are published: one estimate of each window, once it is settled; answers that come later "
                "are counted and change no published number."
            )
        return tuple(found)

    def _choices(self) -> tuple[str, ...]:
        return tuple(f"Chosen by default: {choice.rstrip('.')}." for choice in self.survey.mechanism.choices())

    def _sharing(self) -> tuple[str, ...]:
        survey, found = self.survey, []
        if survey.unlock is not None:
            found.append(
                f"It unlocks over time, {survey.unlock}: that much when a device is first asked, and again with every "
                "further period; what cannot be paid yet is released later."
            )
        if survey.reserve_epsilon:
            found.append(
                f"{_number(survey.reserve_epsilon)} is reserved on each device, whatever other surveys have spent; a "
                "device may then spend more than the lifetime budget on all surveys together."
            )
        return tuple(found)

    def _end(self) -> tuple[str, ...]:
        if self.survey.end_ms is None:
            return ()
        moment = datetime.datetime.fromtimestamp(self.survey.end_ms / 1_000, datetime.UTC)
        return (f"It ends at {moment:%Y-%m-%d %H:%M:%S} UTC: devices start no window at or after that moment.",)

    def _registry(self) -> tuple[str, ...]:
        registry, found = self.survey.registry, []
        if registry.owner:
            found.append(f"Owner: {registry.owner}.")
        if registry.purpose:
            found.append(f"Purpose: {registry.purpose.rstrip('.')}.")
        if registry.review:
            found.append(f"Review: {registry.review}")
        if registry.expires_ms is not None:
            moment = datetime.datetime.fromtimestamp(registry.expires_ms / 1_000, datetime.UTC)
            found.append(
                f"It expires at {moment:%Y-%m-%d %H:%M:%S} UTC: from then on devices answer and send nothing more, and "
                "workers count nothing that arrives."
            )
        return tuple(found)

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
        if self.survey.mechanism.guarantee.protects == "nothing" or math.isinf(epsilon):
            return ""
        highest = highest_percent(SUSPICION, epsilon)
        return (
            f" In odds: a suspicion of {100 * SUSPICION:.0f} % can rise to at most {highest} (epsilon "
            f"{_number(epsilon)}) for protected values."
        )

    def _lifetime(self) -> str:
        windows = self.lifetime_windows
        if windows is None:
            return (
                "The lifetime budget is unlimited: the cost of an answer has no finite bound; a device answers only if "
                "its person has set no finite bound either"
            )
        lasts = format_duration(windows * self.survey.windows.step_ms // 1_000 * 1_000)
        numbers = _number(self.survey.lifetime_epsilon), windows, lasts, _number(PERSON_LIFETIME_EPSILON)
        return lifetime_sentence(self.survey, *numbers)


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
    return Explanation(
        survey,
        rungs,
        windows_per_value,
        _stratified_ratio(widths),
        tuple(_warnings(survey, rungs)),
        estimator_of(mechanism).attackers(),
    )


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
    guarantee = mechanism.guarantee
    if guarantee.is_risk:
        what = "is not locally private" if guarantee.protects == "nothing" else "protects sensitive values only"
        found.append(f"{mechanism.name} {what}. {guarantee.sentence} The survey accepts this: {survey.accept_risk!r}")
    elif survey.accept_risk:
        found.append(f"{mechanism.name} needs no accept_risk; remove it")
    ratio = survey.windows.size_ms / survey.windows.step_ms
    if ratio > 1 and not survey.standing:
        found.append(
            f"windows overlap: every value enters {math.ceil(ratio)} of them, each with a chain of its own, and the "
            f"costs add up to epsilon {_number(math.ceil(ratio) * top)}; use step = size unless overlap is needed"
        )
    found += (*mechanism.warnings(), *lasting_warnings(survey))
    if mechanism.least_devices and not survey.publication.totals_only:
        found.append(
            "estimates are published at every change, and two of them may differ in one device: anyone who keeps all "
            "of them sees totals of crowds far smaller than planned; write totals_only = true in [publish]"
        )
    for below, above in pairwise(rungs):
        # With few users, a mean that only the sharper rung can estimate would count against that rung.
        if below.half_widths and above.half_widths and above.half_widths[-1] > (1 - GAIN_RATIO) * below.half_widths[-1]:
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
    if mechanism.ladder[-1] > 8 and guarantee.protects != "nothing":
        found.append(
            f"at epsilon {mechanism.ladder[-1]:g} an answer is almost always the true value; this offers little privacy"
        )
    found += _release_warnings(survey, top)
    if survey.jitter_ms == 0:
        found.append(
            "without jitter the moment of sending links the windows (and copies) of one device; remove release.jitter: "
            "the default is half a window's step"
        )
    found += rule_problems(survey)
    if survey.shards < 8:
        found.append(f"{survey.shards} shards cannot keep 8 partitions busy; 64 is a good number")
    return found


def _release_warnings(survey: Survey, top: float) -> list[str]:
    """Judge rules of release other than the clock."""
    found = []
    if _unlocked_per_day(survey) < _asked_per_day(survey, top):
        found.append(
            f"all answers of all windows cost {_number(_asked_per_day(survey, top))} a day, and "
            f"{_number(_unlocked_per_day(survey))} unlocks: rungs come late, and windows stay unanswered; unlock more, "
            "or use longer windows or lower levels"
        )
    if survey.on_demand:
        found.append(
            "people decide how far they go: that they went further may itself tell something about their value, which "
            "no epsilon covers, and a person who decides by a released answer biases the estimates; let the decision "
            "depend on neither"
        )
    return found


def _asked_per_day(survey: Survey, per_window: float) -> float:
    return per_window * DAY_MS / survey.windows.step_ms


def _unlocked_per_day(survey: Survey) -> float:
    return math.inf if survey.unlock is None else survey.unlock.epsilon * DAY_MS / survey.unlock.period_ms


def _lifetime_warnings(survey: Survey, top: float) -> list[str]:
    """Judge what a device spends over its life: a bound that bounds nothing, and one that is used up at once.

    Simulated devices have no life: a canary is not judged.
    """
    lifetime, step_ms = survey.lifetime_epsilon, survey.windows.step_ms
    if math.isinf(lifetime) or survey.canary is not None or survey.standing:
        return []
    found = []
    per_day = _asked_per_day(survey, top)
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
    """Return half of the typical interval, per rung and number of users, from a trial fleet with even shares."""
    fleet, rungs = TrialFleet.of(survey.mechanism), survey.mechanism.rungs
    population = cast(Population, survey.population)
    widths: list[tuple[float, ...] | None] = []
    for on_one in np.eye(rungs):
        found = [
            fleet.planned(users, on_one, method=survey.method, population=population, alpha=survey.alpha).typical
            for users in USERS
        ]
        widths.append(tuple(found) if all(map(math.isfinite, found)) else None)
    return widths


def _number(epsilon: float) -> str:
    if math.isinf(epsilon):
        return "without bound"
    return f"{epsilon:.6g}" if epsilon < 1e5 else f"{epsilon:,.0f}"
