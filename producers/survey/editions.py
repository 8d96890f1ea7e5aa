"""Which of several files counts, where surveys continue one another: one id, several digests."""

from __future__ import annotations

from collections.abc import Iterable

from producers.survey.survey import Survey


def newest(surveys: Iterable[Survey]) -> dict[str, Survey]:
    """Return by id the survey that continues all others of it."""
    found: dict[str, Survey] = {}
    for survey in surveys:
        if survey.id not in found or len(survey.continued) > len(found[survey.id].continued):
            found[survey.id] = survey
    return found


def by_digest(surveys: Iterable[Survey]) -> dict[bytes, Survey]:
    """Return which survey judges frames with a digest: the newest one, also for frames of those that it continues."""
    return {digest: survey for survey in newest(surveys).values() for digest in survey.digests}


def rival(survey: Survey, others: Iterable[Survey]) -> Survey | None:
    """Return another survey that continues the same one with other levels; chains have one continuation."""
    for other in others:
        if other.id == survey.id and survey.digest not in other.digests and other.digest not in survey.digests:
            return other
    return None
