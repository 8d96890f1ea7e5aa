"""`thaw plan`: widths, devices needed, and what liars can do, for people and for programs."""

import json
import math
from pathlib import Path

import pytest

from estimators.planning import grr_chances
from producers.survey_check import USERS, explain
from streams.cli_plan import outlook
from tests.support.surveys import survey, survey_text
from tests.unit.test_cli import run


def test_liars_move_an_estimate_by_their_score() -> None:
    rows = outlook(survey(), users=1_000, attackers=30, band=0.05)
    assert [row.rung for row in rows] == [0, 1, 2]
    for row, epsilon in zip(rows, (0.5, 1.0, 2.0), strict=True):
        chances = grr_chances(epsilon, 3)
        score = (1 - chances.lie) / chances.slope
        assert row.loudest_score == pytest.approx(score, rel=1e-6)
        # A third of the honest devices has the value already (or a little more or less, as drawn).
        assert row.shift == pytest.approx(30 / 1_000 * (score - 1 / 3), rel=0.05)
        assert row.half_width is not None
        assert row.attackers_for_half_width is not None
        assert row.attackers_for_half_width == pytest.approx(1_000 * row.half_width / (score - 1 / 3), rel=0.05, abs=1)


def test_the_devices_for_a_band_give_that_band() -> None:
    known = survey()
    for row, plan in zip(outlook(known, users=10, attackers=0, band=0.02), explain(known).rungs, strict=True):
        assert plan.half_widths is not None
        assert row.users_for_band is not None
        assert plan.half_widths[0] * math.sqrt(USERS[0] / row.users_for_band) == pytest.approx(0.02, rel=1e-3)


def test_the_command_prints_a_table_or_json(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "colour.toml"
    file.write_text(survey_text())
    status, out, _ = run(capfd, "plan", str(file), "--users", "2000", "--attackers", "50", "--band", "0.05", "--json")
    told = json.loads(out)
    assert status == 0
    assert (told["survey"], told["users"], told["attackers"], told["band"]) == (survey().id, 2_000, 50, 0.05)
    assert list(told["rungs"][0]) == [
        "rung",
        "epsilon",
        "half_width",
        "users_for_band",
        "loudest_score",
        "shift",
        "attackers_for_half_width",
    ]
    status, out, _ = run(capfd, "plan", str(file), "--attackers", "50")
    assert status == 0
    assert "50 liars move it by" in out
    assert run(capfd, "plan", "browser")[0] == 0


def test_what_cannot_be_planned_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capfd, "plan", "browser", "--users", "5", "--attackers", "6")[0] == 2
    status, _, err = run(capfd, "plan", "nobody")
    assert status == 1
    assert "no file and no survey 'nobody' in" in err
    (tmp_path / "bad.toml").write_text("name = 3")
    assert "refused:" in run(capfd, "plan", str(tmp_path / "bad.toml"))[2]
