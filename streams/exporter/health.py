"""Judgements on surveys and rates: the one place that says what stale and out of calibration mean.

Pure functions of what the store and the workers report. The page shows their results; the collector exports the same
numbers and limits as metrics, which the alert rules compare with each other.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from producers.survey.alerts import AlertRule
from producers.survey.survey import Survey
from streams.exporter.api import CanaryScore, EpsilonAudit, RungEpsilon
from streams.windows.epsilon_audit import EpsilonAudit as StoredAudit
from streams.windows.record import AlertBound, EstimateRecord

RATE_MS: Final = 2_000
"""Time between two looks at the counters."""
RATE_SPAN: Final = 5
"""Looks over which a rate is taken."""
RATES_KEPT: Final = 150
STALE_LEAST_MS: Final = 15_000
"""Estimates younger than this are never stale: a rebalance takes that long."""
LAG_LEAST_MS: Final = 15_000
LAG_MOST_MS: Final = 600_000
"""Less than the first: every rebalance is an alarm. More than the second: windows of days would hide hours of lag."""
CANARY_WINDOWS: Final = 5
"""Settled windows that the canary's score covers; fewer hide a small but steady error."""


CONTRADICTED_WINDOWS: Final = 3
"""Closed windows, of the last five, in which the rungs must contradict the survey's assumption to alert."""
CONTRADICTED_P: Final = 1e-6
"""One window is enough below this p-value. A test compares both numbers with those of the rule file."""


class Rates:
    """Reports per second, from looks at counters that only grow."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int, int]] = deque(maxlen=RATES_KEPT + RATE_SPAN)

    def look(self, now_ms: int, applied: int, rejected: int) -> None:
        """Record the counters, at most once in RATE_MS. Counters that shrank belong to another Redis: start over."""
        if self._looks:
            then_ms, *counted = self._looks[-1]
            if now_ms < then_ms or applied < counted[0] or rejected < counted[1]:
                self._looks.clear()
            elif now_ms - then_ms < RATE_MS:
                return
        self._looks.append((now_ms, applied, rejected))

    @property
    def applied(self) -> float | None:
        """Reports per second that changed a count; None before the second look."""
        return self._rate(len(self._looks) - 1, 1)

    @property
    def rejected(self) -> float | None:
        """Reports per second that were rejected."""
        return self._rate(len(self._looks) - 1, 2)

    def history(self) -> list[float]:
        """Return the rate at each look, oldest first."""
        rates = (self._rate(i, 1) for i in range(1, len(self._looks)))
        return [round(rate, 1) for rate in rates if rate is not None][-RATES_KEPT:]

    def _rate(self, position: int, column: int) -> float | None:
        if position < 1:
            return None
        now, then = self._looks[position], self._looks[max(0, position - RATE_SPAN)]
        return (now[column] - then[column]) * 1_000 / (now[0] - then[0])


def canary_scores(survey: Survey, record: EstimateRecord) -> list[tuple[float, str]]:
    """Return how far each value of a canary is from the share in its survey file, in standard errors.

    The fleet draws its values from those shares, so that its own histogram strays too: p (1 - p) / n is added unless
    the variance already contains it.
    """
    if survey.canary is None or len(survey.canary.shares) != len(record.values):
        return []
    scores = []
    for share, row in zip(survey.canary.shares, record.values, strict=True):
        if row.estimate is None or row.variance is None or not record.users:
            continue
        drawn = share * (1 - share) / record.users if record.population == "fleet" else 0.0
        if row.variance + drawn > 0:
            scores.append(((row.estimate - share) / math.sqrt(row.variance + drawn), row.value))
    return scores


def canary_score(survey: Survey, records: Sequence[EstimateRecord]) -> CanaryScore | None:
    """Return the score, over these windows together (newest last), of the value that is farthest from its truth.

    Scores of independent windows are added and divided by the square root of their number. A canary is out of
    calibration when the size of this score exceeds the survey's limit.
    """
    scores: dict[str, list[float]] = {}
    for record in records:
        for z, value in canary_scores(survey, record):
            scores.setdefault(value, []).append(z)
    if not scores:
        return None
    joint = {value: sum(found) / math.sqrt(len(found)) for value, found in scores.items()}
    value = max(joint, key=lambda name: abs(joint[name]))
    return CanaryScore(survey.id, records[-1].window_start_ms, value, round(joint[value], 3), survey.limits.canary_z)


def out_of_calibration(canary: CanaryScore) -> bool:
    """Return whether a canary is farther from its truth than its limit allows."""
    return abs(canary.z) > canary.limit


def epsilon_audit(survey: Survey, stored: StoredAudit | None) -> EpsilonAudit | None:
    """Compare what the answers of a canary have shown of their epsilon with what its survey declares."""
    declared = survey.mechanism.epsilons
    if stored is None or len(stored.lower_bounds) != len(declared):
        return None
    rungs = [
        RungEpsilon(rung, promised if math.isfinite(promised) else None, proven)
        for rung, (promised, proven) in enumerate(zip(declared, stored.lower_bounds, strict=True))
    ]
    exceeded = any(level.declared is not None and level.lower_bound > level.declared for level in rungs)
    return EpsilonAudit(survey.id, rungs, stored.answers, stored.alpha, stored.updated_ms, exceeded)


def worst_rung(audit: EpsilonAudit) -> RungEpsilon:
    """Return the rung whose bound is highest compared with what is declared."""
    return max(
        audit.rungs, key=lambda level: level.lower_bound - (math.inf if level.declared is None else level.declared)
    )


def stale_after_ms(survey: Survey) -> int:
    """Return how old the last estimate may be: the survey file's limit, else a window and a step, at least 15 s."""
    return survey.limits.stale_ms or max(STALE_LEAST_MS, survey.windows.size_ms + survey.windows.step_ms)


