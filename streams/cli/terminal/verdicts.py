"""How commands that check windows print what they found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import click

from producers.survey.survey import Survey
from streams.cli.terminal.times import shown_start
from streams.repair.verify import Status, Verdict
from streams.windows.proof import version

_TOLD: Final[Mapping[Status, str]] = {
    "equal": "equal",
    "different": "different",
    "unchecked": "cannot be checked",
    "unproven": "carries no proof",
}
_COUNTED: Final[Mapping[Status, str]] = {**_TOLD, "unproven": "without proof"}


def closing_line(verdicts: Sequence[Verdict]) -> str:
    """Return how many windows have each status."""
    numbers = Counter(verdict.status for verdict in verdicts)
    parts = [f"{numbers[status]} {words}" for status, words in _COUNTED.items() if numbers[status]]
    return f"{len(verdicts)} windows: {', '.join(parts) or 'no estimate to check'}"


def print_verdicts(survey: Survey, verdicts: Sequence[Verdict], where: str, *, err: bool = False) -> None:
    """Print the windows of a survey, and what differs; `where` is what they were counted from."""
    click.echo(f"{survey.id}: {len(verdicts)} windows counted from {where}", err=err)
    for verdict in verdicts:
        told = f"  {shown_start(verdict.window_ms)}  {_TOLD[verdict.status]}: {verdict.users:,} users"
        if verdict.status == "different":
            told += "".join(f"\n    {part}: {what}" for part, what in verdict.differences.items())
        if verdict.reason:
            told += f"; {verdict.reason}"
        if verdict.status == "equal" and not verdict.winners:
            told += "; counts and numbers alone, the winning reports are not hashed yet"
        if verdict.status == "equal" and not verdict.identical:
            told += f"; numbers to nine digits, not to the last bit (counted by {verdict.version}, this is {version()})"
        click.echo(told, err=err)
