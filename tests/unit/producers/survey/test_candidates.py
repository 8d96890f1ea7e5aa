"""Candidates in a file of their own: read, refused, changed while a survey runs."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest

from producers.survey.folder import RESCAN_MS, SurveyFolder
from producers.survey.survey import Survey, SurveyError, load_survey, parse_survey
from tests.support.surveys import survey_text

NOW = 1_000_000
TEXT = survey_text(values='values = {candidates = "colour.txt"}', ladder="ladder = [2.0, 4.0, 8.0]").replace(
    'name = "grr"', 'name = "rappor"\nbits = 32\ncohorts = 2'
)


def folder_with(folder: Path, candidates: str | bytes | None, text: str = TEXT, *, version: int = 0) -> Path:
    file = folder / "colour.toml"
    file.write_text(text)
    os.utime(file, ns=(version, version))
    if candidates is not None:
        write_candidates(folder, candidates, version=version)
    return file


def write_candidates(folder: Path, candidates: str | bytes, *, version: int) -> None:
    file = folder / "colour.txt"
    file.write_bytes(candidates if isinstance(candidates, bytes) else candidates.encode())
    os.utime(file, ns=(version, version))


def labels(survey: Survey | None) -> tuple[str, ...]:
    assert survey is not None
    return survey.mechanism.labels


def test_lines_are_candidates_and_the_id_does_not_depend_on_them(tmp_path: Path) -> None:
    first = load_survey(folder_with(tmp_path, "\ufeffred\r\n\n  dark green \nшафран"))
    assert first.mechanism.labels == ("red", "dark green", "шафран")
    second = load_survey(folder_with(tmp_path, "blue\n"))
    assert second.id == first.id
    assert second.decoding_hash == first.decoding_hash
    assert second.candidates_hash != first.candidates_hash
    listed = parse_survey(TEXT.replace('{candidates = "colour.txt"}', '["blue"]'), "test.toml")
    assert listed.id != first.id
    assert listed.candidates_hash == ""


def test_a_device_needs_no_candidates(tmp_path: Path) -> None:
    file = folder_with(tmp_path, "red\n")
    known = load_survey(file)
    (tmp_path / "colour.txt").unlink()
    assert load_survey(file, candidates=["any"]).digest == known.digest


@pytest.mark.parametrize(
    ("candidates", "text", "field", "remedy"),
    [
        (None, TEXT, "values.candidates", "put it beside the survey file"),
        (b"\xff\xfe", TEXT, "values.candidates", "save the file as UTF-8"),
        ("red\nred\n", TEXT, "values.candidates[1]", "every value occurs once"),
        ("\n", TEXT, "values", "needs at least 1"),
        ("red\n", TEXT.replace("colour.txt", "../colour.txt"), "values.candidates", "without a path"),
        (
            "red\n",
            TEXT.replace('name = "rappor"\nbits = 32\ncohorts = 2', 'name = "grr"'),
            "values.candidates",
            "rappor",
        ),
        ("red\n", TEXT.replace("bits = 32", "open_list = false\nbits = 32"), "values.candidates", "open_list = true"),
        ("red\n", TEXT.replace("candidates =", 'attributes = {a = ["b"]}, candidates ='), "values", "one of grid"),
    ],
)
def test_what_cannot_be_candidates_is_refused(
    tmp_path: Path, candidates: str | bytes | None, text: str, field: str, remedy: str
) -> None:
    file = folder_with(tmp_path, candidates, text)
    with pytest.raises(SurveyError) as refused:
        load_survey(file)
    assert refused.value.field == field
    assert remedy in str(refused.value)


def test_a_changed_file_is_read_again_while_the_survey_stays(tmp_path: Path) -> None:
    digest = load_survey(folder_with(tmp_path, "red\n")).digest
    surveys = SurveyFolder(tmp_path, NOW)
    assert labels(surveys.get(digest, NOW)) == ("red",)
    write_candidates(tmp_path, "red\nblue\n", version=1)
    assert labels(surveys.get(digest, NOW + RESCAN_MS - 1)) == ("red",)
    assert labels(surveys.get(digest, NOW + RESCAN_MS)) == ("red", "blue")
    assert len(surveys.surveys(NOW + RESCAN_MS)) == 1


def test_the_last_valid_candidates_stay_in_force(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    digest = load_survey(folder_with(tmp_path, "red\n")).digest
    surveys = SurveyFolder(tmp_path, NOW)
    (tmp_path / "colour.txt").unlink()
    with caplog.at_level(logging.ERROR):
        for scan in range(1, 4):
            assert labels(surveys.get(digest, NOW + scan * RESCAN_MS)) == ("red",)
    assert len(caplog.records) == 1, "what has not changed is not said again"
    assert "put it beside the survey file" in str(surveys.errors["colour.toml"])
    write_candidates(tmp_path, "green\n", version=2)
    assert labels(surveys.get(digest, NOW + 4 * RESCAN_MS)) == ("green",)
    assert surveys.errors == {}


def test_a_survey_whose_candidates_come_later_is_found_when_they_come(tmp_path: Path) -> None:
    folder_with(tmp_path, None)
    surveys = SurveyFolder(tmp_path, NOW)
    assert surveys.surveys(NOW) == ()
    write_candidates(tmp_path, "red\n", version=0)
    assert [labels(found) for found in surveys.surveys(NOW + RESCAN_MS)] == [("red",)]
