"""Scaled copies of survey files: a demo shrinks windows and schedule by one factor.

The copy asks the same question with the same mechanism and the same levels, so its privacy per window and its bands
are those of the original. Its windows differ, and so does its id.
"""

from __future__ import annotations

import tomllib
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w

from producers.survey.durations import format_duration, parse_duration
from producers.survey.survey import Survey, parse_survey

WINDOWS = 10
"""Windows that must settle while the demo runs."""
VALUES = 30
"""Estimates that must be compared with their truth: a survey of one or two values needs more windows for them."""
SLACK_MS = 4_000
"""What start-up, delays and the last estimate may take. Smaller: the tenth window is missed on a slow machine."""
GRAIN_MS = 100


@dataclass(frozen=True)
class DemoSurvey:
    """A survey of the demo: the file it runs from, and by how much it was shrunk."""

    survey: Survey
    path: Path
    factor: float


def shrink_factor(survey: Survey, seconds: int) -> float:
    """Return the largest factor, at most 1, with which enough windows settle within `seconds`."""
    windows = max(WINDOWS, -(-VALUES // len(survey.mechanism.labels)))
    needed_ms = (windows + 1) * survey.windows.step_ms + survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    return min(1.0, max(seconds * 1_000 - SLACK_MS, 2_000) / needed_ms)


def scaled_copy(path: Path, folder: Path, seconds: int) -> DemoSurvey:
    """Write a copy that settles enough windows within `seconds` into `folder`, and load it."""
    text = path.read_text()
    original = parse_survey(text, str(path))
    factor = shrink_factor(original, seconds)
    raw = tomllib.loads(text)
    copy = scaled(raw, factor) if factor < 1.0 else raw
    target = folder / path.name
    target.write_text(tomli_w.dumps(copy))
    return DemoSurvey(parse_survey(target.read_text(), str(target)), target, factor)


def scaled(raw: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return the file's content with window, step, opening times and jitter multiplied by `factor`.

    Retention and skew stay: they are limits of the collector, not times of the devices.
    """
    copy = deepcopy(raw)

    def shrink(text: str, grain_ms: int = 1) -> str:
        shrunk = round(parse_duration(text) * factor / grain_ms) * grain_ms
        return format_duration(max(shrunk, grain_ms))

    window = copy["window"]
    window["size"] = shrink(window["size"], GRAIN_MS)
    if "step" in window:
        window["step"] = shrink(window["step"], GRAIN_MS)
    release = copy["release"]
    for name in ("every", "jitter"):
        if name in release:
            release[name] = shrink(release[name])
    if "opens" in release:
        release["opens"] = [text if parse_duration(text) == 0 else shrink(text) for text in release["opens"]]
    return copy
