"""`thaw plan`: widths, devices needed, and what lying devices can do, for people and for programs."""

import json
from pathlib import Path

import pytest

from deploy.docs import BLOCKS, DOCS, generated_block
from estimators.channels.response import REAL
from producers.planning.intervals import Expectation
from producers.planning.outlook import outlook
from producers.survey.check import USERS, explain
from producers.survey.survey import Survey, parse_survey
from tests.support.paths import ROOT
from tests.support.surveys import INDEPENDENT, survey, survey_text
from tests.unit.streams.cli.test_main import run


def test_liars_move_an_estimate_by_their_score() -> None:
    rows = outlook(Expectation(survey()), users=1_000, attackers=30, band=0.05)
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
    low = outlook(Expectation(known), users=1_000, attackers=10, band=None)[0]
    assert low.loudest_score is not None
    assert low.loudest_ahead is not None
    assert low.loudest_ahead < low.loudest_score
    assert low.shift == pytest.approx(10 / 1_000 * (low.loudest_score - 1 / 3), rel=0.1)


def test_the_devices_for_a_band_give_that_band() -> None:
    expected = Expectation(survey())
    for row in outlook(expected, users=10, attackers=0, band=0.02):
        assert row.users_for_band is not None
        reached = expected.half_width(row.rung, row.users_for_band)
        assert reached == pytest.approx(0.02, rel=2e-3)
        assert reached is not None
        assert reached <= 0.02


def test_widths_are_those_that_the_check_of_a_survey_prints() -> None:
    known = survey()
    rows = outlook(Expectation(known), users=USERS[0], attackers=0, band=None)
    assert [row.half_width for row in rows] == [
        plan.half_widths[0] for plan in explain(known).rungs if plan.half_widths
    ]


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


