"""Copies of surveys for the demo: everything that takes time shrinks by one factor."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.local.demo_surveys import SLACK_MS, VALUES, WINDOWS, scaled_copy
from tests.support.paths import ROOT
from tests.support.surveys import survey_text

SECONDS = 60


@pytest.mark.parametrize("jitter", ["", 'jitter = "0s"', 'jitter = "12h"'])
def test_a_copy_settles_ten_windows_in_time_and_its_jitter_shrinks_along(tmp_path: Path, jitter: str) -> None:
    path, folder = tmp_path / "daily.toml", tmp_path / "copies"
    folder.mkdir()
    opens, size, retention = 'opens = ["0s", "6h", "12h"]', 'size = "1d"', 'retention = "9d"'
    path.write_text(survey_text(jitter=jitter, opens=opens, size=size, retention=retention))
    copy = scaled_copy(path, folder, SECONDS)
    survey = copy.survey
    whole_ms = 0 if jitter == 'jitter = "0s"' else 43_200_000
    # Window sizes are rounded to 100 ms, and half of that is in a jitter that follows from the window.
    assert survey.jitter_ms == pytest.approx(whole_ms * copy.factor, abs=51)
    last_ms = survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    assert WINDOWS * survey.windows.step_ms + last_ms < SECONDS * 1_000 - SLACK_MS


@pytest.mark.parametrize("after", ["0s", "1d"])
def test_a_copy_that_is_released_on_demand_settles_in_time(tmp_path: Path, after: str) -> None:
    path, folder = tmp_path / "daily.toml", tmp_path / "copies"
    folder.mkdir()
    kind, opens = 'kind = "on_demand"', f'after = "{after}"'
    path.write_text(survey_text(kind=kind, opens=opens, size='size = "1d"', retention='retention = "9d"'))
    copy = scaled_copy(path, folder, SECONDS)
    whole_ms = 0 if after == "0s" else 86_400_000
    first_ms, *others_ms = copy.survey.opens_ms
    assert copy.survey.on_demand
    assert first_ms == 0
    assert others_ms == pytest.approx([whole_ms * copy.factor] * 2, abs=1)
    last_ms = copy.survey.windows.size_ms + copy.survey.opens_ms[-1] + copy.survey.jitter_ms
    assert WINDOWS * copy.survey.windows.step_ms + last_ms < SECONDS * 1_000 - SLACK_MS


@pytest.mark.parametrize("path", sorted((ROOT / "deploy" / "surveys").glob("*.toml")), ids=lambda path: path.stem)
def test_every_example_compares_thirty_values_of_ten_windows_in_half_a_minute(tmp_path: Path, path: Path) -> None:
    survey = scaled_copy(path, tmp_path, 30).survey
    last_ms = survey.windows.size_ms + survey.opens_ms[-1] + survey.jitter_ms
    windows = (30_000 - SLACK_MS - last_ms) // survey.windows.step_ms
    assert windows >= WINDOWS
    assert windows * len(survey.mechanism.labels) >= VALUES


@pytest.mark.parametrize(
    ("ladder", "tiers"),
    [
        ("[1.0]", {"owner": 0}),
        ("[0.5, 1.0]", {"public": 0, "owner": 1}),
        ("[0.5, 1.0, 2.0]", {"public": 0, "partners": 1, "owner": 2}),
    ],
)
def test_a_copy_has_the_tiers_that_its_scenario_needs(tmp_path: Path, ladder: str, tiers: dict[str, int]) -> None:
    rungs = ladder.count(",") + 1
    opens = "opens = [" + ", ".join(f'"{10 * rung}s"' for rung in range(rungs)) + "]"
    path = tmp_path / "colour.toml"
    path.write_text(survey_text(ladder=f"ladder = {ladder}", opens=opens))
    (tmp_path / "copies").mkdir()
    copy = scaled_copy(path, tmp_path / "copies", SECONDS, "tiers")
    assert dict(copy.survey.tiers) == tiers
    path.write_text(survey_text(shards="shards = 16\ntiers = {press = 0}"))
    own = scaled_copy(path, tmp_path / "copies", SECONDS, "tiers")
    assert dict(own.survey.tiers) == {"press": 0}, "a survey that has tiers keeps them"