def is_stale(survey: Survey, last_ms: int | None, now_ms: int) -> bool:
    """Return whether the last estimate of a survey is too old; one that never had any, or has ended, is not stale."""
    return last_ms is not None and not survey.has_ended(now_ms) and now_ms - last_ms > stale_after_ms(survey)


def lag_limit_ms(survey: Survey) -> int:
    """Return how old a report of a survey may be before it is counted: a step, within LAG_LEAST_MS and LAG_MOST_MS."""
    return min(LAG_MOST_MS, max(LAG_LEAST_MS, survey.windows.step_ms))


def superseded(surveys: Sequence[Survey], last_ms: Mapping[str, int | None], now_ms: int) -> frozenset[str]:
    """Return the ids of surveys that another survey of the same name has replaced.

    A changed survey file has a new id, and the old file may stay for late reports. Once the old id is stale and the new
    one has later estimates, the limits and thresholds of the old id no longer apply.
    """
    found = set()
    for survey in surveys:
        mine = last_ms.get(survey.id)
        others = [last_ms.get(other.id) for other in surveys if other.name == survey.name and other.id != survey.id]
        if is_stale(survey, mine, now_ms) and any(other is not None and other > (mine or 0) for other in others):
            found.add(survey.id)
    return frozenset(found)


def rule_bounds(survey: Survey, record: EstimateRecord) -> list[tuple[AlertRule, AlertBound]]:
    """Return the alert rules of a survey with their bounds in one window, in the order of the survey file.

    A bound that was computed for another threshold or false-alarm rate belongs to a rule that has changed since, and is
    left out until the window is computed again.
    """
    stored = {(bound.value, bound.side, bound.threshold, bound.alpha): bound for bound in record.alerts}
    return [
        (rule, stored[key])
        for rule in survey.alerts
        if (key := (rule.value, rule.side, rule.threshold, rule.alpha)) in stored
    ]


def rungs_contradicted(records: Mapping[str, EstimateRecord]) -> int:
    """Return in how many closed windows the rungs contradict the survey's assumption, or 0 if that may be chance.

    The test is repeated at every tick of every window, at p below 0.001. One such window is expected now and then;
    three of five, or one with p below CONTRADICTED_P, are not.
    """
    against = [record for age, record in records.items() if age != "open" and record.contradicted]
    sure = any((record.homogeneity_p or 0.0) < CONTRADICTED_P for record in against)
    return len(against) if sure or len(against) >= CONTRADICTED_WINDOWS else 0
