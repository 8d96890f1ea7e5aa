"""What commands that count windows again share: which window is meant, and how far they are."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from producers.survey.survey import Survey
from streams.cli.terminal.times import moment_ms
from streams.repair.rebuild import Progress

_Command = TypeVar("_Command", bound=Callable[..., Any])

_SURVEYS_NAMED = 5
"""Most surveys that a refusal names: a folder may hold many."""


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

    def __init__(self, title: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._title, self._clock, self._terminal = title, clock, sys.stderr.isatty()
        self._every, self._told = (0.2 if self._terminal else 10.0), clock()
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Tell it, if the last line is not too recent."""
        if self._clock() - self._told < self._every:
            return
        self._told = self._clock()
        text = f"{self._title}: {progress.records:,} records read"
        if progress.windows_in_all is not None:
            text += f", {progress.windows} of {progress.windows_in_all} windows compared"
        self._show(text, nl=not self._terminal)

    def done(self, progress: Progress) -> None:
        """Close with what was done."""
        self._show(f"{self._title}: {progress.records:,} records read, {progress.windows} windows compared", nl=True)

    def _show(self, text: str, *, nl: bool) -> None:
        # Blanks over the end of a line that was longer.
        click.echo(f"\r{text.ljust(self._width)}" if self._terminal else text, err=True, nl=nl)
        self._width = len(text)
