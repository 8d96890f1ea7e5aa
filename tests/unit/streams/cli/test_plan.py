"""`thaw plan`: widths, devices needed, and what lying devices can do, for people and for programs."""

import json
import math
from pathlib import Path

import pytest

from deploy.docs import BLOCKS, DOCS, generated_block
from estimators.channels.response import REAL
from producers.survey.check import USERS, explain
from producers.survey.outlook import outlook
from producers.survey.survey import Survey
from tests.support.surveys import INDEPENDENT, survey, survey_text
from tests.unit.streams.cli.test_main import run


def test_liars_move_an_estimate_by_their_score() -> None:
    rows = outlook(survey(), users=1_000, attackers=30, band=0.05)
    assert [row.rung for row in rows] == [0, 1, 2]
    for row, epsilon in zip(rows, (0.5, 1.0, 2.0), strict=True):
        chances = REAL.grr(epsilon, 3)
        assert row.loudest_score == pytest.approx((1 - chances.lie) / chances.slope, rel=1e-6)
    top = rows[-1]
    assert top.loudest_ahead == top.loudest_score
    assert top.loudest_score is not None
    assert top.half_width is not None
    # A third of the honest devices has the value already (or a little more or less, as drawn).
    furthest = top.loudest_score - 1 / 3
    assert top.shift == pytest.approx(30 / 1_000 * furthest, rel=0.05)
    assert top.attackers_for_half_width == pytest.approx(1_000 * top.half_width / furthest, rel=0.05, abs=1)


@pytest.mark.parametrize("known", [survey(lifetime=INDEPENDENT), survey()], ids=["independent", "any"])
def test_liars_who_run_ahead_gain_nothing(known: Survey) -> None:
    """Pooled, a few reports on a sharp rung counted many times; rungs that cannot be compared are not pooled."""
    low = outlook(known, users=1_000, attackers=10, band=None)[0]
    assert low.loudest_score is not None
    assert low.loudest_ahead is not None
    assert low.loudest_ahead < low.loudest_score
    assert low.shift == pytest.approx(10 / 1_000 * (low.loudest_score - 1 / 3), rel=0.1)


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
        "loudest_ahead",
        "shift",
        "attackers_for_half_width",
    ]
    status, out, _ = run(capfd, "plan", str(file), "--attackers", "50")
    assert status == 0
    assert "50 lying devices" in out
    assert run(capfd, "plan", "browser")[0] == 0


def test_what_cannot_be_planned_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capfd, "plan", "browser", "--users", "5", "--attackers", "6")[0] == 2
    status, _, err = run(capfd, "plan", "nobody")
    assert status == 1
    assert "no file and no survey 'nobody' in" in err
    (tmp_path / "bad.toml").write_text("name = 3")
    assert "refused:" in run(capfd, "plan", str(tmp_path / "bad.toml"))[2]


def test_the_page_on_threats_shows_what_the_command_computes() -> None:
    assert generated_block(DOCS / "threats.md", "plan") == BLOCKS["threats.md", "plan"]()
