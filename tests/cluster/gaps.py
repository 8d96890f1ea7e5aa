"""How long the estimates of each survey stay as they are while workers are restarted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

GAP_SECONDS: Final = 20.0
"""While workers are restarted one by one, the estimates of every survey must change at least this often, and a window
and three times the longest pause that was seen before that: on a busy computer everything takes longer. A worker that
was asked to stop is back within a session, and the others go on meanwhile."""
CALM_CHANGES: Final = 4
"""So many changes of the estimates of every survey are watched before workers are restarted."""


@dataclass(frozen=True)
class Gap:
    """The longest time in which no estimate of a survey changed, and how long it may be."""

    survey: str
    seconds: float
    most: float

    def __str__(self) -> str:
        """Return what is told of it."""
        return f"no estimate of {self.survey} changed for {self.seconds:.1f} s (at most {self.most:.1f} s)"


class Watch:
    """The gaps of one survey, from when it is made; first while nothing is done to the workers."""

    def __init__(self, survey: str, window_seconds: float, now: float) -> None:
        self._survey, self._window_seconds = survey, window_seconds
        self._changed_at, self._digest = now, b""
        self._longest, self._calm = 0.0, 0.0
        self._changes = 0

    def look(self, digest: bytes, now: float) -> None:
        """Take note of what the estimates are now."""
        if digest != self._digest:
            self._longest = max(self._longest, now - self._changed_at)
            self._changed_at, self._digest = now, digest
            self._changes += 1

    @property
    def is_calm(self) -> bool:
        """Whether enough was seen to know how often they change by themselves."""
        return self._changes >= CALM_CHANGES

    def calm_ends(self, now: float) -> None:
        """From now on something is done to the workers."""
        self._calm, self._longest, self._changed_at = self._longest, 0.0, now

    def gap(self, now: float) -> Gap:
        """Return the longest one since then."""
        most = GAP_SECONDS + self._window_seconds + 3 * self._calm
        return Gap(self._survey, max(self._longest, now - self._changed_at), most)


def told(gaps: Sequence[Gap]) -> list[str]:
    """Return a line about the longest gap of all; none if none was watched."""
    longest = max(gaps, key=lambda gap: gap.seconds, default=None)
    return [] if longest is None else [f"largest gap while workers were restarted one by one: {longest}"]
