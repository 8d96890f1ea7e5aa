"""Which thresholds of alert rules are possible: the range of each estimated quantity. Server side only."""

from __future__ import annotations

from functools import lru_cache

from estimators.tally import Tally
from producers.survey.survey import Survey


@lru_cache(maxsize=256)
def value_ranges(survey: Survey) -> tuple[tuple[float, float], ...] | None:
    """Return the smallest and largest possible estimand of each label: (0, 1) for shares; None without such bounds.

    What is known before anybody has answered is exactly the range.
    """
    mechanism = survey.mechanism
    known = mechanism.always_valid(Tally.empty(mechanism.rungs, mechanism.groups, mechanism.answer.cells))
    return None if known is None else tuple(zip(known[0].tolist(), known[1].tolist(), strict=True))


def rule_problems(survey: Survey) -> list[str]:
    """Return why alert rules of a survey can never fire, one sentence each."""
    if not survey.alerts:
        return []
    ranges = value_ranges(survey)
    if ranges is None:
        return [f"{survey.mechanism.name} has no always-valid bounds; remove its alerts"]
    problems = []
    for i, rule in enumerate(survey.alerts):
        low, high = ranges[survey.mechanism.labels.index(rule.value)]
        if not low < rule.threshold < high:
            problems.append(
                f"alert[{i}].{rule.side}: {rule.value} is always between {low:g} and {high:g}, so a threshold lies "
                f"strictly between them; got {rule.threshold:g}"
            )
    return problems
