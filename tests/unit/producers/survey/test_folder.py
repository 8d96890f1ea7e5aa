"""A folder of surveys that changes while a process runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from producers.survey.folder import RESCAN_MS, RESCAN_UNKNOWN_MS, SurveyFolder
from tests.support.surveys import survey, survey_text

NOW = 1_000_000
COLOUR, SHADE = survey(), survey(name='name = "shade"')


def write(path: Path, text: str, *, version: int = 0) -> None:
    path.write_text(text)
    os.utime(path, ns=(version, version))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path / "colour.toml", survey_text())
    return tmp_path


def test_surveys_are_found_by_digest(folder: Path) -> None:
    surveys = SurveyFolder(folder, NOW)
    assert surveys.get(COLOUR.digest, NOW) is not None
    assert surveys.get(b"unknown.", NOW) is None
    assert [found.id for found in surveys.surveys(NOW)] == [COLOUR.id]


def test_an_unknown_digest_starts_a_scan_at_most_once_a_second(folder: Path) -> None:
    surveys = SurveyFolder(folder, NOW)
    write(folder / "shade.toml", survey_text(name='name = "shade"'))
    assert surveys.get(SHADE.digest, NOW + RESCAN_UNKNOWN_MS - 1) is None
    assert surveys.get(SHADE.digest, NOW + RESCAN_UNKNOWN_MS) is not None


def test_known_surveys_are_read_again_every_ten_seconds(folder: Path) -> None:
    surveys = SurveyFolder(folder, NOW)
    write(folder / "colour.toml", survey_text(lifetime="lifetime = 7"), version=1)
    before = surveys.get(COLOUR.digest, NOW + RESCAN_MS - 1)
    after = surveys.get(COLOUR.digest, NOW + RESCAN_MS)
    assert before is not None
    assert after is not None
    assert (before.lifetime_epsilon, after.lifetime_epsilon) == (100.0, 7.0)


def test_a_clock_that_was_set_back_does_not_stop_the_scans(folder: Path) -> None:
    surveys = SurveyFolder(folder, NOW)
    write(folder / "shade.toml", survey_text(name='name = "shade"'))
    assert surveys.get(SHADE.digest, 0) is not None


def test_a_broken_file_is_reported_once_and_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(folder / "broken.toml", "rubbish")
    with caplog.at_level(logging.ERROR):
        surveys = SurveyFolder(folder, NOW)
        surveys.surveys(NOW + RESCAN_MS)
    assert len(caplog.records) == 1
    assert "survey file skipped" in caplog.text
    assert "broken.toml" in surveys.errors
    assert surveys.get(COLOUR.digest, NOW) is not None
    write(folder / "broken.toml", survey_text(name='name = "shade"'), version=1)
    assert surveys.get(SHADE.digest, NOW + 2 * RESCAN_MS) is not None
    assert surveys.errors == {}


def test_a_file_that_breaks_or_goes_leaves_its_last_good_version(folder: Path) -> None:
    surveys = SurveyFolder(folder, NOW)
    write(folder / "colour.toml", "rubbish", version=1)
    assert surveys.get(COLOUR.digest, NOW + RESCAN_MS) is not None
    (folder / "colour.toml").unlink()
    assert surveys.get(COLOUR.digest, NOW + 2 * RESCAN_MS) is not None
    assert surveys.errors == {}


def test_a_folder_that_cannot_be_read_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    surveys = SurveyFolder(tmp_path / "none", NOW)
    surveys.surveys(NOW + RESCAN_MS)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "cannot be read (No such file or directory); known surveys are kept" in caplog.text
    (tmp_path / "none").mkdir()
    write(tmp_path / "none" / "colour.toml", survey_text())
    assert surveys.get(COLOUR.digest, NOW + 2 * RESCAN_MS) is not None


def test_a_process_that_only_shows_surveys_lists_what_the_folder_holds(folder: Path) -> None:
    write(folder / "shade.toml", survey_text(name='name = "shade"'))
    kept, shown = SurveyFolder(folder, NOW), SurveyFolder(folder, NOW, keep_removed=False)
    changed = survey(ladder="ladder = [0.5, 1.0, 3.0]")
    write(folder / "colour.toml", survey_text(ladder="ladder = [0.5, 1.0, 3.0]"), version=1)
    (folder / "shade.toml").unlink()
    later = NOW + RESCAN_MS
    assert [found.id for found in shown.surveys(later)] == [changed.id]
    assert {found.id for found in kept.surveys(later)} == {COLOUR.id, SHADE.id, changed.id}
    write(folder / "colour.toml", "rubbish", version=2)
    assert [found.id for found in shown.surveys(later + RESCAN_MS)] == [changed.id], "the last good version"


def test_a_link_to_nowhere_is_reported_once_and_read_when_its_file_comes(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    target = tmp_path / "elsewhere"
    (folder / "link.toml").symlink_to(target)
    surveys = SurveyFolder(folder, 0)
    known = len(surveys.surveys(20_000))
    assert [record.getMessage() for record in caplog.records if "link.toml" in record.getMessage()] == [
        f"survey file skipped: {surveys.errors['link.toml']}"
    ]
    target.write_text(survey_text(name='name = "linked"'))
    assert len(surveys.surveys(40_000)) == known + 1
    assert not surveys.errors
