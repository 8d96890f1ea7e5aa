"""What a specification says stays: survey ids, quantities, and that no other code asks for a mechanism's name."""

from __future__ import annotations

import ast
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from estimators.estimation.registry import estimator_of
from estimators.mechanisms.registry import names
from estimators.tally import Tally
from producers.survey.survey import load_survey
from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.support.paths import ROOT

SURVEY_IDS = {
    "browser": "browser-1371cf73",
    "canary": "canary-c20a31b2",
    "carriers": "carriers-7e10971c",
    "christofides": "bribes-024b77bc",
    "ewrr": "commute-ca870599",
    "improved_christofides": "exam-aids-52724584",
    "k_randomization": "interests-cdd39352",
    "lpp": "features-cd50e4f2",
    "mangat": "test-result-bc1c90a1",
    "mean": "working-hours-2e4078ef",
    "oue": "crashes-0aa5393f",
    "pckv_ue": "films-d85b1367",
    "profile": "profile-a2fd4bab",
    "pum": "whereabouts-67b03ff6",
    "rappor": "home-page-44fded56",
    "rr3_club": "ballot-78c2325d",
    "rr3_dagger": "investments-0d6e4041",
    "rr3_ddagger": "mood-62ecfddf",
    "simmons": "no-insurance-7f127bfb",
    "stops": "stops-ace8b5f7",
    "sue": "occupation-12eec03e",
    "urap": "departments-61db5ff6",
    "urr": "marital-status-c4e934b3",
    "warner": "undeclared-income-3ca607e7",
}

CANONICAL = {
    "grr": "8485a9c93ce368d4",
    "warner": "27285b97e71504c9",
    "simmons": "98fd57a6da1e8956",
    "christofides": "22b3b0ffbf29d123",
    "improved_christofides": "e0d6c8ac14761638",
    "ewrr": "f7f2feb412b0a46e",
    "rr3_dagger": "60b803a15890eb33",
    "rr3_ddagger": "7e07fc7deb1d3266",
    "rr3_club": "4084334a9bd5bac8",
    "lpp": "bfc7e0ffca7ad97e",
    "pckv_ue": "189c813b82135d1c",
    "sue": "b655242d31296f45",
    "oue": "b584019e3493affe",
    "rappor": "c12a3ddf46d0dda7",
    "mean": "6bda410b014057ba",
    "urr": "317df318a5186b8e",
    "urap": "435e4f67d8f60413",
    "mangat": "b17edccfd93c8790",
    "pum": "4877592627b7b339",
    "k_randomization": "3610523444f10d68",
}
"""First digits of SHA-256 over the canonical form of every example: a change would orphan surveys in the field."""


@pytest.mark.parametrize("name", sorted(SURVEY_IDS))
def test_the_ids_of_deployed_surveys_never_change(name: str) -> None:
    assert load_survey(ROOT / "deploy" / "surveys" / f"{name}.toml").id == SURVEY_IDS[name]


def test_every_deployed_survey_is_listed_here() -> None:
    assert {file.stem for file in (ROOT / "deploy" / "surveys").glob("*.toml")} == set(SURVEY_IDS)


def test_every_mechanism_has_a_deployed_survey_with_three_rungs_where_it_has_a_ladder() -> None:
    surveys = [load_survey(file) for file in (ROOT / "deploy" / "surveys").glob("*.toml")]
    assert {survey.mechanism.name for survey in surveys} == set(names())
    for survey in surveys:
        assert survey.mechanism.rungs >= 3 or survey.mechanism.ladders.startswith("One level only"), survey.name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_canonical_forms_never_change(example: Example) -> None:
    text = json.dumps(example.build().canonical(), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == CANONICAL[example.name]


@pytest.mark.parametrize(
    ("name", "parameters", "expected"),
    [
        ("urap", {"sensitive": ["a", "c"], "theta": "symmetric"}, "6917424381c0e6c1"),
        ("christofides", {"middle": 0.01}, "5e7c26aaa468b6f1"),
    ],
)
def test_forms_that_were_the_default_once_can_be_asked_for(
    name: str, parameters: dict[str, Any], expected: str
) -> None:
    example = next(example for example in EXAMPLES if example.name == name)
    text = json.dumps(example.build(parameters=parameters).canonical(), sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == expected


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_quantities_name_every_label_and_their_range_is_what_is_known_without_answers(example: Example) -> None:
    known = example.build().specification
    assert tuple(quantity.label for quantity in known.quantities) == known.labels
    bounds = estimator_of(known).always_valid(Tally.empty(known.rungs, known.groups, known.answer.cells))
    assert (bounds is not None) == all(quantity.always_valid for quantity in known.quantities)
    if bounds is not None:
        np.testing.assert_allclose(bounds[0], [quantity.low for quantity in known.quantities])
        np.testing.assert_allclose(bounds[1], [quantity.high for quantity in known.quantities])


def test_kinds_and_subjects_of_quantities() -> None:
    found = {example.name: example.build().specification.quantities for example in EXAMPLES}
    means = {name for name, quantities in found.items() if any(quantity.kind == "mean" for quantity in quantities)}
    assert means == {"mean", "lpp", "pckv_ue"}
    assert (found["mean"][0].low, found["mean"][0].high) == (0.0, 100.0)
    assert [(quantity.kind, quantity.subject) for quantity in found["lpp"][:2]] == [("share", "key"), ("mean", "key")]
    assert {quantity.subject for quantity in found["rappor"]} == {"string"}


def comparisons_with_names(source: str) -> list[str]:
    """Return comparisons in which one side is a mechanism's word, or a container of some."""
    words, found = set(names()), []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        constants = {
            inner.value for side in sides for inner in ast.walk(side) if isinstance(inner, ast.Constant)
        } & words
        asks = any(isinstance(side, ast.Attribute | ast.Name | ast.Call) for side in sides)
        if constants and asks:
            found.append(ast.unparse(node))
    return found


def test_no_code_outside_a_mechanism_asks_for_its_name() -> None:
    own = ROOT / "estimators" / "mechanisms"
    files = [file for package in ("estimators", "producers", "streams") for file in (ROOT / package).rglob("*.py")]
    found = {
        str(file.relative_to(ROOT)): comparisons
        for file in files
        if own not in file.parents and (comparisons := comparisons_with_names(Path(file).read_text()))
    }
    assert found == {}
    assert comparisons_with_names('if survey.mechanism.name in ("lpp", "mean"): pass')
