"""Surveys for tests: one small file, changed where a test needs it."""

from __future__ import annotations

from producers.survey.survey import Survey, parse_survey

TEXT = """
name = "colour"
question = "Which colour do you like most?"
values = ["red", "green", "blue"]
shards = 16

[mechanism]
name = "grr"

[release]
kind = "listed"
ladder = [0.5, 1.0, 2.0]
opens = ["0s", "10s", "30s"]
jitter = "0s"

[window]
size = "1m"
retention = "5m"

[budget]
lifetime = 100
"""

INDEPENDENT = 'lifetime = 100\n[estimate]\nrungs = "independent"'
"""In place of the line of the lifetime: the survey assumes that rungs do not depend on values."""

WINDOW_MS = 60_000
WEEK = 1_790_000_040_000 // WINDOW_MS * WINDOW_MS
"""Start of a window, far from the epoch so that small and large numbers cannot be mixed up unnoticed."""


def survey_text(**changes: str) -> str:
    """Return the text with words replaced: survey_text(old="new") by line, where `old` begins a line."""
    lines = []
    for line in TEXT.splitlines():
        word = line.split(" ")[0]
        lines.append(changes.pop(word, line) if word else line)
    assert not changes, f"no line begins with {sorted(changes)}"
    return "\n".join(lines)


def survey(**changes: str) -> Survey:
    """Return the checked survey of survey_text."""
    return parse_survey(survey_text(**changes), "test.toml")
