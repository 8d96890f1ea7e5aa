"""Which thresholds of alert rules are possible, and which bounds a rule reads. Server side only."""

from __future__ import annotations

from typing import NamedTuple

from producers.survey.survey import Survey


def value_ranges(survey: Survey) -> tuple[tuple[float, float], ...] | None:
    """Return the range of each label's quantity: (0, 1) for shares; None without always-valid bounds."""
    quantities = survey.mechanism.quantities
    if not all(quantity.always_valid for quantity in quantities):
        return None
    return tuple((quantity.low, quantity.high) for quantity in quantities)


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


class BoundParts(NamedTuple):
    """The part of a rule's alpha that each construction of an always-valid bound gets; 0: it is not computed."""

    e_process: float
    checkpoints: float


def bound_parts(survey: Survey) -> BoundParts:
    """Return which always-valid bounds the rules of a survey read (docs/always-valid.md, section 3)."""
    if survey.method == "stratified":
        return BoundParts(0.0, 1.0)
    return BoundParts(1.0, 0.0) if survey.mechanism.rungs == 1 else BoundParts(0.5, 0.5)
