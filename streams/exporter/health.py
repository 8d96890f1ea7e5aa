"""How the pipeline is: pure functions from what the store and the workers say to what the page shows."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Final

from producers.survey.survey import Survey
from streams.exporter.api import CanaryScore, Health, Status, SurveyHealth, Worker
from streams.store.contract import QueuedWindow
from streams.store.heartbeats import Heartbeat, alive
from streams.windows.record import EstimateRecord

RATE_MS: Final = 2_000
"""Time between two looks at the counters."""
RATE_SPAN: Final = 5
"""Looks over which a rate is taken."""
RATES_KEPT: Final = 150
STALE_LEAST_MS: Final = 15_000
"""Estimates younger than this are never called stale: a rebalance takes that long."""
DIRTY_MS: Final = 15_000
"""A count that waits longer than this for its estimate means that nobody estimates."""
CANARY_WINDOWS: Final = 5
"""Complete windows that the canary is judged by, as the alert rule does: one alone says little."""

_REJECTED = "rejected:"
_COUNTED = ("applied", "duplicate", "stale", "conflict", "expired")


class Rates:
    """Reports per second, from looks at counters that only grow."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, int, int]] = deque(maxlen=RATES_KEPT + RATE_SPAN)

    def look(self, now_ms: int, applied: int, rejected: int) -> None:
        """Note the counters, at most once in RATE_MS; counters that shrank belong to another Redis: start over."""
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


def totals(counters: Sequence[Mapping[str, int]]) -> tuple[dict[str, int], dict[str, int]]:
    """Return what was counted and what was rejected by reason, over all surveys."""
    total: Counter[str] = Counter()
    for some in counters:
        total.update(some)
    counted = {name: total[name] for name in _COUNTED}
    rejected = {
        name.removeprefix(_REJECTED): count for name, count in sorted(total.items()) if name.startswith(_REJECTED)
    }
    return counted, rejected


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

    The same sum over the square root of the number of windows, and the same limit, as the alert rule of the survey.
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


def stale_after_ms(survey: Survey) -> int:
    """Return how old the newest estimate of a survey may be: as its file says, or a window without a word and more."""
    return survey.limits.stale_ms or max(STALE_LEAST_MS, survey.windows.size_ms + survey.windows.step_ms)


def make_health(
    now_ms: int,
    *,
    surveys: Sequence[Survey],
    newest: Mapping[str, int],
    counters: Sequence[Mapping[str, int]],
    words: Sequence[Heartbeat],
    dirty: Sequence[QueuedWindow],
    rates: Rates,
    canary: CanaryScore | None,
) -> Health:
    """Put everything together and judge it.

    Args:
        now_ms: the time.
        surveys: all surveys.
        newest: the time of the newest estimate by survey id; surveys without an estimate are not in it.
        counters: counters of each survey and of what belongs to none.
        words: the last words of the workers.
        dirty: the windows that wait for their estimate.
        rates: looks at the counters, the present one included.
        canary: the score of the newest canary window that is complete.
    """
    counted, rejected = totals(counters)
    living = alive(words, now_ms)
    lags = [word.lag_records for word in living if word.lag_records is not None]
    about = [_survey_health(survey, newest.get(survey.id), now_ms) for survey in surveys]
    last_ms = max(newest.values(), default=None)
    reasons = list(_reasons(now_ms, words, living, about, dirty, last_ms))
    status: Status = "stale" if reasons else "ok"
    return Health(
        now_ms=now_ms,
        status=status,
        reasons=reasons,
        reports_per_second=rates.applied,
        rates=rates.history(),
        reports=counted,
        rejected=rejected,
        rejected_per_second=rates.rejected,
        lag_records=sum(lags) if lags else None,
        dirty_windows=len(dirty),
        workers=[_worker(word, word in living) for word in words],
        last_estimate_ms=last_ms,
        canary=canary,
        surveys=about,
    )


def store_down(now_ms: int, reason: str) -> Health:
    """Return the health when Redis does not answer: nothing else can be told."""
    return Health(
        now_ms=now_ms,
        status="down",
        reasons=[f"Redis does not answer ({reason}). What is shown is the last that was read."],
        reports_per_second=None,
        rates=[],
        reports=dict.fromkeys(_COUNTED, 0),
        rejected={},
        rejected_per_second=None,
        lag_records=None,
        dirty_windows=0,
        workers=[],
        last_estimate_ms=None,
        canary=None,
        surveys=[],
    )


def _survey_health(survey: Survey, last_ms: int | None, now_ms: int) -> SurveyHealth:
    limit_ms = stale_after_ms(survey)
    return SurveyHealth(survey.id, last_ms, last_ms is not None and now_ms - last_ms > limit_ms, limit_ms)


def _worker(word: Heartbeat, living: bool) -> Worker:
    return Worker(
        word.worker,
        word.time_ms,
        living,
        word.lag_records,
        word.last_batch_ms,
        word.latency_p50_seconds,
        word.latency_p99_seconds,
    )


def _reasons(
    now_ms: int,
    words: Sequence[Heartbeat],
    living: Sequence[Heartbeat],
    about: Sequence[SurveyHealth],
    dirty: Sequence[QueuedWindow],
    last_ms: int | None,
) -> list[str]:
    reasons = []
    if not living and (words or last_ms is not None):
        since = f" for {_span(now_ms - max(word.time_ms for word in words))}" if words else ""
        reasons.append(
            f"No worker has been heard of{since}. Estimates stand still; reports wait in Kafka and none is lost."
        )
    elif dirty and now_ms - dirty[0].score / 1_000 > DIRTY_MS:
        windows = "1 window waits" if len(dirty) == 1 else f"{len(dirty)} windows wait"
        reasons.append(f"{windows} for an estimate: the workers are behind.")
    silent = [entry for entry in about if entry.stale]
    if silent and living:
        known = [entry for entry in about if entry.last_estimate_ms is not None]
        which = "any survey" if len(silent) == len(known) else ", ".join(entry.survey for entry in silent)
        newest_ms = max(entry.last_estimate_ms or 0 for entry in silent)
        reasons.append(f"No new reports for {which} in the last {_span(now_ms - newest_ms)}.")
    return reasons


def _span(milliseconds: float) -> str:
    seconds = max(0, round(milliseconds / 1_000))
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
