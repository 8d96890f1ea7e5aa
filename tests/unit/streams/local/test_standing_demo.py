"""What the comparison of fresh and standing answers shows, on real chains of simulated people."""

from __future__ import annotations

from dataclasses import asdict

from producers.survey.survey import load_survey
from streams.local.standing_demo import PEOPLE, compared, lines_of
from tests.support.paths import ROOT
from tests.support.surveys import survey


def test_standing_answers_cost_a_fraction_and_err_alike_in_every_window() -> None:
    """Seeded. Over 40 windows a person has two or three values: at most 3 levels instead of 40."""
    asked = survey()
    ways = compared(asked, 7, windows=40, groups=4)
    assert ways is not None
    fresh, standing = ways
    assert fresh.epsilon == 40 * 2.0
    assert 2.0 < standing.epsilon <= 3 * 2.0
    # Half as many again would be a difference of more than four standard errors of these four groups.
    assert 0.5 < standing.window_error / fresh.window_error < 2
    assert standing.mean_error > 2 * fresh.mean_error, "the error of a person repeats, and no mean removes it"
    assert standing.guessed < 0.9 < fresh.guessed
    assert standing.same_answer > 0.9 > fresh.same_answer
    assert "epsilon 80.0 a person" in lines_of([asdict(way) for way in ways])[1]


def test_what_has_no_single_answers_is_not_compared() -> None:
    assert compared(load_survey(ROOT / "deploy" / "surveys" / "oue.toml"), 1) is None
    assert PEOPLE % 2 == 0
