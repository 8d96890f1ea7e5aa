"""What a survey file may not combine with answers that outlast a window, or are taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from estimators.auditing.declared import NotAuditedError
from producers.survey.check import explain
from producers.survey.survey import SurveyError
from streams.audit.run import Options, audit
from tests.support.surveys import survey

CANARY = "lifetime = 100\n[canary]\ndevices = 100\nseed = 1\nshares = [0.5, 0.3, 0.2]"
LADDER = "ladder = [" + ", ".join(f"{0.05 * rung:.2f}" for rung in range(1, 256)) + "]"
OPENS = "opens = [" + ", ".join(f'"{rung}s"' for rung in range(255)) + "]"


def test_a_ladder_of_all_rungs_leaves_none_for_withdrawals() -> None:
    with pytest.raises(SurveyError, match="leaves none for it; shorten it") as refused:
        survey(ladder=LADDER, opens=OPENS, retention='retention = "10m"', shards="shards = 16\nwithdrawable = true")
    assert refused.value.field == "withdrawable"


def test_a_canary_needs_fresh_answers() -> None:
    with pytest.raises(SurveyError, match="fresh in every window") as refused:
        survey(size='size = "1m"\nstanding = true', lifetime=CANARY)
    assert refused.value.field == "window.standing"


def test_repeated_answers_are_no_evidence_for_an_audit() -> None:
    with pytest.raises(NotAuditedError, match=r"audit the same survey without window\.standing"):
        audit(replace(survey(), standing=True), Options(users=10, crashes=0, seed=1, alpha=0.01))


def test_each_field_is_part_of_the_id_and_the_check_says_what_can_be_taken_back() -> None:
    ids = {survey().id, survey(shards="shards = 16\nwithdrawable = true").id, replace(survey(), standing=True).id}
    assert len(ids) == 3
    told = explain(survey(shards="shards = 16\nwithdrawable = true"))
    assert any("can take answers back until the window expires" in sentence for sentence in told.sentences)
