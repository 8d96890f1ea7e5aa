"""Estimates as they are stored: what cannot be known is null, and other versions are told apart."""

from __future__ import annotations

import pytest

from estimators.estimation.registry import estimator_of
from estimators.tally import Tally
from producers.survey.survey import parse_survey
from streams.windows.record import RecordError, decode_estimate, make_record
from tests.support.surveys import WEEK, survey, survey_text


def test_what_cannot_be_estimated_is_null() -> None:
    colour = survey()
    empty = Tally.empty(3, 1, 3)
    estimates = estimator_of(colour.mechanism).estimate(empty)
    record = make_record(colour, WEEK, empty, estimates, read_ms=1, computed_ms=2)
    assert record.users == 0
    assert all(row.estimate is None and row.lower is None for row in record.values)
    assert decode_estimate(record.encode()) == record
    assert b"NaN" not in record.encode()


def test_other_bytes_are_no_estimate() -> None:
    with pytest.raises(RecordError, match="not an estimate"):
        decode_estimate(b"{}")
    colour = survey()
    empty = Tally.empty(3, 1, 3)
    later = make_record(
        colour, WEEK, empty, estimator_of(colour.mechanism).estimate(empty), read_ms=1, computed_ms=2
    ).encode()
    with pytest.raises(RecordError, match="reads estimates of version 1; got 2; update it"):
        decode_estimate(later.replace(b'"version":1', b'"version":2'))
    assert decode_estimate(later.replace(b'"version":1', b'"version":1,"new":3')).version == 1


def test_totals_of_a_key_value_survey_are_stored_with_what_they_mean() -> None:
    keys = parse_survey(survey_text().replace('name = "grr"', 'name = "lpp"'))
    estimator = estimator_of(keys.mechanism)
    tally, few, nobody = Tally.empty(3, 1, 9), Tally.empty(3, 1, 9), Tally.empty(3, 1, 9)
    tally.counts[2, 0] = [500, 300, 200] * 3
    tally.users[2, 0] = 3_000
    few.counts[2, 0, 0] = few.users[2, 0] = 5
    full, some, none = (
        make_record(keys, WEEK, counted, estimator.estimate(counted), read_ms=1, computed_ms=2)
        for counted in (tally, few, nobody)
    )
    edges = full.derived[0]
    assert (edges.name, edges.kind) == ("edges", "total")
    assert edges.lower is not None
    assert edges.estimate is not None
    assert edges.lower < edges.estimate
    assert decode_estimate(full.encode()) == full
    assert [one.estimate for one in some.derived] == [None] * 6
    assert b"NaN" not in some.encode()
    assert none.derived == []
