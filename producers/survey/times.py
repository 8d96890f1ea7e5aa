"""What a survey file says of time, checked: durations, windows, jitter, the end."""

from __future__ import annotations

import datetime
from typing import NoReturn

from producers.survey.durations import format_duration, parse_duration
from producers.survey.file import SurveyFile
from producers.survey.messages import SurveyError
from producers.survey.schedule import Schedule
from producers.survey.windows import Windows

LAST_END_MS = 253_402_300_799_000
"""The last second of the year 9999, which is the last that has a date."""


class TimeChecker:
    """Refuses times that cannot be meant; `source` names the file in messages."""

    def __init__(self, source: str) -> None:
        self.source = source

    def refuse(self, field: str, value: object, remedy: str) -> NoReturn:
        """Refuse the file."""
        raise SurveyError(self.source, field, value, remedy)

    def duration(self, field: str, text: str, *, least_ms: int = 0) -> int:
        """Return a duration in ms."""
        try:
            duration_ms = parse_duration(text)
        except ValueError as error:
            self.refuse(field, text, str(error))
        if duration_ms < least_ms:
            self.refuse(field, text, f"must be at least {format_duration(least_ms)}")
        return duration_ms

    def windows(self, file: SurveyFile) -> Windows:
        """Return the windows of a survey."""
        size_ms = self.duration("window.size", file.window.size, least_ms=100)
        if file.window.step is None:
            return Windows(size_ms, size_ms)
        step_ms = self.duration("window.step", file.window.step, least_ms=100)
        if step_ms > size_ms:
            self.refuse(
                "window.step",
                file.window.step,
                f"must not exceed the size ({file.window.size}), or some moments belong to no window; shorten it",
            )
        if size_ms > 100 * step_ms:
            self.refuse("window.step", file.window.step, "a moment may lie in at most 100 windows; use a longer step")
        return Windows(size_ms, step_ms)

    def jitter(self, schedule: Schedule, windows: Windows, retention_ms: int) -> int:
        """Return the jitter of a survey, given or by default."""
        if schedule.jitter_ms is not None:
            return schedule.jitter_ms
        return min(windows.step_ms // 2, max(retention_ms - schedule.opens_ms[-1], 0) // 2)

    def outlasts(self, text: str, retention_ms: int, last_ms: int) -> None:
        """Refuse a retention that is over before the last rung has left."""
        if retention_ms <= last_ms:
            self.refuse(
                "window.retention",
                text,
                f"the last rung is sent up to {format_duration(last_ms)} after the window's end and would be refused "
                "as expired; raise the retention, or open the rungs earlier",
            )

    def end(self, moment: datetime.datetime | None) -> int | None:
        """Return when a survey ends, None for never."""
        if moment is None:
            return None
        if moment.tzinfo is None:
            self.refuse("end", moment.isoformat(), f"it has no time zone; write {moment.isoformat()}Z for UTC")
        end_ms = round(moment.timestamp() * 1_000)
        if not 0 <= end_ms <= LAST_END_MS:
            self.refuse("end", moment.isoformat(), "it must lie in the years 1970 to 9999 of UTC; correct it")
        return end_ms
