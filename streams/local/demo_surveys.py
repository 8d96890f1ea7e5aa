"""Scaled copies of survey files: a demo shrinks windows and schedule by one factor.

The copy asks the same question with the same mechanism and the same levels, so its privacy per window and its bands
are those of the original. Its windows differ, and so does its id.
"""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tomli_w

from producers.clock import system_clock
from producers.simulation.scenarios import SCENARIOS
from producers.survey.candidates import candidates_path
from producers.survey.durations import format_duration, parse_duration
from producers.survey.survey import Survey, load_survey, parse_survey
from streams.local.fleet import FleetOptions, plans_for
from streams.settings import load_settings

WINDOWS = 10
"""Windows that must settle while the demo runs."""
VALUES = 30
"""Estimates that must be compared with their truth: a survey of one or two values needs more windows for them."""
SLACK_MS = 4_000
"""What start-up, delays and the last estimate may take. Smaller: the tenth window is missed on a slow machine."""
GRAIN_MS = 100
DEALT_DEVICES = 600
"""Devices of surveys with cards: each asks the dealer for its own in every window, and windows are seconds long."""


@dataclass(frozen=True)
class DemoSurvey:
    """A survey of the demo: the file it runs from, and by how much it was shrunk."""

    survey: Survey
    path: Path
    factor: float

    @property
    def is_dealt(self) -> bool:
        """Whether devices answer with cards that a dealer hands out."""
        return is_dealt(self.survey)


def is_dealt(survey: Survey) -> bool:
    """Tell whether simulated devices of a survey ask a dealer for cards; those of a canary deal to themselves."""
    return bool(survey.mechanism.cards) and survey.canary is None


def shrink_factor(survey: Survey, seconds: int) -> float:
    """Return the largest factor, at most 1, with which enough windows settle within `seconds`."""
    windows = max(WINDOWS, -(-VALUES // len(survey.mechanism.labels)))
    needed_ms = (windows + 1) * survey.windows.step_ms + survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    return min(1.0, max(seconds * 1_000 - SLACK_MS, 2_000) / needed_ms)


def scaled_copy(
    path: Path, folder: Path, seconds: int, scenario: str = "steady", *, visitors: bool = False
) -> DemoSurvey:
    """Write a copy that settles enough windows within `seconds` into `folder`, with its candidates, and load it.

    A copy has what the scenario needs of its survey, and lets visitors take answers back; a canary stays as it is.
    """
    text = path.read_text()
    original = parse_survey(text, str(path))
    factor = shrink_factor(original, seconds)
    raw = tomllib.loads(text)
    raw.pop("continues", None)  # a copy has windows of its own, and no chains to go on with
    if scenario in SCENARIOS and original.canary is None:
        table, _, field = SCENARIOS[scenario].needs.rpartition(".")
        if field:
            (raw[table] if table else raw)[field] = example_tiers(original) if field == "tiers" else True
        if visitors:
            raw["withdrawable"] = True
    copy = scaled(raw, factor) if factor < 1.0 else raw
    target = folder / path.name
    target.write_text(tomli_w.dumps(copy))
    if original.candidates:
        shutil.copy(candidates_path(str(path), original.candidates), candidates_path(str(target), original.candidates))
    return DemoSurvey(parse_survey(target.read_text(), str(target)), target, factor)


def example_tiers(survey: Survey) -> dict[str, int]:
    """Return the tiers of a survey, or the three of the demo, as far as the ladder has rungs for them."""
    own = {tier.name: tier.rung for tier in survey.tiers}
    top = survey.mechanism.rungs - 1
    # By rung: of names for one rung the last remains.
    named = {0: "public", top // 2: "partners", top: "owner"} if top > 1 else {0: "public", top: "owner"}
    return own or {name: rung for rung, name in named.items()}


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
    if parse_duration(release.get("after", "0s")) != 0:
        release["after"] = shrink(release["after"])
    return copy


def data_of_fleets(files: Sequence[Path], *, devices: int, scenario: str, seed: int, real_data: bool) -> list[str]:
    """Return a line per survey that says where its values come from.

    Raises what the fleets would raise after everything else was started.
    """
    with TemporaryDirectory() as trial:
        # As long as a window or not: a survey gets what the scenario needs of it.
        copies = [scaled_copy(path, Path(trial), WINDOWS, scenario).path for path in files]
        return _data_of_fleets(copies, devices=devices, scenario=scenario, seed=seed, real_data=real_data)


def _data_of_fleets(files: Sequence[Path], *, devices: int, scenario: str, seed: int, real_data: bool) -> list[str]:
    surveys = {str(path): load_survey(path) for path in files}
    lines = []
    for canary, dealt in ((False, False), (False, True), (True, False)):
        chosen = tuple(
            path for path, survey in surveys.items() if (survey.canary is not None, is_dealt(survey)) == (canary, dealt)
        )
        options = FleetOptions(
            load_settings(),
            chosen,
            min(devices, DEALT_DEVICES) if dealt else devices,
            scenario,
            seed,
            real_data=real_data,
            canary=canary,
            dealer="http://127.0.0.1" if dealt else "",
        )
        for plan in plans_for(options, system_clock()):
            devices_said = f"; {plan.devices:,} devices" if dealt else ""
            lines.append(f"values of {plan.survey.name}: {plan.data}{devices_said}")
    return lines
