"""Find surveys by the name or id that a user typed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey, load_survey
from streams.settings import Settings


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
    found = [survey for survey in known if name in (None, survey.name, survey.id, *survey.ids)]
    if name is not None and not found:
        ids = ", ".join(survey.id for survey in known) or "none"
        raise click.ClickException(f"no {missing} {name!r} in {folder}; it has: {ids}")
    return found


def survey_called(survey: str, settings: Settings) -> Survey:
    """Return a survey by the path of its file, or by its name or id in the survey folder.

    Raises:
        SurveyError: the file is refused.
        click.ClickException: there is none.
    """
    if Path(survey).is_file():
        return load_survey(survey)
    folder, now_ms = settings.surveys_folder, system_clock()
    known = SurveyFolder(folder, now_ms).surveys(now_ms)
    return surveys_named(known, survey, folder, missing="file and no survey")[0]
