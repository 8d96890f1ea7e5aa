"""What a ledger keeps of a survey for its person to read: nothing of it is needed to draw or to send."""

from __future__ import annotations

from typing import NamedTuple

from producers.survey.survey import Survey


class NotedSurvey(NamedTuple):
    """One survey; the fields are columns of the table `surveys`, the name comes first."""

    name: str
    survey_id: str
    question: str
    protects: str
    lifetime_epsilon: float
    reserve_epsilon: float
    unlock: str | None
    on_demand: bool


def noted(survey: Survey) -> NotedSurvey:
    """Return what is kept of a survey."""
    return NotedSurvey(
        survey.name,
        survey.id,
        survey.question,
        survey.mechanism.guarantee.protects,
        survey.lifetime_epsilon,
        survey.reserve_epsilon,
        None if survey.unlock is None else str(survey.unlock),
        survey.on_demand,
    )
