"""The end of a survey: how it is written, and what devices and `thaw survey check` make of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from producers.device.agent import Device
from producers.survey.survey import SurveyError, parse_survey
from streams.cli.survey import check_command
from tests.support.surveys import WEEK, WINDOW_MS, survey, survey_text
from tests.support.transports import MemoryTransport, rungs

NEW_YEAR_MS = 1_798_761_600_000


def written(end: str) -> str:
    return survey_text(shards=f"shards = 16\nend = {end}")


@pytest.mark.parametrize(
    "end", ["2027-01-01", "2027-01-01T00:00:00Z", "2027-01-01T01:00:00+01:00", '"2027-01-01T00:00:00Z"']
)
def test_an_end_is_a_date_or_a_moment(end: str) -> None:
    assert parse_survey(written(end)).end_ms == NEW_YEAR_MS


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ("2027-01-01T00:00:00", "end: it has no time zone; write 2027-01-01T00:00:00Z for UTC"),
        ("0001-01-01T00:00:00+23:59", "end: it must lie in the years 1970 to 9999 of UTC"),
        ("9999-12-31T23:59:59-23:59", "end: it must lie in the years 1970 to 9999 of UTC"),
        ("5", "end: expected `datetime | null`, got `int`"),
        ('"soon"', "end: invalid RFC3339 encoded datetime"),
    ],
)
def test_an_end_that_is_no_moment_is_refused(end: str, words: str) -> None:
    with pytest.raises(SurveyError, match="end: ") as error:
        parse_survey(written(end), "colour.toml")
    assert words in str(error.value)


def test_an_end_changes_nothing_that_decoding_depends_on() -> None:
    assert parse_survey(written("2027-01-01")).id == survey().id


def test_a_device_answers_windows_that_start_before_the_end_and_no_other(tmp_path: Path) -> None:
    # The end lies in the middle of the second window.
    asked, transport = replace(survey(), end_ms=WEEK + WINDOW_MS + 1_000), MemoryTransport()
    with Device(tmp_path / "ledger.sqlite", [asked], transport) as device:
        assert len(device.observe(asked, "red", WEEK + WINDOW_MS + 30_000)) == 1
        assert device.observe(asked, "red", WEEK + 2 * WINDOW_MS) == ()
        device.tick(WEEK + 2 * WINDOW_MS + 30_000)
        assert device.observe(asked, "red", WEEK + 3 * WINDOW_MS) == ()
    assert sorted(rungs(transport, asked)) == [0, 2], "one window; its last rung is released after the end"


def test_survey_check_says_when_a_survey_ends(tmp_path: Path) -> None:
    file = tmp_path / "colour.toml"
    file.write_text(written("2027-01-01"))
    shown = CliRunner().invoke(check_command, [str(file)])
    assert "It ends at 2027-01-01 00:00:00 UTC: devices start no window at or after" in shown.output
    assert json.loads(CliRunner().invoke(check_command, [str(file), "--json"]).output)["end_ms"] == NEW_YEAR_MS
