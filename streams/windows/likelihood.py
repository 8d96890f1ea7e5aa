"""The full likelihood of a window's unary reports: asked for, computed by a worker, and read, as small states.

It needs every report, not only the counts, so it is computed when somebody asks. A survey has a list of the windows
that are asked for; a window has what became of it.
"""

from __future__ import annotations

import logging
from typing import Final, Literal

import msgspec

from estimators.estimates import ViewName
from producers.survey.survey import Survey
from streams.store.contract import SmallStates
from streams.store.shape import Shape
from streams.windows.record import ShareView

logger = logging.getLogger(__name__)

ASKED_STATE: Final = "likelihoods"
STATE: Final = "likelihood"
MOST_ASKED: Final = 20
"""Windows of a survey that wait at once. More: somebody who asks for all of them keeps a worker busy for hours."""
ABANDONED_MS: Final = 30_000
"""Without a sign of progress for so long the worker is gone and another one begins again."""
_ATTEMPTS: Final = 5

Progress = Literal["asked", "computing", "done", "failed"]


class Likelihood(msgspec.Struct, frozen=True):
    """What became of the likelihood of one window."""

    state: Progress
    updated_ms: int
    worker: str = ""
    progress: float = 0.0
    """Of the way to the maximum, by what a step could still gain: 0 to 1."""
    users: int = 0
    """Reports that it was computed from, one per device."""
    shares: list[float] = []
    reason: str = ""
    """Why it failed."""
    distance: float | None = None
    """Simulated mean distance from the truth in total variation; None where that would take too long."""
    unbiased_distance: float | None = None
    """The same of the unbiased estimate; None where the window has no other view."""

    @property
    def view(self) -> ShareView | None:
        """The shares as a view; None before they are computed."""
        if self.state != "done":
            return None
        return ShareView("likelihood", self.shares, None, self.distance, self.unbiased_distance)

    def stands(self, now_ms: int) -> bool:
        """Tell whether somebody is at it."""
        return self.state == "asked" or (self.state == "computing" and now_ms - self.updated_ms < ABANDONED_MS)


def offers_likelihood(survey: Survey) -> bool:
    """Tell whether whole reports of this survey tell more than its counts: one-hot vectors, all of them published."""
    return survey.mechanism.one_hot is not None and not survey.publication.totals_only


def views_offered(survey: Survey) -> list[ViewName]:
    """Return the views that windows of this survey may have."""
    stored: list[ViewName] = ["threshold", "simplex"] if survey.mechanism.exclusive else []
    return [*stored, "likelihood"] if offers_likelihood(survey) else stored


class Likelihoods:
    """The likelihoods of all windows. Any call may raise StoreUnavailableError."""

    def __init__(self, states: SmallStates) -> None:
        self._states = states

    def read(self, survey: Survey, window_ms: int) -> Likelihood | None:
        """Return what became of a window; None if nobody asked."""
        return _decode(self._states.get(survey.id, STATE, window_ms), survey.id)

    def ask(self, survey: Survey, window_ms: int, users: int, now_ms: int) -> Likelihood:
        """Ask for a window with so many reports, unless it is there or asked for; return how it stands."""
        raw = self._states.get(survey.id, STATE, window_ms)
        known = _decode(raw, survey.id)
        expires_ms = Shape.of(survey).expires_ms(window_ms)
        if known is None or not (known.stands(now_ms) or (known.state == "done" and known.users == users)):
            fresh = Likelihood("asked", now_ms)
            if self._states.swap(survey.id, STATE, window_ms, raw, msgspec.json.encode(fresh), expires_ms):
                known = fresh
        if known is not None and known.state == "done":
            return known
        if not self._list(survey, window_ms, expires_ms):
            return Likelihood("failed", now_ms, reason=f"{MOST_ASKED} windows are waiting already; ask again later")
        return known or Likelihood("asked", now_ms)

    def asked(self, survey: Survey) -> list[int]:
        """Return the windows that are asked for, in that order."""
        return _starts(self._states.get(survey.id, ASKED_STATE))

    def take(self, survey: Survey, window_ms: int, worker: str, now_ms: int) -> bool:
        """Begin with a window, unless another worker did; return whether it is this worker's."""
        raw = self._states.get(survey.id, STATE, window_ms)
        known = _decode(raw, survey.id)
        if known is None or known.state in ("done", "failed") or (known.state == "computing" and known.stands(now_ms)):
            return False
        return self._swap(survey, window_ms, raw, Likelihood("computing", now_ms, worker))

    def tell(self, survey: Survey, window_ms: int, told: Likelihood) -> bool:
        """Store how far a window is, unless it is another worker's now; return whether it was stored."""
        raw = self._states.get(survey.id, STATE, window_ms)
        known = _decode(raw, survey.id)
        if known is None or known.worker != told.worker:
            return False
        return self._swap(survey, window_ms, raw, told)

    def strike(self, survey: Survey, window_ms: int) -> None:
        """Take a window from the list."""
        for _ in range(_ATTEMPTS):
            raw = self._states.get(survey.id, ASKED_STATE)
            left = [start for start in _starts(raw) if start != window_ms]
            expires_ms = Shape.of(survey).expires_ms(max(left, default=window_ms))
            if self._states.swap(survey.id, ASKED_STATE, None, raw, msgspec.json.encode(left), expires_ms):
                return

    def _list(self, survey: Survey, window_ms: int, expires_ms: int) -> bool:
        for _ in range(_ATTEMPTS):
            raw = self._states.get(survey.id, ASKED_STATE)
            starts = _starts(raw)
            if window_ms in starts:
                return True
            if len(starts) >= MOST_ASKED:
                return False
            payload = msgspec.json.encode([*starts, window_ms])
            if self._states.swap(survey.id, ASKED_STATE, None, raw, payload, expires_ms):
                return True
        return False

    def _swap(self, survey: Survey, window_ms: int, raw: bytes, new: Likelihood) -> bool:
        expires_ms = Shape.of(survey).expires_ms(window_ms)
        return self._states.swap(survey.id, STATE, window_ms, raw, msgspec.json.encode(new), expires_ms)


def _decode(payload: bytes, survey_id: str) -> Likelihood | None:
    if not payload:
        return None
    try:
        return msgspec.json.decode(payload, type=Likelihood)
    except msgspec.MsgspecError as error:
        logger.warning("%s: a stored likelihood cannot be read: %s", survey_id, error)
        return None


def _starts(payload: bytes) -> list[int]:
    try:
        return msgspec.json.decode(payload, type=list[int]) if payload else []
    except msgspec.MsgspecError:
        return []
