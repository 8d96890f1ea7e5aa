"""The planner run backwards: the cheapest ladder whose alert notices a change in time.

A chain costs what its highest level costs, so the cheapest ladder is the one with the lowest top. For every number of
rungs the lowest top is searched: levels double from rung to rung, and the rungs open evenly, the last one early enough
for its reports to arrive by the deadline. Lower rungs cost nothing, but looks at them use up alpha.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from producers.planning.draft import Draft, DraftAlert
from producers.planning.intervals import default_stops
from producers.planning.noticing import chance_by, first_noticed, watch_of
from producers.planning.year import year_of
from producers.survey.file import MAX_LEVEL, RungAssumption

MOST_RUNGS = 3
_LEAST_LEVEL = 0.01
_PRECISE = 0.005
"""The lowest top is found to half a percent."""


@dataclass(frozen=True)
class Goal:
    """Notice a change of one value by `notice` beyond `threshold`, within so long after the window's end.

    alpha: probability of a false alarm per window, over all looks. power: probability that a change is noticed in
    time. stop_early: whether some people stop at lower rungs, as `thaw survey check` assumes.
    """

    value: str
    side: Literal["above", "below"]
    threshold: float
    notice: float
    within_ms: int
    alpha: float
    power: float
    users: int
    window_ms: int
    assume: RungAssumption
    stop_early: bool = False


@dataclass(frozen=True)
class LadderPlan:
    """A ladder that reaches the goal: its cost per window and year, and how surely and when it notices the change."""

    mechanism: str
    parameters: Mapping[str, Any]
    ladder: tuple[float, ...]
    opens_ms: tuple[int, ...]
    jitter_ms: int
    epsilon: float
    epsilon_per_year: float
    chance: float
    notices_after_ms: int | None
    draft: Draft


def cheapest_ladders(
    goal: Goal, values: Sequence[str], mechanisms: Sequence[tuple[str, Mapping[str, Any]]]
) -> list[LadderPlan]:
    """Return the cheapest ladder of one, two and three rungs, cheapest first; nothing if no level is enough.

    Every mechanism is tried with one rung; longer ladders use the one that was cheapest.
    """
    single = [plan for name, given in mechanisms if (plan := _lowest_top(goal, values, name, given, 1)) is not None]
    if not single:
        return []
    best = min(single, key=lambda plan: plan.epsilon)
    longer = [
        _lowest_top(goal, values, best.mechanism, best.parameters, rungs)
        for rungs in range(2, MOST_RUNGS + 1)
        if len(set(_opens_ms(goal, rungs))) == rungs
    ]
    others = [plan for plan in single if plan is not best]
    return sorted([best, *others, *(plan for plan in longer if plan is not None)], key=lambda plan: plan.epsilon)


def ladder_draft(
    goal: Goal, values: Sequence[str], mechanism: str, parameters: Mapping[str, Any], rungs: int, top: float
) -> Draft:
    """Return a survey with so many rungs up to this level, the last one complete at the deadline."""
    return Draft(
        values=tuple(values),
        mechanism=mechanism,
        ladder=tuple(float(f"{top / 2 ** (rungs - 1 - rung):.4g}") for rung in range(rungs)),
        opens_ms=_opens_ms(goal, rungs),
        window_ms=goal.window_ms,
        jitter_ms=_jitter_ms(goal, rungs),
        assume=goal.assume,
        parameters=parameters,
        alert=DraftAlert(goal.value, goal.side, goal.threshold, goal.alpha),
    )


def _jitter_ms(goal: Goal, rungs: int) -> int:
    return min(goal.window_ms // 2, goal.within_ms // (2 * rungs))


def _opens_ms(goal: Goal, rungs: int) -> tuple[int, ...]:
    """Return when the rungs open, in whole seconds; a deadline of a few seconds leaves no room for several."""
    last_ms = goal.within_ms - _jitter_ms(goal, rungs)
    return tuple(last_ms * rung // (rungs - 1) // 1_000 * 1_000 for rung in range(rungs)) if rungs > 1 else ()


def chance_of(goal: Goal, draft: Draft) -> float:
    """Return the chance that a drafted survey notices the change in time."""
    survey = draft.survey()
    watch = watch_of(survey, survey.alerts[0], goal.notice)
    return chance_by(survey, watch, goal.users, stops_of(goal, len(draft.ladder)), goal.within_ms)


def stops_of(goal: Goal, rungs: int) -> tuple[float, ...]:
    """Return which parts of the users stop at each rung."""
    return default_stops(rungs) if goal.stop_early else (*[0.0] * (rungs - 1), 1.0)


def _lowest_top(
    goal: Goal, values: Sequence[str], mechanism: str, parameters: Mapping[str, Any], rungs: int
) -> LadderPlan | None:
    def drafted(top: float) -> Draft:
        return ladder_draft(goal, values, mechanism, parameters, rungs, top)

    low, high = _LEAST_LEVEL * 2**rungs, MAX_LEVEL
    if chance_of(goal, drafted(high)) < goal.power:
        return None
    while high > low * (1 + _PRECISE):
        middle = (low * high) ** 0.5
        low, high = (low, middle) if chance_of(goal, drafted(middle)) >= goal.power else (middle, high)
    draft = drafted(high)
    survey, stops = draft.survey(), stops_of(goal, rungs)
    watch = watch_of(survey, survey.alerts[0], goal.notice)
    year = year_of(survey, stops=stops, changes=0)
    return LadderPlan(
        mechanism=mechanism,
        parameters=parameters,
        ladder=draft.ladder,
        opens_ms=survey.opens_ms,
        jitter_ms=survey.jitter_ms,
        epsilon=survey.mechanism.epsilons[-1],
        epsilon_per_year=year.fresh or 0.0,
        chance=chance_by(survey, watch, goal.users, stops, goal.within_ms),
        notices_after_ms=first_noticed(survey, watch, goal.users, stops, goal.power),
        draft=draft,
    )
