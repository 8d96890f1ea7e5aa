"""Expected intervals, people who stop early, a year of windows, and surveys outlined by flags."""

import math

import pytest

from estimators.planning.accounting import add_up, repeated_cost
from producers.planning.draft import Draft, sensitive_names, value_names
from producers.planning.intervals import Expectation, default_stops
from producers.planning.year import year_of
from producers.survey.messages import SurveyError
from tests.support.surveys import INDEPENDENT, survey


def test_intervals_are_given_per_value_rung_and_number_of_users() -> None:
    rows = Expectation(survey(), shares=[0.5, 0.3, 0.2]).intervals([500, 5_000])
    assert {(row.users, row.rung, row.value) for row in rows} == {
        (users, rung, value) for users in (500, 5_000) for rung in range(3) for value in ("red", "green", "blue")
    }
    for row in rows:
        assert row.half_width is not None
        assert row.lower is not None
        assert row.upper is not None
        assert row.assumed is not None
        assert row.lower < row.assumed < row.upper
        assert row.upper - row.lower == pytest.approx(2 * row.half_width)


def test_intervals_of_a_mean_are_in_its_unit() -> None:
    known = Draft((), "mean", (1.0, 3.0), (0, 1_000), parameters={"low": 1_000.0, "high": 3_000.0}).survey()
    row = Expectation(known).intervals([10_000])[-1]
    assert row.assumed == pytest.approx(2_000, abs=20)
    assert row.half_width is not None
    assert 10 < row.half_width < 100


def test_people_who_stop_early_cost_more_width_where_nothing_is_assumed() -> None:
    stops = (0.2, 0.1, 0.7)
    for known, used in ((survey(), "stratified"), (survey(lifetime=INDEPENDENT), "pooled")):
        nobody, dependent, late, capped = Expectation(known, stops=stops).stopping(10_000)
        assert nobody.half_width is not None
        assert dependent.half_width is not None
        assert late.half_width is not None
        assert nobody.half_width < late.half_width < dependent.half_width
        assert capped.users == 7_000
        assert capped.half_width == pytest.approx(nobody.half_width / math.sqrt(0.7), rel=0.02)
        assert [row.method for row in (dependent, late, capped) if row.used] == [used] * (
            1 if used == "stratified" else 2
        )
    assert Expectation(Draft(("a", "b"), "grr", (1.0,)).survey()).stopping(100) == []


def test_by_default_four_in_five_reach_the_top() -> None:
    assert default_stops(1) == (1.0,)
    assert default_stops(3) == pytest.approx((0.1, 0.1, 0.8))


@pytest.mark.parametrize(
    ("stops", "message"), [((1.0,), "3 in all"), ((0.5, 0.6, 0.1), "sum to 1"), ((2, -1, 0), "negat")]
)
def test_wrong_parts_are_refused(stops: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Expectation(survey(), stops=stops)


def test_a_year_of_fresh_chains_adds_up_as_the_ledger_does() -> None:
    known = Draft(("a", "b"), "grr", (0.5, 1.0), (0, 1_000)).survey()
    top = known.mechanism.epsilons[-1]
    year = year_of(known, stops=(0.5, 0.5), changes=2)
    assert year.windows == 365
    assert year.fresh == add_up([top] * 365) == repeated_cost(top, 365)
    assert year.fresh_mean == pytest.approx(365 * 0.75)
    assert (year.windows_paid, year.days_paid) == (100, 100.0)
    assert year.standing == add_up([top] * 3)
    endless = Draft(("a", "b"), "improved_christofides", (1.0,)).survey()
    assert year_of(endless, stops=(1.0,), changes=0).fresh is None


def test_many_equal_costs_need_no_list() -> None:
    for times in (0, 1, 2, 3, 7, 1_000):
        assert repeated_cost(0.1, times) == add_up([0.1] * times)
    with pytest.raises(ValueError, match="negative"):
        repeated_cost(1.0, -1)


def test_outlines_are_surveys() -> None:
    draft = Draft(("a", "ü b"), "urap", (0.5, 1.0), (0, 60_000), 3_600_000, 1_000, "independent", {"sensitive": ["a"]})
    known = draft.survey()
    assert known.mechanism.labels == ("a", "ü b")
    assert (known.windows.size_ms, known.jitter_ms, known.rungs) == (3_600_000, 1_000, "independent")
    assert known.opens_ms == (0, 60_000)
    assert Draft(("x",), "k_randomization", (0.7,), parameters={"least_records": 500}).survey().accept_risk


def test_wrong_outlines_are_refused_like_files() -> None:
    with pytest.raises(SurveyError, match="did you mean grr"):
        Draft(("a", "b"), "grrr", (1.0,)).survey()
    with pytest.raises(SurveyError, match="least_records"):
        Draft(("a",), "k_randomization", (0.7,)).survey()


def test_values_are_named_or_numbered() -> None:
    assert value_names("a, b,c") == ("a", "b", "c")
    assert sensitive_names("2", ("a", "b", "c")) == ("a", "b")
    assert sensitive_names("c", ("a", "b", "c")) == ("c",)
    for wrong in ("0", "4", "d"):
        with pytest.raises(ValueError, match="sensitive"):
            sensitive_names(wrong, ("a", "b", "c"))
    for wrong in ("10001", "0"):
        with pytest.raises(ValueError, match="values: their number is 1 to"):
            value_names(wrong)
    for wrong in ("", " , "):
        with pytest.raises(ValueError, match="values: give their number, or their names"):
            value_names(wrong)
