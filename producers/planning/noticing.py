"""When an alert notices that a value has changed: a window's life, look by look, at expected numbers of users.

Assumed: people take their values evenly over the window, and the time at which they do and the rung at which they stop
do not depend on the value. Every report is sent after a jitter of its own, and an estimate follows each look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import cast

import numpy as np

from estimators.estimates import Floats, Population
from estimators.estimation.registry import estimator_of
from estimators.intervals.always_valid import Side
from estimators.intervals.checkpoints import Checkpoint, due
from estimators.planning.detection import Evidence, Watch
from estimators.planning.errors import standard_errors
from estimators.planning.fleets import fewest
from estimators.tally import Tally
from producers.survey.alert_ranges import bound_parts, value_ranges
from producers.survey.alerts import AlertRule
from producers.survey.survey import Survey

LOOKS = 100
"""Looks in each phase of a window's life: while values come in, and while a rung opens. More cost more time."""
_TICK_MS = 1_000
"""Estimates are computed once a second at most."""
_EVEN = 0.5


@dataclass(frozen=True)
class Look:
    """A moment after the window's end (before it: negative), and the expected users on each rung."""

    after_ms: int
    users: Floats


@dataclass(frozen=True)
class StageChance:
    """A rung that has arrived from everybody who goes so far, and the chance that the alert is raised by then."""

    rung: int
    after_ms: int
    chance: float


@dataclass(frozen=True)
class AlertOutlook:
    """One rule, if the true quantity is `notice` beyond its threshold.

    alpha: of the rule, over all looks at a window. bound: the construction that the rule reads. notices_after_ms: the
    first look after which the alert is raised with the wanted probability, counted from the window's end; None: never.
    users_needed: how many users a window must have for that; None if no number is enough.
    """

    value: str
    side: Side
    threshold: float
    notice: float
    alpha: float
    bound: str
    users: int
    power: float
    stages: tuple[StageChance, ...]
    notices_after_ms: int | None
    users_needed: int | None


