"""Surveys about several attributes at once."""

from __future__ import annotations

import numpy as np
import pytest

from estimators.estimation.registry import estimator_of
from estimators.mechanism import ParameterError
from producers.survey.check import explain
from producers.survey.messages import SurveyError
from producers.survey.survey import Survey, parse_survey
from streams.windows.marginals import marginals
from tests.support.mechanism import whole
from tests.support.simulate import simulated_tally
from tests.support.stats import assert_binomial
from tests.support.surveys import survey, survey_text

TABLE = 'sex = ["f", "m"], smokes = ["yes", "no", "sometimes"], town = ["in", "out"]'


def asked(table: str = TABLE, mechanism: str = 'name = "grr"') -> Survey:
    text = survey_text(values=f"values = {{attributes = {{{table}}}}}").replace('name = "grr"', mechanism)
    return parse_survey(text, "test.toml")


def test_values_are_combinations_and_sums_have_the_cells_of_their_names() -> None:
    known = asked()
    assert known.attributes is not None
    assert known.mechanism.labels[:3] == ("f / yes / in", "f / yes / out", "f / no / in")
    assert known.attributes.value({"town": "out", "sex": "m", "smokes": "no"}) == "m / no / out"
    sums = {one.name: one.cells for one in known.attributes.sums()}
    assert sums["sex = f"] == (0, 1, 2, 3, 4, 5)
    assert sums["smokes = no, town = in"] == (2, 8)
    assert len(sums) == 2 + 3 + 2 + 6 + 4 + 6
    assert "one of 12 combinations of sex (2), smokes (3), town (2)" in explain(known).sentences[0]
    for wrong in ({"sex": "m"}, {"sex": "x", "smokes": "no", "town": "in"}, {"sex": "m", "age": "9"}):
        with pytest.raises(ParameterError):
            known.attributes.value(wrong)


def test_the_names_of_attributes_are_part_of_the_id() -> None:
    assert asked().id != asked(TABLE.replace("town", "city")).id


@pytest.mark.parametrize(
    ("table", "field"),
    [
        ('sex = ["f", "m"]', "values.attributes"),
        (TABLE.replace('["f", "m"]', '["f", "f"]'), "values.attributes.sex"),
        (TABLE.replace('["f", "m"]', '["f"]'), "values.attributes.sex"),
        (TABLE.replace('"m"', '"m / f"'), "values.attributes.sex"),
        (TABLE + f", age = {[str(i) for i in range(100)]}", "values.attributes"),
        ('"a=b" = ["1", "2"], c = ["1", "2"]', "values.attributes"),
    ],
)
def test_wrong_attributes_are_refused_with_their_field(table: str, field: str) -> None:
    with pytest.raises(SurveyError) as refused:
        asked(table)
    assert refused.value.field == field, refused.value


def test_a_mechanism_whose_shares_may_not_be_added_up_is_refused() -> None:
    with pytest.raises(SurveyError, match="whose shares may be added up"):
        asked(mechanism='name = "pum"\ntags = ["home"]')
    tally, _ = simulated(survey(), 50, 1)
    assert marginals(survey(), tally, estimator_of(survey().mechanism).estimate(tally)) == []


def simulated(known: Survey, users: int, seed: int):  # type: ignore[no-untyped-def]  # a tally and true shares
    labels = known.mechanism.labels
    weights = np.arange(1, len(labels) + 1) ** 2.0
    own = np.random.default_rng([seed, 7]).choice(len(labels), size=users, p=weights / weights.sum())
    values = [labels[i] for i in own]
    return simulated_tally(whole(known.mechanism), values, seed), np.bincount(own, minlength=len(labels)) / users


@pytest.mark.statistical
@pytest.mark.parametrize(
    "mechanism",
    [
        'name = "grr"',
        'name = "sue"',
        'name = "urr"\nsensitive = ["f / yes / in"]',
        'name = "urap"\nsensitive = ["f / yes / in"]',
    ],
)
def test_bands_of_marginals_hold_the_truth(mechanism: str) -> None:
    known = asked(mechanism=mechanism)
    assert known.attributes is not None
    sums = list(known.attributes.sums())
    inside = 0
    windows = 120
    for seed in range(windows):
        tally, shares = simulated(known, 600, seed)
        found = marginals(known, tally, estimator_of(known.mechanism).estimate(tally, method="stratified"))
        # One sum of each window, so that windows are independent.
        one, derived = sums[seed % len(sums)], found[seed % len(sums)]
        truth = shares[list(one.cells)].sum()
        inside += derived.lower <= truth <= derived.upper
    assert_binomial(min(inside, round(0.95 * windows)), windows, 0.95)
