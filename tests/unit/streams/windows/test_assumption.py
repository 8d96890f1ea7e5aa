"""The stored estimate says what the survey assumed about rungs and whether the homogeneity test contradicts it."""

import msgspec
import numpy as np
import pytest

from estimators.estimates import Estimates
from estimators.tally import Tally
from producers.survey.survey import Survey, parse_survey
from streams.windows.record import decode_estimate, make_record
from streams.windows.window_record import contradicted
from tests.support.surveys import WEEK, survey_text


def assuming(rungs: str) -> Survey:
    return parse_survey(survey_text() + f'\n[estimate]\nrungs = "{rungs}"\n', "test.toml")


def estimates(p: float | None) -> Estimates:
    third = np.full(3, 1 / 3)
    return Estimates(
        labels=("red", "green", "blue"),
        value=third,
        variance=third / 100,
        lower=third - 0.1,
        upper=third + 0.1,
        simultaneous_lower=third - 0.2,
        simultaneous_upper=third + 0.2,
        method="pooled",
        population="fleet",
        alpha=0.05,
        users=300,
        homogeneity_p=p,
    )


@pytest.mark.parametrize(
    ("rungs", "p", "expected"),
    [("independent", 0.0009, True), ("independent", 0.001, False), ("independent", None, False), ("any", 1e-9, False)],
)
def test_a_small_p_value_contradicts_only_what_was_assumed(rungs: str, p: float | None, expected: bool) -> None:
    known = assuming(rungs)
    tally = Tally(np.zeros((3, 1, 3), dtype=np.int64), np.full((3, 1), 100, dtype=np.int64))
    against = contradicted(known, estimates(p))
    record = make_record(known, WEEK, tally, estimates(p), read_ms=WEEK, computed_ms=WEEK, contradicted=against)
    assert (record.assumption, record.contradicted) == (rungs, expected)
    assert decode_estimate(record.encode()) == record


def test_records_of_earlier_versions_have_no_assumption() -> None:
    tally = Tally(np.zeros((3, 1, 3), dtype=np.int64), np.full((3, 1), 100, dtype=np.int64))
    record = make_record(assuming("independent"), WEEK, tally, estimates(1e-9), read_ms=WEEK, computed_ms=WEEK)
    old = msgspec.json.decode(record.encode())
    del old["assumption"], old["contradicted"]
    read = decode_estimate(msgspec.json.encode(old))
    assert (read.assumption, read.contradicted) == ("any", False)
