"""The health of the whole pipeline: its status, the reasons for it, and what needs attention.

Pure functions of what Redis holds and the workers report. What is not known is null or `unknown`, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from producers.survey.survey import Survey
from streams.exporter.api import (
    CanaryScore,
    EpsilonAudit,
    Health,
    ServiceState,
    SurveyHealth,
    SurveyState,
    Worker,
)
from streams.exporter.health import Rates, is_stale, lag_limit_ms, stale_after_ms, superseded, worst_rung
from streams.store.contract import QueuedWindow
from streams.store.counters import Counters
from streams.store.heartbeats import CLOCK_TOLERATED_MS, TRANSACTION_TOLERATED_MS, Heartbeat, alive
from streams.windows.settled import is_current

QUEUED_MS: Final = 15_000
"""A current window that is in the recompute queue for longer than this means that the workers are behind. Older windows
are estimated after the current ones, and may wait for minutes after a restart of Redis."""


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
    epsilons: Sequence[EpsilonAudit] = (),
) -> Health:
    """Put everything together and derive the status, which is about the pipeline: a survey is stale by itself.

    Only if all surveys that run are stale, nothing at all arrives, and that is said of the pipeline.

    Args:
        now_ms: the time.
        surveys: all surveys.
        last_estimates: the time of the last estimate by survey id, None without one.
        counters: over all surveys, unknown ones included.
        heartbeats: the last heartbeat of each worker.
        queue: the windows in the recompute queue, oldest first.
        rates: looks at the counters, the present one included.
        canary: the score of the canary that is worst compared with its limit.
        epsilons: what the answers of canaries have shown of their epsilon.
    """
    living = alive(heartbeats, now_ms)
    replaced = superseded(surveys, last_estimates, now_ms)
    about = [_survey_health(survey, last_estimates.get(survey.id), now_ms, survey.id in replaced) for survey in surveys]
    last_ms = max((last for last in last_estimates.values() if last is not None), default=None)
    current = _current(surveys, queue, now_ms)
    lag_seconds = _lag_seconds(living, current, now_ms)
    limit_ms = min((lag_limit_ms(survey) for survey in surveys if not survey.has_ended(now_ms)), default=None)
    reasons = _worker_reasons(now_ms, heartbeats, living, current, last_ms) + _behind(lag_seconds, limit_ms)
    reasons += _silence(now_ms, living, about)
    return Health(
        now_ms=now_ms,
        status="stale" if reasons else "ok",
        reasons=reasons,
        reports_per_second=rates.applied,
        rates=rates.history(),
        reports=counters.as_data(),
        rejected=dict(sorted(counters.rejected.items())),
        rejected_per_second=rates.rejected,
        lag_records=_lag_records(living),
        dirty_windows=len(queue),
        workers=[_worker(beat, beat in living) for beat in heartbeats],
        last_estimate_ms=last_ms,
        canary=canary,
        surveys=about,
        store="up",
        kafka=kafka_state(living),
        lag_seconds=lag_seconds,
        lag_limit_seconds=None if limit_ms is None else limit_ms / 1_000,
        workers_alive=len(living),
        workers_dead=len(heartbeats) - len(living),
        warnings=_exceeded(epsilons) + _partial(now_ms, heartbeats, living, about) + _old(now_ms, queue, current),
        epsilon_audits=list(epsilons),
    )


def store_down(now_ms: int, reason: str, *, surveys: Sequence[Survey] = (), store: ServiceState = "down") -> Health:
    """Return the health when Redis does not answer, or was not read yet: nothing else is known."""
    told = f"Redis does not answer ({reason})."
    return Health(
        now_ms=now_ms,
        status="down",
        reasons=[told if store == "down" else reason],
        reports_per_second=None,
        rates=[],
        reports={},
        rejected={},
        rejected_per_second=None,
        lag_records=None,
        dirty_windows=None,
        workers=[],
        last_estimate_ms=None,
        canary=None,
        surveys=[
            SurveyHealth(survey.id, None, False, stale_after_ms(survey), "unknown", survey.end_ms) for survey in surveys
        ],
        store=store,
    )


def kafka_state(living: Sequence[Heartbeat]) -> ServiceState:
    """Return whether brokers answer the workers that are alive; down if they do not answer one of them."""
    told = [beat.kafka_up for beat in living if beat.kafka_up is not None]
    if not told:
        return "unknown"
    return "up" if all(told) else "down"


def _survey_health(survey: Survey, last_ms: int | None, now_ms: int, replaced: bool) -> SurveyHealth:
    state: SurveyState = "fresh"
    if replaced:
        state = "replaced"
    elif survey.has_ended(now_ms):
        state = "ended"
    elif last_ms is None:
        state = "unknown"
    elif is_stale(survey, last_ms, now_ms):
        state = "stale"
    return SurveyHealth(survey.id, last_ms, state == "stale", stale_after_ms(survey), state, survey.end_ms)


def _worker(beat: Heartbeat, living: bool) -> Worker:
    return Worker(
        beat.worker,
        beat.time_ms,
        living,
        beat.lag_records,
        beat.last_batch_ms,
        beat.latency_p50_seconds,
        beat.latency_p99_seconds,
        kafka_state([beat]),
        beat.lag_seconds,
        beat.metrics_port,
        beat.clock_offset_seconds,
        beat.uncommitted_records,
        beat.transaction_open_seconds,
    )


def _lag_records(living: Sequence[Heartbeat]) -> int | None:
    lags = [beat.lag_records for beat in living if beat.lag_records is not None]
    return sum(lags) if lags else None


def _current(surveys: Sequence[Survey], queue: Sequence[QueuedWindow], now_ms: int) -> list[QueuedWindow]:
    known = {survey.id: survey for survey in surveys}
    return [
        window
        for window in queue
        if (survey := known.get(window.survey_id)) is not None and is_current(survey, window.window_ms, now_ms)
    ]


def _lag_seconds(living: Sequence[Heartbeat], current: Sequence[QueuedWindow], now_ms: int) -> float | None:
    """Return how old the oldest report of a current window can be that is in no estimate; None if no worker tells."""
    lags = [beat.lag_seconds for beat in living if beat.lag_seconds is not None]
    if not lags:
        return None
    waiting_ms = max((now_ms - window.score / 1_000 for window in current), default=0.0)
    return round(max(*lags, waiting_ms / 1_000, 0.0), 3)


def _worker_reasons(
    now_ms: int,
    heartbeats: Sequence[Heartbeat],
    living: Sequence[Heartbeat],
    current: Sequence[QueuedWindow],
    last_ms: int | None,
) -> list[str]:
    if not living:
        if not heartbeats and last_ms is None:
            return []
        since = f" for {_span(now_ms - max(beat.time_ms for beat in heartbeats))}" if heartbeats else ""
        return [
            f"No worker heartbeat{since}. Estimates are not updated; reports wait in Kafka and will be counted later."
        ]
    reasons = []
    without = [beat.worker for beat in living if beat.kafka_up is False]
    if without:
        reasons.append(
            f"Kafka does not answer {', '.join(without)}. No reports are read; devices keep theirs and send them later."
        )
    late = [window for window in current if now_ms - window.score / 1_000 > QUEUED_MS]
    if late:
        reasons.append(f"{_wait(late)} in the recompute queue: the workers are behind.")
    return reasons


def _wait(windows: Sequence[QueuedWindow]) -> str:
    return "1 window waits" if len(windows) == 1 else f"{len(windows)} windows wait"


def _behind(lag_seconds: float | None, limit_ms: int | None) -> list[str]:
    if lag_seconds is None or limit_ms is None or lag_seconds * 1_000 <= limit_ms:
        return []
    lag, limit = _span(lag_seconds * 1_000), _span(limit_ms)
    return [f"Estimates are {lag} behind; the limit is {limit}. Reports wait in Kafka or in the recompute queue."]


def _silence(now_ms: int, living: Sequence[Heartbeat], about: Sequence[SurveyHealth]) -> list[str]:
    judged = [entry for entry in about if entry.state in ("fresh", "stale")]
    if not judged or not living or any(entry.state == "fresh" for entry in judged):
        return []
    newest_ms = max(entry.last_estimate_ms or 0 for entry in judged)
    return [f"No new reports for any survey in the last {_span(now_ms - newest_ms)}."]


def _partial(
    now_ms: int, heartbeats: Sequence[Heartbeat], living: Sequence[Heartbeat], about: Sequence[SurveyHealth]
) -> list[str]:
    """Say which workers and which surveys are silent while others are not, and which clocks are wrong, and
    what waits behind a transaction.
    """
    found = []
    if living:
        found += [
            f"Worker {beat.worker} has sent no heartbeat for {_span(now_ms - beat.time_ms)}; others take over its "
            "partitions. Start it again, or forget it: it leaves the list ten minutes after its last heartbeat."
            for beat in heartbeats
            if beat not in living
        ]
    stale = [entry for entry in about if entry.state == "stale"]
    if any(entry.state == "fresh" for entry in about):
        found += [
            f"No new estimate of {entry.survey} for {_span(now_ms - (entry.last_estimate_ms or 0))}; the limit is "
            f"{_span(entry.stale_after_ms)}."
            for entry in stale
        ]
    return found + _open_transactions(living) + _wrong_clocks(living)


def _open_transactions(living: Sequence[Heartbeat]) -> list[str]:
    held = [beat for beat in living if (beat.transaction_open_seconds or 0.0) * 1_000 > TRANSACTION_TOLERATED_MS]
    if not held:
        return []
    records = sum(beat.uncommitted_records or 0 for beat in held)
    longest_ms = 1_000 * max(beat.transaction_open_seconds or 0.0 for beat in held)
    told = f"{records} records wait behind a transaction that a producer has kept open for {_span(longest_ms)}."
    return [told + " They are counted when it ends; the runbook ThawTransactionOpen says how to find and end it."]


def _exceeded(epsilons: Sequence[EpsilonAudit]) -> list[str]:
    return [
        f"The answers of the canary {audit.survey} prove an epsilon of at least {level.lower_bound:.2f} at rung "
        f"{level.rung}; declared is {level.declared:.2f}. Devices of this version reveal more than was promised."
        for audit in epsilons
        if audit.exceeded and (level := worst_rung(audit))
    ]


def _wrong_clocks(living: Sequence[Heartbeat]) -> list[str]:
    offsets = {beat.worker: round((beat.clock_offset_seconds or 0.0) * 1_000) for beat in living}
    return [
        f"The clock of worker {worker} is {_span(abs(offset_ms))} {'ahead of' if offset_ms > 0 else 'behind'} the "
        "broker's. No report is judged by it, but estimates carry its time: set the clock (NTP)."
        for worker, offset_ms in offsets.items()
        if abs(offset_ms) > CLOCK_TOLERATED_MS
    ]


def _old(now_ms: int, queue: Sequence[QueuedWindow], current: Sequence[QueuedWindow]) -> list[str]:
    late = [window for window in queue if window not in current and now_ms - window.score / 1_000 > QUEUED_MS]
    return [f"{_wait(late)} for a new estimate behind the current ones; nothing needs to be done."] if late else []


def _span(milliseconds: float) -> str:
    seconds = max(0, round(milliseconds / 1_000))
    for size, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"
