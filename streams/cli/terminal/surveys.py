"""Find surveys by the name or id that a user typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from producers.survey.survey import Survey


def surveys_named(known: Sequence[Survey], name: str | None, folder: Path, *, missing: str = "survey") -> list[Survey]:
    """Return the surveys with this name or id, all if it is None.

    Args:
        known: the surveys of the folder.
        name: a name or an id.
        folder: where the surveys come from, for the message.
        missing: what the message says there is not.

    Raises:
        click.ClickException: there is none; the message lists the ids that there are.
    """
    found = [survey for survey in known if name in (None, survey.name, survey.id)]
    if name is not None and not found:
        ids = ", ".join(survey.id for survey in known) or "none"
        raise click.ClickException(f"no {missing} {name!r} in {folder}; it has: {ids}")
    return found