def looks_at(survey: Survey, users: int, stops: Sequence[float]) -> list[Look]:
    """Return the looks at a window with so many users, oldest first; these parts of them stop at each rung."""
    size_ms, jitter_ms = survey.windows.size_ms, survey.jitter_ms
    phases = [(-size_ms, jitter_ms), *((opens_ms, opens_ms + jitter_ms) for opens_ms in survey.opens_ms[1:])]
    moments: set[int] = set()
    for begin_ms, end_ms in phases:
        number = min(max((end_ms - begin_ms) // _TICK_MS, 1), LOOKS)
        times = np.linspace(begin_ms, end_ms, number + 1)
        moments |= {int(moment) for moment in times[1 if begin_ms < end_ms else 0 :]}
    # Checkpoints follow the growth of the numbers, so the first arrivals are looked at more often.
    moments |= {int(moment) - size_ms for moment in np.geomspace(_TICK_MS, size_ms + _TICK_MS, LOOKS)}
    # Rounded, since a sum of parts that is less than one by a rounding error would be a user less.
    return [Look(moment, np.round(users * parts_on_rungs(survey, moment, stops), 6)) for moment in sorted(moments)]


def parts_on_rungs(survey: Survey, after_ms: int, stops: Sequence[float]) -> Floats:
    """Return the parts of all users whose highest report so far is on each rung."""
    sent = [_first_sent(survey, after_ms)]
    for opens_ms in survey.opens_ms[1:]:
        late_ms = after_ms - opens_ms
        sent.append(min(max(late_ms / survey.jitter_ms, 0.0), 1.0) if survey.jitter_ms else float(late_ms >= 0))
    found = np.zeros(len(sent))
    for last, part in enumerate(stops):
        above = part
        for rung in range(last, -1, -1):
            found[rung] += above * sent[rung]
            above *= 1 - sent[rung]
    return found


def _first_sent(survey: Survey, after_ms: int) -> float:
    """Return the part of first reports that is sent: taken evenly over the window, and delayed by the jitter."""
    size, jitter = float(survey.windows.size_ms), float(survey.jitter_ms)
    if jitter == 0:
        return min(max((after_ms + size) / size, 0.0), 1.0)

    def area(moment: float) -> float:
        return max(moment, 0.0) ** 2 / 2

    begun, over = area(after_ms + size) - area(after_ms), area(after_ms + size - jitter) - area(after_ms - jitter)
    return min(max((begun - over) / (size * jitter), 0.0), 1.0)


def watch_of(survey: Survey, rule: AlertRule, notice: float) -> Watch:
    """Return a rule of a survey as the planner sees it: shares of one yes/no question, and the bound that is read.

    Raises:
        ValueError: the mechanism has no always-valid bounds, or the threshold or the change is out of range.
    """
    ranges = value_ranges(survey)
    mechanism = survey.mechanism
    if ranges is None:
        raise ValueError(
            f"notice: {mechanism.name} has no always-valid bounds, so no alert can watch it; choose another"
        )
    place = mechanism.labels.index(rule.value)
    low, high = ranges[place]
    threshold = (rule.threshold - low) / (high - low)
    share = threshold + (notice if rule.side == "above" else -notice) / (high - low)
    if not 0 < threshold < 1:
        raise ValueError(f"threshold: must lie strictly between {low:g} and {high:g}; got {rule.threshold:g}")
    if not (notice > 0 and 0 <= share <= 1):
        raise ValueError(
            f"notice: {rule.value} {rule.side} {rule.threshold:g} by {notice:g} is impossible: it lies between {low:g} "
            f"and {high:g}; choose a smaller change above 0"
        )
    asked = estimator_of(mechanism).yes_no(Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells))
    assert asked is not None, "a mechanism with always-valid bounds asks yes/no questions"
    parts = bound_parts(survey)
    return Watch(
        asked.truth[:, place],
        asked.lie[:, place],
        threshold,
        share,
        rule.side,
        rule.alpha * (parts.e_process or parts.checkpoints),
        estimator_of(mechanism).answer_law(cast(Population, survey.population)),
    )


def _evidence(survey: Survey, watch: Watch, looks: Sequence[Look]) -> Iterator[tuple[Look, Evidence]]:
    """Yield the looks at which the rule reads a new bound, each with the evidence of that bound."""
    if bound_parts(survey).e_process:
        for look in looks:
            if look.users.sum() >= 1:
                yield look, watch.e_process
        return
    state = Checkpoint.beginning(1)
    for look in looks:
        now = due(state, watch.expected(look.users), threshold=watch.threshold)
        if now is not None:
            state = Checkpoint(state.number + 1, *now, state.lower, state.upper)
            yield look, watch.checkpoint(state.number)


def chance_by(survey: Survey, watch: Watch, users: int, stops: Sequence[float], after_ms: int) -> float:
    """Return the chance that the alert is raised by then, from the last bound that was read before."""
    read = None
    for look, evidence in _evidence(survey, watch, looks_at(survey, users, stops)):
        if look.after_ms > after_ms:
            break
        read = look, evidence
    return 0.0 if read is None else watch.chance(read[0].users, read[1])


def first_noticed(survey: Survey, watch: Watch, users: int, stops: Sequence[float], power: float) -> int | None:
    """Return the first look, counted from the window's end, by which the alert is raised with probability `power`."""
    for look, evidence in _evidence(survey, watch, looks_at(survey, users, stops)):
        # Where the expected counts do not raise it the chance is below one half: most looks cost one evaluation.
        likely = power < _EVEN or evidence(watch.expected(look.users)) >= 0
        if likely and watch.chance(look.users, evidence) >= power:
            return look.after_ms
    return None


def chances(survey: Survey, watch: Watch, users: int, stops: Sequence[float]) -> list[tuple[int, float]]:
    """Return the looks at which a bound is read, counted from the window's end, and the chance of an alarm by then."""
    read = _evidence(survey, watch, looks_at(survey, users, stops))
    found = [(look.after_ms, watch.chance(look.users, evidence)) for look, evidence in read]
    return list(zip((after_ms for after_ms, _ in found), accumulate((chance for _, chance in found), max), strict=True))


def alert_outlook(
    survey: Survey, rule: AlertRule, *, notice: float, users: int, stops: Sequence[float], power: float
) -> AlertOutlook:
    """Return when a rule notices a change, with which probability at each rung, and how many users that takes."""
    watch = watch_of(survey, rule, notice)
    stages = [
        (rung, opens_ms + survey.jitter_ms) for rung, opens_ms in enumerate(survey.opens_ms) if sum(stops[rung:]) > 0
    ]
    last_ms = stages[-1][1]
    # What was raised earlier stays noticed.
    chances = accumulate((chance_by(survey, watch, users, stops, after_ms) for _, after_ms in stages), max)
    return AlertOutlook(
        value=rule.value,
        side=rule.side,
        threshold=rule.threshold,
        notice=notice,
        alpha=rule.alpha,
        bound="e-process" if bound_parts(survey).e_process else "checkpoints",
        users=users,
        power=power,
        stages=tuple(
            StageChance(rung, after_ms, chance) for (rung, after_ms), chance in zip(stages, chances, strict=True)
        ),
        notices_after_ms=first_noticed(survey, watch, users, stops, power),
        users_needed=fewest(lambda number: chance_by(survey, watch, number, stops, last_ms) >= power, near=users),
    )


def noisiest(survey: Survey, assumed: Floats) -> str:
    """Return the value whose estimate is noisiest on the top rung: the one that is hardest to watch."""
    mechanism = survey.mechanism
    if value_ranges(survey) is None:
        return mechanism.labels[0]
    errors = standard_errors(mechanism, assumed, 1, population=cast(Population, survey.population))
    return mechanism.labels[int(np.argmax(np.round(errors, 6)))]