def test_a_plan_has_sections_for_programs(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "colour.toml"
    file.write_text(survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 0.4\n')
    flags = ["--users", "2000", "--shares", "0.3,0.3,0.4", "--stops", "0,0.2,0.8", "--changes", "3", "--notice", "0.1"]
    status, out, _ = run(capfd, "plan", str(file), *flags, "--json")
    assert status == 0
    told = json.loads(out)
    assert told["quantities"][0] == {"value": "red", "kind": "share", "unit": ""}
    assert {row["users"] for row in told["intervals"]} == {200, 2_000, 20_000}
    assert [row["assumed"] for row in told["intervals"][:3]] == pytest.approx([0.3, 0.3, 0.4], abs=1e-3)
    assert [row["used"] for row in told["stopping"]] == [True, True, False, False]
    [alert] = told["alerts"]
    assert (alert["value"], alert["threshold"], alert["bound"]) == ("red", 0.4, "checkpoints")
    assert len(alert["stages"]) == 3
    assert told["year"]["standing"] == pytest.approx(8.0)
    assert told["stops"] == [0, 0.2, 0.8]


def test_flags_outline_a_survey_of_a_mean_in_its_unit(capfd: pytest.CaptureFixture[str]) -> None:
    outline = ["--mechanism", "mean", "--parameter", "low=0", "--parameter", "high=200", "--epsilon", "1"]
    status, out, _ = run(capfd, "plan", *outline, "--band", "2", "--attackers", "10", "--notice", "10", "--json")
    assert status == 0
    told = json.loads(out)
    [rung] = told["rungs"]
    assert 2 < rung["half_width"] < 10
    # Half-widths in the unit of the mean: (half-width / band)^2 times as many devices.
    assert rung["users_for_band"] == pytest.approx(10_000 * (rung["half_width"] / 2) ** 2, rel=0.01)
    assert 100 < rung["loudest_score"] < 400
    [alert] = told["alerts"]
    assert (alert["threshold"], alert["notice"]) == (pytest.approx(100, abs=2), 10)
    assert "±" in run(capfd, "plan", *outline, "--band", "2")[1]


def test_mechanisms_are_compared_and_drawn(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "compared.svg"
    question = ["--values", "a,b,c,d,e", "--sensitive", "b,d", "--epsilon", "1"]
    status, out, _ = run(capfd, "plan", *question, "--compare", "--plot", str(picture), "--json")
    told = json.loads(out)["comparison"]
    assert status == 0
    assert (told["best"], told["best_sensitive"]) == ("grr", "urr")
    assert {row["mechanism"] for row in told["rows"]} >= {"grr", "oue", "sue", "urr", "urap", "k_randomization"}
    assert told["cards"] is None
    text = picture.read_text()
    assert text.startswith("<?xml")
    assert "prefers-color-scheme: dark" in text
    status, out, _ = run(capfd, "plan", "--values", "2", "--epsilon", "1", "--compare", "--users", "1000")
    assert status == 0
    assert "Smallest error with all values protected: grr" in out
    assert "a dealt deck (middle = 0.01) beats Warner for shares below 0.4415" in out


def test_the_planner_runs_backwards_and_prints_a_survey_that_is_valid(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    goal = ["--notice", "0.1", "--within", "1d", "--users", "3000", "--plot", str(tmp_path / "ladders.svg")]
    status, out, _ = run(capfd, "plan", "--values", "4", *goal, "--assume", "independent", "--json")
    told = json.loads(out)["ladders"]
    assert status == 0
    assert (told["goal"]["alpha"], told["goal"]["within_ms"]) == (0.01, 86_400_000)
    costs = [row["epsilon"] for row in told["found"]]
    assert costs == sorted(costs)
    assert all(row["chance"] >= 0.9 for row in told["found"])
    known = parse_survey(told["found"][0]["survey"])
    assert known.mechanism.epsilons[-1] == costs[0]
    assert [rule.alpha for rule in known.alerts] == [0.01]
    status, out, _ = run(capfd, "plan", "--values", "4", "--notice", "0.001", "--within", "1d", "--users", "200")
    assert status == 0
    assert "no level up to 20 is enough" in out


def test_a_plan_of_a_survey_is_drawn(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    picture = tmp_path / "plan.svg"
    assert run(capfd, "plan", "--values", "3", "--epsilon", "1,2", "--plot", str(picture))[0] == 0
    text = picture.read_text()
    for title in ("as they answer", "By the number of devices", "Cost of a year"):
        assert title in text


def test_what_cannot_be_planned_is_refused(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capfd, "plan", "browser", "--users", "5", "--attackers", "6")[0] == 2
    status, _, err = run(capfd, "plan", "nobody")
    assert status == 1
    assert "no file and no survey 'nobody' in" in err
    (tmp_path / "bad.toml").write_text("name = 3")
    assert "refused:" in run(capfd, "plan", str(tmp_path / "bad.toml"))[2]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("browser", "--sensitive", "1"), "--sensitive changes nothing here: add --compare"),
        (("--values", "5", "--epsilon", "1", "--sensitive", "2"), "--sensitive changes nothing here: add --compare"),
        (("colour", "--value", "red"), "--value: the survey has no such alert; add one"),
        (("colour", "--below"), "--below: the survey has no such alert; add one"),
        (("colour", "--window", "0s"), "--window outlines a survey, and SURVEY names one"),
    ],
)
def test_a_flag_without_effect_is_refused(
    flags: tuple[str, ...], told: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "colour.toml").write_text(survey_text())
    named = [str(tmp_path / "colour.toml") if word == "colour" else word for word in flags]
    status, _, err = run(capfd, "plan", *named)
    assert status == 2
    assert told in err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--epsilon", "1", "--window", "0s"), "--window: "),
        (("--epsilon", "1", "--mechanism", "sue", "--values", "x"), "--values: a question needs at least two possible"),
        (("--epsilon", "1", "--values", "0"), "--values: their number is 1 to"),
        (("--epsilon", "2,1", "--mechanism", "improved_christofides"), "--epsilon: levels increase"),
        (("--epsilon", "0", "--mechanism", "improved_christofides"), "--epsilon: epsilon must be in (0, 20]"),
        (("--epsilon", "1e9", "--mechanism", "improved_christofides"), "--epsilon: epsilon must be in (0, 20]"),
    ],
)
def test_a_wrong_outline_names_its_flag(flags: tuple[str, ...], told: str, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capfd, "plan", "--values", "yes,no", *flags)
    assert status == 2
    assert f"Error: {told}" in err


def test_a_deadline_without_room_for_several_rungs_gets_one(capfd: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(capfd, "plan", "--values", "3", "--notice", "0.1", "--within", "0s", "--json")
    assert status == 0
    found = json.loads(out)["ladders"]["found"]
    assert found
    assert all(len(row["ladder"]) == 1 for row in found)


def test_the_page_on_threats_shows_what_the_command_computes() -> None:
    assert generated_block(DOCS / "threats.md", "plan") == BLOCKS["threats.md", "plan"]()


def test_a_ladder_is_sought_for_the_one_sensitive_value_of_mangat(capfd: pytest.CaptureFixture[str]) -> None:
    outline = ["--values", "yes,no", "--mechanism", "mangat", "--sensitive", "yes"]
    status, out, _ = run(capfd, "plan", *outline, "--notice", "0.1", "--within", "1d", "--users", "3000", "--json")
    assert status == 0
    cheapest = json.loads(out)["ladders"]["found"][0]
    assert parse_survey(cheapest["survey"], "cheapest").mechanism.name == "mangat"


@pytest.mark.parametrize("name", ["mean", "lpp"])
def test_mechanisms_for_shares_are_not_compared_for_means(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    status, _, told = run(capfd, "plan", str(ROOT / "deploy" / "surveys" / f"{name}.toml"), "--compare")
    assert status == 2
    assert f"--compare is about shares of values, and {name} estimates means" in told
