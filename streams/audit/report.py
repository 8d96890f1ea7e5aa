"""An audit as JSON, as sentences and as a chart."""

from __future__ import annotations

import math
from typing import Any

from estimators.auditing.examine import LevelRow
from estimators.reproduction.charts import Chart, Curve
from streams.audit.plan import PROCESSES
from streams.audit.run import Audit, Options
from streams.audit.selftest import SelfTest


def number(value: float) -> float | None:
    """Return a number for JSON; None where there is no finite one."""
    return value if math.isfinite(value) else None


def as_json(audit: Audit) -> dict[str, Any]:
    """Return everything that an audit found."""
    examination = audit.examination
    return {
        "survey": audit.survey.id,
        "mechanism": audit.survey.mechanism.name,
        "audited": True,
        "source": audit.source,
        "seed": audit.options.seed,
        "alpha": audit.options.alpha,
        "devices": audit.devices,
        "processes": PROCESSES,
        "chains": audit.chains,
        "reports": audit.reports,
        "crashes": audit.crashes,
        "levels": [
            {
                "levels": list(row.rungs),
                "declared": number(row.declared),
                "exact": row.exact,
                "charged": number(row.charged),
                "empirical_lower_bound": row.empirical.lower,
                "best_possible_success": row.best_success,
                "attack": attacked(audit, row),
            }
            for row in examination.rows
        ],
        "attacks": [
            {
                "attack": guess.attack,
                "guesses": guess.rows,
                "right": guess.right,
                "lower_bound": guess.lower,
                "best_possible": guess.best,
            }
            for guess in examination.guesses
        ],
        "checks": [
            {
                "family": family,
                "check": test.name,
                "comparisons": test.comparisons,
                "p_value": test.corrected,
                "passed": test.corrected * len(tests) > examination.share,
            }
            for family, tests in examination.tests.items()
            for test in tests
        ],
        "contradictions": audit.contradictions(),
    }


def not_audited(survey_id: str, mechanism: str, reason: str, options: Options) -> dict[str, Any]:
    """Return the JSON of a survey that promises nothing which single answers could contradict."""
    return {
        "survey": survey_id,
        "mechanism": mechanism,
        "audited": False,
        "reason": reason,
        "alpha": options.alpha,
        "contradictions": [],
    }


def self_test_json(found: SelfTest) -> dict[str, Any]:
    """Return the planted defects, and what was said against the real device."""
    return {
        "planted": [{"defect": planted.defect, "caught": planted.caught} for planted in found.planted],
        "control": {"contradictions": list(found.control)},
        "chains": found.chains,
        "left_out": [{"defect": one.defect, "reason": one.reason} for one in found.left_out],
        "caught_by": {planted.defect: list(planted.contradictions) for planted in found.planted},
    }


def attacked(audit: Audit, row: LevelRow) -> str:
    """Return the event behind an empirical bound in words."""
    event = row.empirical
    if event.trials == 0:
        return "no event"
    counts = f"{event.hits} of {event.trials} chains against {event.other_hits} of {event.other_trials}"
    if event.value is None:
        return f"answers that speak for the own value, and for another one: {counts}"
    other = "any other value" if event.other is None else f"{audit.law.names[event.other]!r}"
    return f"{audit.law.names[event.value]!r} against {other}: {counts}"


def closing_line(audit: Audit) -> str:
    """Return the result in one line."""
    return (
        f"chains {audit.chains}, reports {audit.reports}, crashes {audit.crashes}, "
        f"contradictions {len(audit.contradictions())}"
    )


def chart(audit: Audit) -> Chart:
    """Return declared, exact and empirical epsilon by level."""
    rows = [row for row in audit.examination.rows if len(row.rungs) == 1]
    prefixes = [rows[0], *(row for row in audit.examination.rows if len(row.rungs) > 1)]
    rungs = [row.rungs[-1] for row in rows]
    marks = [
        Curve("exact, from the integers", rungs, [row.exact for row in rows], colour=0),
        Curve("empirical lower bound, level alone", rungs, [row.empirical.lower for row in rows], "dashed", colour=1),
        Curve(
            "empirical lower bound, chain up to it",
            rungs,
            [row.empirical.lower for row in prefixes],
            "points",
            colour=2,
        ),
    ]
    if all(math.isfinite(row.declared) for row in rows):
        marks.insert(0, Curve("declared", rungs, [row.declared for row in rows], "published"))
    return Chart(f"{audit.survey.name}: {audit.chains:,} chains attacked", "level", "epsilon", marks)
