"""Frames of another version beside those of today: counted alike once there is a reader for them."""

import random

import pytest

from producers.survey.survey import Survey
from producers.wire.frames import READERS, FrameError, Header, columns, headers
from producers.wire.layout import COUNT_AT, MAX_REPORTS
from streams.store.shape import Key
from streams.worker.fold import check
from tests.support.next_version import NEXT, NextReader, to_next
from tests.support.reports import (
    NOW_MS,
    SURVEYS,
    WINDOW,
    Report,
    SurveyDict,
    batch_of,
    frame_of,
    packed,
    random_reports,
    token_in,
)

CATEGORICAL = SURVEYS[0]


@pytest.fixture
def _next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, NEXT, NextReader())


def frames(survey: Survey) -> tuple[bytes, bytes, list[Report]]:
    """Return a frame of today, one of version 3, and the reports of both."""
    old, new = random_reports(survey, 20, 13, random.Random(1), 0), random_reports(survey, 20, 7, random.Random(2), 0)
    return frame_of(survey, old), to_next(frame_of(survey, new), survey), old + new


@pytest.mark.usefixtures("_next_version")
@pytest.mark.parametrize("survey", SURVEYS, ids=lambda survey: survey.name)
def test_versions_may_be_mixed_in_one_message(survey: Survey) -> None:
    old, new, reports = frames(survey)
    checked = check([batch_of(b"?" + old, old + new)], SurveyDict(survey), 1, NOW_MS)
    assert [(letter.offset, letter.reason) for letter in checked.dead_letters] == [(0, "magic")]
    [found] = checked.reports.values()
    assert found.tobytes() == packed(survey, reports).tobytes()


@pytest.mark.usefixtures("_next_version")
def test_a_frame_of_another_version_that_is_refused_is_a_dead_letter_with_its_own_bytes() -> None:
    old, new, _ = frames(CATEGORICAL)
    high = Report(token_in(0, 1, CATEGORICAL), CATEGORICAL.mechanism.rungs, b"\0")
    refused = {
        "rung": to_next(frame_of(CATEGORICAL, [high]), CATEGORICAL),
        "count": new[:COUNT_AT] + (MAX_REPORTS + 1).to_bytes(4, "little") + new[COUNT_AT + 4 :],
        "length": new[:COUNT_AT] + (1).to_bytes(4, "little") + new[COUNT_AT + 4 :],
        "survey": new[:8] + b"whatever" + new[16:],
        "version": new[:3] + bytes([NEXT + 1]) + new[4:],
    }
    checked = check([batch_of(old, *refused.values())], SurveyDict(CATEGORICAL), 1, NOW_MS)
    assert [(letter.reason, letter.frame) for letter in checked.dead_letters] == list(refused.items())
    assert list(checked.reports) == [Key(CATEGORICAL.id, WINDOW, 0)]


def test_without_a_reader_the_frame_is_refused_and_its_neighbours_are_read() -> None:
    old, new, _ = frames(CATEGORICAL)
    found = list(headers(new + old))
    assert isinstance(found[0], FrameError)
    assert (found[0].reason, str(found[0])) == ("version", f"this worker reads version 1, 2; got {NEXT}")
    assert isinstance(found[1], Header)
    checked = check([batch_of(new + old)], SurveyDict(CATEGORICAL), 1, NOW_MS)
    assert [letter.frame for letter in checked.dead_letters] == [new]
    assert sum(map(len, checked.reports.values())) == 13


@pytest.mark.usefixtures("_next_version")
def test_columns_are_read_by_the_reader_of_the_header() -> None:
    _, new, reports = frames(CATEGORICAL)
    [header] = headers(b"" + new)
    assert isinstance(header, Header)
    assert header.version == NEXT
    read = columns(new, header, CATEGORICAL.layout)
    assert [token.tobytes() for token in read.tokens] == [report.token for report in reports[13:]]
