"""Defects change what devices send whatever a mechanism takes as a value and gives as an answer, or say why not."""

from __future__ import annotations

from typing import Any

import pytest

from producers.survey.survey import Survey, parse_survey
from streams.audit.defects import DEFECTS
from streams.audit.run import Options, folder, judge, law_of, plan_of, record
from tests.support.examples import EXAMPLES, survey_file
from tests.support.surveys import survey_text

tomli_w = pytest.importorskip("tomli_w")

SHAPED = (
    ("mean", "answers depend on the process"),
    ("lpp", "answers depend on the process"),
    ("k_randomization", "answers depend on the process"),
    ("rappor", "never flips ones"),
    ("k_randomization", "never flips ones"),
    ("pckv_ue", "sharpens more than declared"),
)
"""Values that are numbers, tables, lists of labels and strings; answers with a cohort, a key and in copies."""


def survey_of(mechanism: str) -> Survey:
    (example,) = (example for example in EXAMPLES if example.name == mechanism)
    return parse_survey(tomli_w.dumps(survey_file(example)))


def test_defects_are_caught_with_every_kind_of_value_and_answer() -> None:
    """Each is far beyond the false-alarm rate of 1e-6: the smallest p-values were below 1e-100."""
    options = Options(users=640, crashes=0)
    with folder() as place:
        plans = []
        for number, (mechanism, defect) in enumerate(SHAPED):
            survey = survey_of(mechanism)
            assert DEFECTS[defect].no_effect(survey) is None
            (place / str(number)).mkdir()
            plans.append(plan_of(survey, law_of(survey), options, place / str(number), defect=defect))
        record(plans, lambda _: None)
        missed = []
        for (mechanism, defect), plan in zip(SHAPED, plans, strict=True):
            survey = survey_of(mechanism)
            if not judge(survey, law_of(survey), plan, options).contradictions():
                missed.append((mechanism, defect))
    assert missed == []


def left_out(survey: Survey) -> dict[str, Any]:
    reasons = {name: defect.no_effect(survey) for name, defect in DEFECTS.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def test_what_would_change_nothing_is_left_out_with_its_reason() -> None:
    assert left_out(parse_survey(survey_text())) == {}
    single = "the survey has a single level"
    assert left_out(survey_of("k_randomization")) == {"redraws a level": single, "tells its own clock": single}
    assert list(left_out(survey_of("pckv_ue"))) == ["never flips ones"]
    withdrawable = parse_survey("withdrawable = true\n" + survey_text())
    assert list(left_out(withdrawable)) == ["names itself in tokens"]
