"""The part of its lifetime budget that a device has spent on a survey if it answered in every window.

Devices do not report what they have left: that would link their windows. The start of the first window and the cost
of a window are public; together they give the budget of a device that answered every time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from producers.survey.survey import Survey
from streams.store.contract import SmallStates
from streams.store.shape import KEEP_MS
from streams.windows.record import EstimateRecord

STATE = "first"

REFRESH_MS = 3_600_000
"""How often the expiry of the state is extended. Shorter: more writes that change nothing."""

_ATTEMPTS = 5


class FirstWindows:
    """Remembers in the store when the first window of each survey began."""

    def __init__(self, states: SmallStates) -> None:
        self._states = states
        self._noted: dict[str, tuple[int, int]] = {}

    def note(self, survey: Survey, window_ms: int, now_ms: int) -> None:
        """Note that a window has answers.

        Raises:
            StoreUnavailableError: the store did not answer.
        """
        first_ms, noted_ms = self._noted.get(survey.id, (window_ms + 1, 0))
        if first_ms <= window_ms and now_ms - noted_ms < REFRESH_MS:
            return
        for _ in range(_ATTEMPTS):
            raw = self._states.get(survey.id, STATE)
            known_ms = _read(raw)
            first_ms = window_ms if known_ms is None else min(known_ms, window_ms)
            if self._states.swap(survey.id, STATE, None, raw, b"%d" % first_ms, now_ms + KEEP_MS):
                self._noted[survey.id] = first_ms, now_ms
                return
        # Contended on every attempt; the next window tries again.


def first_window_ms(states: SmallStates, survey_id: str) -> int | None:
    """Return the start of the first window of a survey, as far back as is remembered."""
    return _read(states.get(survey_id, STATE))


def _read(raw: bytes) -> int | None:
    return int(raw) if raw.isdigit() else None


def budget_spent(
    survey: Survey, first_ms: int | None, records: Mapping[str, EstimateRecord], now_ms: int
) -> float | None:
    """Return the part of the lifetime budget that a device has spent on this survey if it answered in every window.

    A window costs what its users have spent on average, in that one of the closed windows where it is most. None if
    there is no closed window yet, or nothing finite to spend.
    """
    costs = [cost for age, record in records.items() if age != "open" and (cost := mean_epsilon(record)) is not None]
    if first_ms is None or not costs or math.isinf(survey.lifetime_epsilon):
        return None
    windows = max(0, (survey.windows.latest(now_ms) - first_ms) // survey.windows.step_ms)
    return windows * max(costs) / survey.lifetime_epsilon


def mean_epsilon(record: EstimateRecord) -> float | None:
    """Return what the users of a window have spent on it on average; None without users or without a finite cost."""
    spent = 0.0
    for users, epsilon in zip(record.users_per_rung, record.epsilons, strict=True):
        if users and epsilon is None:
            return None
        spent += users * (epsilon or 0.0)
    return spent / record.users if record.users else None
