"""When a window is settled: the one definition, used by the exporter, the page, the terminal views and the canary.

A window is *open* until it ends, then *releasing* until its last rung has opened for every device, jitter included, and
its reports had time to arrive. It is *settled* after that, if an estimate was computed since: with no worker alive the
reports of upper rungs wait in Kafka, and the stored estimate is that of an open window. Late reports may still change
a settled window, until the survey's retention ends.
"""

from __future__ import annotations

from typing import Final, Literal

from producers.survey.survey import Survey
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
    """Return when the last scheduled report of a window is sent: its last rung has opened for every device."""
    return survey.windows.end(window_ms) + survey.opens_ms[-1] + survey.jitter_ms


def settles_ms(survey: Survey, window_ms: int) -> int:
    """Return when a window settles if the workers are alive."""
    return released_ms(survey, window_ms) + ARRIVAL_MS


def unsettled_windows(survey: Survey) -> int:
    """Return how many windows of a survey are not settled at one time."""
    return -(-settles_ms(survey, 0) // survey.windows.step_ms)


def window_state(survey: Survey, record: EstimateRecord, now_ms: int, counted_ms: int | None) -> WindowState:
    """Return the state of a window with an estimate.

    Args:
        survey: its survey.
        record: its stored estimate.
        now_ms: the time.
        counted_ms: when the newest estimate of any window was computed, None if not known. Workers read reports in
            order, so a newer estimate of another window shows that the reports of this one are counted, also if none
            came at the end. With several workers one of them may be behind the others.
    """
    if now_ms < record.window_end_ms:
        return "open"
    if now_ms < settles_ms(survey, record.window_start_ms):
        return "releasing"
    counted = max(record.read_ms, counted_ms or 0) >= released_ms(survey, record.window_start_ms)
    return "settled" if counted else "waiting"


def is_settled(survey: Survey, record: EstimateRecord, now_ms: int, counted_ms: int | None) -> bool:
    """Return whether a window is settled; the arguments are those of `window_state`."""
    return window_state(survey, record, now_ms, counted_ms) == "settled"
