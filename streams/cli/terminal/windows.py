"""What commands that count windows again share: which window is meant, and how far they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from producers.survey.survey import Survey
from streams.repair.rebuild import Progress

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SURVEYS_NAMED = 5
"""Most surveys that a refusal names: a folder may hold many."""


def moment_ms(text: str) -> int:
    """Read a time: milliseconds since the epoch, or ISO 8601 (UTC unless it says otherwise).

    >>> moment_ms("60000"), moment_ms("1970-01-01T00:01:00Z")
    (60000, 60000)
    """
    if text.isascii() and text.isdigit():
        return int(text)
    moment = datetime.fromisoformat(text)
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1_000)


def shown_start(window_ms: int) -> str:
    """Return the start of a window as commands print it.

    >>> shown_start(60_000)
    '1970-01-01 00:01:00 UTC'
    """
    return datetime.fromtimestamp(window_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _start(_context: click.Context, _parameter: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else moment_ms(text)
    except ValueError:
        raise click.BadParameter(
            f"expected the start of a window, as ms since the epoch or like 2026-01-31T12:00; got {text!r}"
        ) from None


def window_option(command: _Command) -> _Command:
    """Add the option --window to a command: the start of a window in ms, or None."""
    told = "Only the window that starts then: ms since the epoch, or ISO 8601."
    return click.option("--window", callback=_start, help=told)(command)


def check_start(window_ms: int | None, surveys: Sequence[Survey]) -> None:
    """Refuse a start at which no window of these surveys begins."""
    if window_ms is not None and not any(survey.windows.is_start(window_ms) for survey in surveys):
        shown = [f"{survey.id}: {survey.windows.step_ms} ms" for survey in surveys[:_SURVEYS_NAMED]]
        if len(surveys) > _SURVEYS_NAMED:
            shown.append(f"and {len(surveys) - _SURVEYS_NAMED} more surveys")
        raise click.ClickException(f"windows start at multiples of their step ({', '.join(shown)}); got {window_ms}")


class ProgressLines:
    """Progress on stderr: a line that changes on a terminal, a new line every ten seconds elsewhere."""

    def __init__(self, title: str) -> None:
        self._title, self._terminal = title, sys.stderr.isatty()
        self._every, self._told = (0.2 if self._terminal else 10.0), time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Tell it, if the last line is not too recent."""
        if time.monotonic() - self._told < self._every:
            return
        self._told = time.monotonic()
        text = f"{self._title}: {progress.records:,} records read"
        if progress.windows_in_all is not None:
            text += f", {progress.windows} of {progress.windows_in_all} windows compared"
        click.echo(f"\r{text}" if self._terminal else text, err=True, nl=not self._terminal)

    def done(self, progress: Progress) -> None:
        """Close with what was done."""
        text = f"{self._title}: {progress.records:,} records read, {progress.windows} windows compared"
        click.echo(f"\r{text}" if self._terminal else text, err=True)
