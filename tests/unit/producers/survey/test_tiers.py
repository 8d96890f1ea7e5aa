"""Tiers of a survey: who may know which rungs."""

from __future__ import annotations

from pathlib import Path

import pytest

from producers.survey.check import explain
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey, SurveyError
from producers.survey.tiers import Tier
from tests.support.surveys import WEEK, survey, survey_text


def tiered(table: str) -> Survey:
    return survey(shards=f"shards = 16\ntiers = {table}")


def test_what_tiers_may_know_is_part_of_the_id() -> None:
    ids = {survey().id, tiered("{public = 0}").id, tiered("{public = 1}").id, tiered("{press = 0}").id}
    assert len(ids) == 4
    one, other = tiered("{owner = 2, public = 0}"), tiered("{public = 0, owner = 2}")
    assert one.id == other.id, "the order of a table means nothing"
    assert one.tiers == (Tier("public", 0), Tier("owner", 2))


def test_a_tier_below_the_top_is_a_survey_of_its_own_that_no_frame_names(tmp_path: Path) -> None:
    text = survey_text(shards="shards = 16\ntiers = {public = 0, partners = 1, owner = 2}")
    (tmp_path / "colour.toml").write_text(text)
    folder = SurveyFolder(tmp_path, WEEK)
    listed = {one.name: one for one in folder.surveys(WEEK)}
    assert set(listed) == {"colour", "colour.public", "colour.partners"}, "the highest tier is the survey itself"
    for name in ("colour.public", "colour.partners"):
        tier = listed[name]
        assert tier.whole is listed["colour"]
        assert tier.mechanism is listed["colour"].mechanism, "the same exact channels"
        assert folder.get(tier.digest, WEEK) is None
        assert tier.id.startswith(f"{name}-")
    assert [listed[name].highest_rung for name in sorted(listed)] == [2, 1, 0]


@pytest.mark.parametrize(
    ("table", "field", "remedy"),
    [
        ("{public = 3}", "tiers.public", "must be a rung of the ladder, 0 to 2"),
        ("{public = -1}", "tiers.public", "must be a rung of the ladder"),
        ("{Public = 0}", "tiers", "lower-case letters"),
        ("{a = 1, b = 1}", "tiers.b", "a sees the same"),
        ('{public = "low"}', "tiers", "expected"),
    ],
)
def test_tables_that_cannot_be_meant_are_refused(table: str, field: str, remedy: str) -> None:
    with pytest.raises(SurveyError, match=remedy) as refused:
        tiered(table)
    assert refused.value.field.startswith(field)


def test_the_check_says_who_may_know_what() -> None:
    told = explain(tiered("{public = 0, owner = 2}"))
    assert any("public up to epsilon 0.5, owner up to epsilon 2" in sentence for sentence in told.sentences)
