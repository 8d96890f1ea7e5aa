"""The health of the pipeline and of surveys: the one place that says what stale and out of calibration mean.

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
from streams.exporter.api import CanaryScore, Health, Status, SurveyHealth, Worker
from streams.store.contract import QueuedWindow
from streams.store.counters import Counters
from streams.store.heartbeats import Heartbeat, alive
from streams.windows.record import AlertBound, EstimateRecord

RATE_MS: Final = 2_000
"""Time between two looks at the counters."""
RATE_SPAN: Final = 5
"""Looks over which a rate is taken."""
RATES_KEPT: Final = 150
STALE_LEAST_MS: Final = 15_000
"""Estimates younger than this are never stale: a rebalance takes that long."""
QUEUED_MS: Final = 15_000
"""A window that is in the recompute queue for longer than this means that the workers are behind."""
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


def stale_after_ms(survey: Survey) -> int:
    """Return how old the last estimate may be: the survey file's limit, else a window and a step, at least 15 s."""
    return survey.limits.stale_ms or max(STALE_LEAST_MS, survey.windows.size_ms + survey.windows.step_ms)


def is_stale(survey: Survey, last_ms: int | None, now_ms: int) -> bool:
    """Return whether the last estimate of a survey is too old; a survey that never had one is not stale."""
    return last_ms is not None and now_ms - last_ms > stale_after_ms(survey)


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


def make_health(
    now_ms: int,
    *,
    surveys: Sequence[Survey],
    last_estimates: Mapping[str, int | None],
    counters: Counters,
    heartbeats: Sequence[Heartbeat],
    queue: Sequence[QueuedWindow],
    rates: Rates,
    canary: CanaryScore | None,
) -> Health:
    """Put everything together and derive the status, which is about the pipeline: a survey is stale by itself.

    Only if all surveys are stale, nothing at all arrives, and that is said of the pipeline.

    Args:
        now_ms: the time.
        surveys: all surveys.
        last_estimates: the time of the last estimate by survey id; None for a survey without estimates.
        counters: over all surveys, unknown ones included.
        heartbeats: the last heartbeat of each worker.
        queue: the windows in the recompute queue, oldest first.
        rates: looks at the counters, the present one included.
        canary: the score of the canary that is worst compared with its limit.
    """
    living = alive(heartbeats, now_ms)
    lags = [beat.lag_records for beat in living if beat.lag_records is not None]
    replaced = superseded(surveys, last_estimates, now_ms)
    about = [_survey_health(survey, last_estimates.get(survey.id), now_ms, survey.id in replaced) for survey in surveys]
    in_force = [entry for entry in about if entry.survey not in replaced]
    last_ms = max((last for last in last_estimates.values() if last is not None), default=None)
    reasons = _reasons(now_ms, heartbeats, living, in_force, queue, last_ms)
    status: Status = "stale" if reasons else "ok"
    return Health(
        now_ms=now_ms,
        status=status,
        reasons=reasons,
        reports_per_second=rates.applied,
        rates=rates.history(),
        reports=counters.as_data(),
        rejected=dict(sorted(counters.rejected.items())),
        rejected_per_second=rates.rejected,
        lag_records=sum(lags) if lags else None,
        dirty_windows=len(queue),
        workers=[_worker(beat, beat in living) for beat in heartbeats],
        last_estimate_ms=last_ms,
        canary=canary,
        surveys=about,
    )


def store_down(now_ms: int, reason: str) -> Health:
    """Return the health when Redis does not answer: nothing else is known."""
    return Health(
        now_ms=now_ms,
        status="down",
        reasons=[f"Redis does not answer ({reason}). The page shows the last state that was read."],
        reports_per_second=None,
        rates=[],
        reports=Counters().as_data(),
        rejected={},
        rejected_per_second=None,
        lag_records=None,
        dirty_windows=0,
        workers=[],
        last_estimate_ms=None,
        canary=None,
        surveys=[],
    )


def _survey_health(survey: Survey, last_ms: int | None, now_ms: int, replaced: bool) -> SurveyHealth:
    stale = is_stale(survey, last_ms, now_ms) and not replaced
    return SurveyHealth(survey.id, last_ms, stale, stale_after_ms(survey))


def _worker(beat: Heartbeat, living: bool) -> Worker:
    return Worker(
        beat.worker,
        beat.time_ms,
        living,
        beat.lag_records,
        beat.last_batch_ms,
        beat.latency_p50_seconds,
        beat.latency_p99_seconds,
    )


def _reasons(
    now_ms: int,
    heartbeats: Sequence[Heartbeat],
    living: Sequence[Heartbeat],
    about: Sequence[SurveyHealth],
    queue: Sequence[QueuedWindow],
    last_ms: int | None,
) -> list[str]:
    reasons = []
    if not living and (heartbeats or last_ms is not None):
        since = f" for {_span(now_ms - max(beat.time_ms for beat in heartbeats))}" if heartbeats else ""
        reasons.append(
            f"No worker heartbeat{since}. Estimates are not updated; reports wait in Kafka and will be counted later."
        )
    elif queue and now_ms - queue[0].score / 1_000 > QUEUED_MS:
        windows = "1 window waits" if len(queue) == 1 else f"{len(queue)} windows wait"
        reasons.append(f"{windows} in the recompute queue: the workers are behind.")
    known = [entry for entry in about if entry.last_estimate_ms is not None]
    if known and living and all(entry.stale for entry in known):
        newest_ms = max(entry.last_estimate_ms or 0 for entry in known)
        reasons.append(f"No new reports for any survey in the last {_span(now_ms - newest_ms)}.")
    return reasons


def _span(milliseconds: float) -> str:
    seconds = max(0, round(milliseconds / 1_000))
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
