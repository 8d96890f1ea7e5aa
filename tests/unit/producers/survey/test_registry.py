"""The registry of a survey: who shows it, and that nothing is answered or counted after its expiry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from producers.device.agent import Device
from producers.survey.document import DocumentError, document_of, opened, sealed
from producers.survey.survey import Survey, SurveyError, parse_survey
from streams.cli.survey import check_command
from streams.exporter.views import survey_info
from streams.gateway.judge import judge
from streams.kafka.messages import FetchBatch, Record
from streams.worker.fold import check
from tests.support.surveys import WEEK, WINDOW_MS, survey, survey_text
from tests.support.transports import MemoryTransport, rungs
from tests.unit.streams.gateway.test_mixing import Known, body

EXPIRES_MS = WEEK + WINDOW_MS + 20_000
"""Between the opening of rung 1 and that of rung 2."""
TABLE = """
[registry]
owner = "web@example.org"
purpose = "Decide which browsers to test."
expires = {expires}
review = "https://reviews.example.org/17"
"""


def text(expires: str = "2026-09-21T14:15:20Z") -> str:
    return survey_text() + TABLE.format(expires=expires)


def registered() -> Survey:
    return parse_survey(text())


def test_it_is_read_and_changes_nothing_that_decoding_depends_on() -> None:
    asked = registered()
    assert asked.registry.expires_ms == EXPIRES_MS
    assert (asked.registry.owner, asked.registry.review) == ("web@example.org", "https://reviews.example.org/17")
    assert asked.id == survey().id
    assert parse_survey(text("2026-09-22")).registry.expires_ms == 1_790_035_200_000
    info = survey_info(asked).registry
    assert (info.owner, info.expires_ms) == ("web@example.org", EXPIRES_MS)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('owner = "a\\nb"', "registry.owner: must be one line"),
        (f'owner = "{"x" * 101}"', "registry.owner: must be one line of at most 100 characters"),
        ('review = "javascript:alert(1)"', "registry.review: must be the address"),
        ("expires = 2026-09-22T00:00:00", "registry.expires: it has no time zone"),
        ("expires = 5", "registry.expires: expected `datetime | null`"),
        ('contact = "x"', "registry"),
    ],
)
def test_what_is_no_registry_is_refused(line: str, words: str) -> None:
    with pytest.raises(SurveyError) as error:
        parse_survey(f"{survey_text()}\n[registry]\n{line}\n")
    assert words in str(error.value)


def test_a_device_draws_releases_and_sends_nothing_after_the_expiry(tmp_path: Path) -> None:
    transport, asked = MemoryTransport(), registered()
    with Device(tmp_path / "ledger", [asked], transport) as device:
        device.observe(asked, "red", WEEK)
        assert device.tick(WEEK).sent == 1
        transport.away = True
        assert device.tick(WEEK + WINDOW_MS + 10_000).waiting == 1
        transport.away = False
        spent = device.odometer.spent_units
        tick = device.tick(EXPIRES_MS)
        assert (tick.released, tick.sent, tick.waiting) == (0, 0, 0)
        assert device.observe(asked, "red", EXPIRES_MS) == ()
        assert device.tick(EXPIRES_MS + 60_000).released == 0
        assert device.odometer.spent_units == spent
    assert rungs(transport, asked) == [0]


def test_nothing_is_counted_that_arrives_after_the_expiry() -> None:
    asked = registered()
    raw = body(asked, 3, seed=1)
    for at_ms, counted in ((EXPIRES_MS - 1, True), (EXPIRES_MS, False)):
        batch = FetchBatch("t", 0, 0, 1, [Record(0, at_ms, raw)])
        checked = check([batch], Known(asked), 1, at_ms, keep_expired=True)
        refused = {letter.reason for letter in checked.expired}
        told = {frame.reason for frame in judge(raw, Known(asked), at_ms).refused}
        assert ("expired" in refused) == ("expired" in told) == (not counted)
        assert not checked.reports or counted


def test_an_expired_survey_is_not_taken_from_a_gateway() -> None:
    asked = registered()
    raw = sealed(document_of(asked, text(), WEEK, EXPIRES_MS + 100_000), None, None)
    assert opened(raw, "gateway", EXPIRES_MS - 1)[0].id == asked.id
    with pytest.raises(DocumentError, match="has expired"):
        opened(raw, "gateway", EXPIRES_MS)


def test_check_tells_it(tmp_path: Path) -> None:
    path = tmp_path / "colour.toml"
    path.write_text(text())
    said = CliRunner().invoke(check_command, [str(path)]).stdout
    for words in ("Owner: web@example.org.", "Decide which browsers", "/17", "It expires at 2026-09-21 14:15:20 UTC"):
        assert words in said
    data = json.loads(CliRunner().invoke(check_command, [str(path), "--json"]).stdout)
    assert (data["owner"], data["expires_ms"]) == ("web@example.org", EXPIRES_MS)
