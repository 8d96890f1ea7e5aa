"""Who answers for a survey: owner, purpose, expiry, review. Nothing of it is part of the survey id."""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass
from typing import Any

from estimators.mechanism import ParameterError
from producers.survey.file import RegistryTable

LAST_MS = 253_402_300_799_000
"""The last second of the year 9999, which is the last that has a date."""
MAX_OWNER, MAX_TEXT = 100, 1_000
"""Characters: the owner is a label of alerts."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True)
class Registry:
    """The `[registry]` table; what is not given is empty or None."""

    owner: str = ""
    purpose: str = ""
    expires_ms: int | None = None
    """From this moment on devices answer nothing and send nothing, and workers count nothing that arrives."""
    review: str = ""


UNREGISTERED = Registry()


def registry_of(table: RegistryTable) -> Registry:
    """Check the table; ParameterError names field, value and remedy."""
    for field, text, most in (
        ("owner", table.owner, MAX_OWNER),
        ("purpose", table.purpose, MAX_TEXT),
        ("review", table.review, MAX_TEXT),
    ):
        if len(text) > most or _CONTROL.search(text):
            raise ParameterError(f"registry.{field}", text, f"must be one line of at most {most} characters")
    if table.review and not re.fullmatch(r"https?://[^\s/]\S*", table.review):
        raise ParameterError("registry.review", table.review, "must be the address (https://...) of a review")
    return Registry(table.owner, table.purpose, moment_ms("registry.expires", table.expires), table.review)


def moment_ms(field: str, moment: datetime.datetime | None) -> int | None:
    """Return a moment of a survey file in ms; ParameterError if it is none."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ParameterError(field, moment.isoformat(), f"it has no time zone; write {moment.isoformat()}Z for UTC")
    found = round(moment.timestamp() * 1_000)
    if not 0 <= found <= LAST_MS:
        raise ParameterError(field, moment.isoformat(), "it must lie in the years 1970 to 9999 of UTC; correct it")
    return found


def with_times(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data of a file with dates as the beginning of their day: its shape takes dates with a time only."""
    found = data | {"end": _beginning(data["end"])} if "end" in data else data
    registry = found.get("registry")
    if isinstance(registry, dict) and "expires" in registry:
        found = found | {"registry": registry | {"expires": _beginning(registry["expires"])}}
    return found


def _beginning(moment: Any) -> Any:
    if isinstance(moment, datetime.date) and not isinstance(moment, datetime.datetime):
        return datetime.datetime.combine(moment, datetime.time(), datetime.UTC)
    return moment
