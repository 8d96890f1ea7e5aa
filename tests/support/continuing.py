"""A survey, one that continues it with one level more, and one that continues that with two more."""

from __future__ import annotations

from producers.survey.survey import Survey, parse_survey
from tests.support.surveys import survey_text

LEVELS = (0.5, 1.0, 2.0, 2.5, 3.0)
OPENS = ("0s", "10s", "30s", "40s", "50s")


def text_with_rungs(rungs: int, *earlier: str, **changes: str) -> str:
    """Return the file of the survey with so many levels that continues those with these ids."""
    names = ", ".join(f'"{name}"' for name in earlier)
    before = f"continues = [{names}]\n" if earlier else ""
    return survey_text(
        **{
            "shards": f"{before}shards = 16",
            "ladder": f"ladder = {list(LEVELS[:rungs])}",
            "opens": "opens = [" + ", ".join(f'"{opens}"' for opens in OPENS[:rungs]) + "]",
            **changes,
        }
    )


def with_rungs(rungs: int, *earlier: str, **changes: str) -> Survey:
    """Return that survey."""
    return parse_survey(text_with_rungs(rungs, *earlier, **changes), "test.toml")


SHORT = with_rungs(2)
LONGER = with_rungs(3, SHORT.id)
LONGEST = with_rungs(5, SHORT.id, LONGER.edition)


def on_demand() -> tuple[Survey, Survey]:
    """Return two of them whose levels are released on demand."""
    changes = {"kind": 'kind = "on_demand"', "opens": ""}
    short = with_rungs(2, **changes)
    return short, with_rungs(3, short.id, **changes)
