"""When a window is settled: the one definition, used by the exporter, the page, the terminal views and the canary.

A window is *open* until it ends, then *releasing* until its last rung has opened for every device, jitter included, and
its reports had time to arrive. It is *settled* after that, if all reports from before are counted and estimated: while
workers are behind, or none is alive, the reports of upper rungs wait in Kafka, and the stored estimate is that of an
open window. Late reports may still change a settled window, until the survey's retention ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from producers.survey.survey import Survey
from streams.store.contract import QueuedWindow
from streams.store.heartbeats import Heartbeat, alive
from streams.windows.record import EstimateRecord

WindowState = Literal["open", "releasing", "waiting", "settled"]

ARRIVAL_MS: Final = 2_000
"""Time from a device to a stored estimate. Less: a window is called settled while its last reports are on the way. The
survey's skew is not added: it is a tolerance for wrong clocks, and would delay all windows for the sake of few."""

CURRENT_STEPS: Final = 6
"""A window that ended at most this many steps ago is current: it has series and is on the page. Fewer: windows with
series wait behind old ones; more: old windows take the time of those that people look at."""


def is_current(survey: Survey, window_ms: int, now_ms: int) -> bool:
    """Return whether a window is open or ended at most CURRENT_STEPS ago."""
    return now_ms < survey.windows.end(window_ms) + CURRENT_STEPS * survey.windows.step_ms


def released_ms(survey: Survey, window_ms: int) -> int:
    """Return when the last scheduled report that counts is sent: its rung has opened for every device."""
    return survey.windows.end(window_ms) + survey.opens_ms[survey.highest_rung] + survey.jitter_ms


def settles_ms(survey: Survey, window_ms: int) -> int:
    """Return when a window settles if the workers are alive."""
    return released_ms(survey, window_ms) + ARRIVAL_MS


def unsettled_windows(survey: Survey) -> int:
    """Return how many windows of a survey are not settled at one time."""
    return -(-settles_ms(survey, 0) // survey.windows.step_ms)


def counted_until_ms(
    surveys: Sequence[Survey],
    heartbeats: Sequence[Heartbeat],
    queue: Sequence[QueuedWindow],
    newest_ms: int | None,
    now_ms: int,
) -> int | None:
    """Return a time before which all reports are counted, and estimates of current windows computed since.

    Args:
        surveys: all surveys.
        heartbeats: of all workers. The slowest of those that are alive decides; if none is, the last one that was.
        queue: the windows whose counts changed since their estimate.
        newest_ms: when the newest estimate of any window was computed: all that is known if no worker tells its lag.
        now_ms: the time.
    """
    told = [beat for beat in heartbeats if beat.lag_seconds is not None]
    told = alive(told, now_ms) or sorted(told, key=lambda beat: beat.time_ms)[-1:]
    if not told:
        return newest_ms
    known = {survey.id: survey for survey in surveys}
    read = [beat.time_ms - 1_000 * (beat.lag_seconds or 0.0) for beat in told]
    waiting = [
        window.score / 1_000
        for window in queue
        if (survey := known.get(window.survey_id)) is not None and is_current(survey, window.window_ms, now_ms)
    ]
    return int(min(*read, *waiting, now_ms))


def window_state(survey: Survey, record: EstimateRecord, now_ms: int, counted_ms: int | None) -> WindowState:
    """Return the state of a window with an estimate.

    Args:
        survey: its survey.
        record: its stored estimate.
        now_ms: the time.
        counted_ms: the time before which all reports are counted (`counted_until_ms`), None if not known: then the
            counts of this window must have been read after its last release.
    """
    if now_ms < record.window_end_ms:
        return "open"
    if now_ms < settles_ms(survey, record.window_start_ms):
        return "releasing"
    counted = record.read_ms if counted_ms is None else counted_ms
    return "settled" if counted >= released_ms(survey, record.window_start_ms) else "waiting"


def is_settled(survey: Survey, record: EstimateRecord, now_ms: int, counted_ms: int | None) -> bool:
    """Return whether a window is settled; the arguments are those of `window_state`."""
    return window_state(survey, record, now_ms, counted_ms) == "settled"
