"""The survey files that the gateway serves: an index, and one signed envelope per survey."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec

from producers.clock import Clock, system_clock
from producers.survey.document import document_of, sealed
from producers.survey.messages import SurveyError
from producers.survey.signing import Signer
from producers.survey.survey import Survey, parse_survey

HOUR_MS: Final = 3_600_000
"""Documents are issued at whole hours, so that what a device holds does not tell when it asked."""


class SurveyFiles(Protocol):
    """The files of surveys."""

    def files(self, now_ms: int) -> Mapping[Path, Survey]:
        """Return the surveys that are there now, by file."""
        ...


class Listed(msgspec.Struct, frozen=True):
    """One survey of the index."""

    id: str
    name: str
    question: str
    mechanism: str
    url: str


class Index(msgspec.Struct, frozen=True):
    """All surveys that are served, the public key that signs them, and where cards are dealt."""

    surveys: list[Listed]
    key: str | None
    dealer: str | None


class Documents:
    """Serves the surveys of a folder."""

    def __init__(
        self,
        files: SurveyFiles,
        *,
        valid_hours: int,
        signer: Signer | None = None,
        dealer: str = "",
        clock: Clock = system_clock,
    ) -> None:
        self._files, self._signer, self._dealer, self._clock = files, signer, dealer, clock
        self._valid_ms = valid_hours * HOUR_MS
        self._made: dict[str, tuple[Any, bytes]] = {}

    def index(self) -> Index:
        """Return the index."""
        listed = {
            survey.id: Listed(
                survey.id, survey.name, survey.question, survey.mechanism.name, f"/v1/surveys/{survey.id}"
            )
            for survey in self._served().values()
        }
        key = None if self._signer is None else self._signer.public_text
        return Index(list(listed.values()), key, self._dealer or None)

    def envelope(self, survey_id: str) -> bytes | None:
        """Return the envelope of a survey, None if it is not served; the same bytes for a whole hour."""
        path = self._path(survey_id)
        if path is None:
            return None
        issued_ms = self._clock() // HOUR_MS * HOUR_MS
        try:
            text = path.read_text(encoding="utf-8")
            survey = parse_survey(text, str(path))
        except (OSError, ValueError, SurveyError):
            return None
        if survey_id not in survey.ids:
            return None
        made_from = issued_ms, text
        kept = self._made.get(survey_id)
        if kept is None or kept[0] != made_from:
            document = document_of(survey, text, issued_ms, issued_ms + self._valid_ms)
            sign, key = (None, None) if self._signer is None else (self._signer.sign, self._signer.public)
            kept = self._made[survey_id] = made_from, sealed(document, sign, key)
        return kept[1]

    def bulletin(self, survey_id: str) -> bytes | None:
        """Return the bulletin beside a survey file, as `thaw bulletin` wrote it; None if there is none."""
        path = self._path(survey_id)
        if path is None:
            return None
        try:
            return path.with_suffix(".bulletin").read_bytes()
        except OSError:
            return None

    def _path(self, survey_id: str) -> Path | None:
        """Return the file of a survey, of the newest one where it was continued."""
        return next((path for path, survey in self._served().items() if survey_id in survey.ids), None)

    def _served(self) -> dict[Path, Survey]:
        """Return what devices may answer: a canary is answered by simulated devices only, an expired one by nobody."""
        now_ms = self._clock()
        found = self._files.files(now_ms)
        return {path: survey for path, survey in found.items() if survey.canary is None and now_ms < survey.stops_ms}
