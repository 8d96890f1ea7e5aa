"""How surveys are looked up; `producers.survey.folder.SurveyFolder` does both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from producers.survey.survey import Survey


class SurveyLookup(Protocol):
    """Finds surveys by the digest that frames carry."""

    def get(self, digest: bytes, now_ms: int) -> Survey | None:
        """Return the survey with this digest, or None; may look for new files first."""
        ...


class SurveyList(Protocol):
    """Lists surveys."""

    def surveys(self, now_ms: int) -> Sequence[Survey]:
        """Return all known surveys."""
        ...


class Surveys(SurveyLookup, SurveyList, Protocol):
    """Finds and lists surveys."""
