"""What `thaw survey check` says about a survey."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from io import StringIO
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console

from estimators.mechanisms.improved_christofides import ImprovedChristofides
from producers.survey.check import USERS, explain
from producers.survey.survey import load_survey, parse_survey
from streams.cli.survey import as_data, command, show
from streams.folders import deploy_folder
from tests.support.checks import Example
from tests.support.examples import EXAMPLES
from tests.support.surveys import TEXT, survey, survey_text

SURVEYS = deploy_folder("surveys")
QUIET = {
    "jitter": 'jitter = "2h"',
    "size": 'size = "1d"',
    "retention": 'retention = "9d"',
    "lifetime": "lifetime = 100",
    "shards": "shards = 64",
}


def test_a_sound_survey_has_no_warnings() -> None:
    assert explain(survey(**QUIET)).warnings == ()


def test_widths_are_those_of_the_closed_form() -> None:
    """Pan, appendix G, at even shares; the simulated trial counts scatter by about a percent."""
    values = 3
    for rung in explain(survey(**QUIET)).rungs:
        lie = 1 / (math.exp(rung.epsilon) + values - 1)
        truth = math.exp(rung.epsilon) * lie
        variance = (truth * (1 - truth) + (values - 1) * lie * (1 - lie)) / values / (truth - lie) ** 2
        assert rung.truths == {"every value": pytest.approx(truth)}
        assert rung.half_widths is not None
        for users, width in zip(USERS, rung.half_widths, strict=True):
            assert width == pytest.approx(1.959964 * math.sqrt(variance / users), rel=0.03)


def test_costs_and_lifetime() -> None:
    explanation = explain(survey(size='size = "6h"', retention='retention = "9d"', lifetime="lifetime = 21"))
    assert explanation.epsilon_per_window == 2.0
    assert explanation.epsilon_per_day == 8.0
    assert explanation.lifetime_windows == 10
    text = " ".join(explanation.sentences)
    assert "cost epsilon 2, the cost of the last one alone" in text
    assert "spends 8 a day" in text
    assert "In odds: a suspicion of 20 % can rise to at most 64.9 % (epsilon 2) for protected values." in text
    assert (
        "The lifetime budget of 21, shared with all other surveys of a device, pays for 10 whole windows, 2d 12h"
        in text
    )


@pytest.mark.parametrize("rungs", ["any", "independent"])
def test_the_assumption_and_its_price_are_stated(rungs: str) -> None:
    """The published figure: six values, levels .5/1/2, 10/10/80 % of the users: 2.1 times."""
    asked = survey(
        values='values = ["a", "b", "c", "d", "e", "f"]', lifetime=f'lifetime = 100\n[estimate]\nrungs = "{rungs}"'
    )
    explanation = explain(asked)
    variances = []
    for epsilon in (0.5, 1.0, 2.0):
        lie = 1 / (math.exp(epsilon) + 5)
        truth = math.exp(epsilon) * lie
        variances.append((truth * (1 - truth) + 5 * lie * (1 - lie)) / (truth - lie) ** 2)
    parts = (0.1, 0.1, 0.8)
    stratified = sum(part * variance for part, variance in zip(parts, variances, strict=True))
    pooled = 1 / sum(part / variance for part, variance in zip(parts, variances, strict=True))
    assert explanation.stratified_ratio == pytest.approx(math.sqrt(stratified / pooled), rel=0.03)
    text = " ".join(explanation.sentences)
    assert f"(rungs = {rungs}, method {asked.method})" in text
    assert "80 % of the users on the top rung" in text
    assert "stratified bands are 2.1 times as wide" in text


def test_one_rung_needs_no_assumption() -> None:
    explanation = explain(survey(ladder="ladder = [1.0]", opens=""))
    assert explanation.stratified_ratio is None
    assert "assumed" not in " ".join(explanation.sentences)


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        (
            {"size": 'size = "1d"\nstep = "5h"'},
            "every value enters 5 of them, .* the costs add up to epsilon 10; use step",
        ),
        (
            {"values": f"values = {[f'v{i}' for i in range(30)]}"},
            r"30 values are many for grr at epsilon 2: .* = 24 .* oue",
        ),
        ({"ladder": "ladder = [1, 2, 2.01]"}, r"rung 2 \(epsilon 2\.01\) narrows the band by less than 5%"),
        ({"lifetime": "lifetime = 0.7"}, "the lifetime budget of 0.7 never pays for rung 1, 2; raise it"),
        (
            {"size": 'size = "1s"', "jitter": 'jitter = "500ms"'},
            r'spends 172,800 a day and has used up its budget of 100 after 50s;.* With window.size = "14h 24m" it',
        ),
        ({"lifetime": "lifetime = 1000"}, r"budget.lifetime = 1000 protects nobody: .* spends 2 a day, .* at most 100"),
        ({"ladder": "ladder = [1, 2, 9]"}, "at epsilon 9 an answer is almost always the true value"),
        ({"jitter": 'jitter = "0s"'}, "without jitter the moment of sending links the windows"),
        ({"shards": "shards = 4"}, "4 shards cannot keep 8 partitions busy"),
        ({"shards": 'shards = 64\naccept_risk = "we take it anyway"'}, "grr needs no accept_risk; remove it"),
    ],
)
def test_warnings(changes: dict[str, str], warning: str) -> None:
    import re

    (found,) = explain(survey(**{**QUIET, **changes})).warnings
    assert re.search(warning, found), found


def text_of(example: Example) -> str:
    parameters = "\n".join(
        f"{key} = {msgspec.json.encode(value).decode()}" for key, value in example.parameters.items()
    )
    endless = math.isinf(example.build().epsilons[-1])
    opens = [f"{10 * rung}s" for rung in range(len(example.ladder))]
    return survey_text(
        values=f'values = {list(example.values)}\naccept_risk = "we know what we do"',
        ladder=f"ladder = {list(example.ladder)}",
        opens=f"opens = {opens}",
        lifetime=f"lifetime = {'inf' if endless else '100'}",
    ).replace('[mechanism]\nname = "grr"', f'[mechanism]\nname = "{example.name}"\n{parameters}')


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_every_mechanism_can_be_asked_and_explained(example: Example, tmp_path: Path) -> None:
    text = text_of(example)
    explanation = explain(parse_survey(text))
    assert [rung.half_widths is not None for rung in explanation.rungs] == [True] * len(example.ladder)
    risky = [warning for warning in explanation.warnings if "The survey accepts this" in warning]
    assert bool(risky) == explanation.survey.mechanism.guarantee.is_risk
    (tmp_path / "survey.toml").write_text(text)
    shown = CliRunner().invoke(command, ["check", "--json", str(tmp_path / "survey.toml")])
    assert shown.exit_code == 0
    data = json.loads(shown.stdout)
    assert data["mechanism"] == example.name
    assert data["epsilon"] is None or data["epsilon"] >= 0
    local = explanation.survey.mechanism.guarantee.protects != "nothing"
    assert bool(data["attackers"]) != local
    assert bool("What an attacker learns" in shown_text(tmp_path / "survey.toml")) != local


def shown_text(file: Path) -> str:
    return CliRunner().invoke(command, ["check", str(file)]).stdout


@pytest.mark.parametrize(
    ("name", "headings"),
    [
        ("carriers", ["tells the truth"]),
        ("urr", ["tells sensitive values", "tells other values"]),
        ("urap", ["tells other values"]),
        ("pum", ["tells sensitive values and tags", "tells other values"]),
        ("improved_christofides", []),
    ],
)
def test_the_table_names_whose_truth_is_told_how_often(name: str, headings: list[str]) -> None:
    explanation = explain(load_survey(SURVEYS / f"{name}.toml"))
    console = Console(file=StringIO(), width=400)
    show(explanation, console)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    row = next(line for line in text.splitlines() if "epsilon asked" in line)
    assert [cell.strip() for cell in row.split("┃") if "tells" in cell] == headings
    for rung in explanation.rungs:
        assert [f"tells {kind}".replace("every value", "the truth") for kind in rung.truths] == headings
        assert all(f" {truth:.1%} " in text for truth in rung.truths.values())


def test_the_table_of_attackers_prints_the_numbers_of_the_deck() -> None:
    file = SURVEYS / "improved_christofides.toml"
    mechanism = load_survey(file).mechanism
    assert isinstance(mechanism, ImprovedChristofides)
    deck = mechanism.deck
    learned = {attacker["sees"]: attacker for attacker in as_data(explain(load_survey(file)))["attackers"]}
    alone = learned["one answer and the composition of the deck"]
    assert alone["epsilon"] == deck.single_answer_epsilon
    assert [
        learned[f"one answer and the {cards}"]["epsilon"]
        for cards in ("card of one other person", "cards of 10 other people")
    ] == [deck.collusion_epsilon(1), deck.collusion_epsilon(10)]
    informed = learned["all answers and all other people's values"]
    assert informed["delta"] == 1 - deck.counts[1] / sum(deck.counts)
    text = shown_text(file)
    for number in (
        f"epsilon {deck.single_answer_epsilon:.4g} ",
        f"epsilon {deck.collusion_epsilon(1):.4g} ",
        f"epsilon {deck.collusion_epsilon(10):.4g} ",
        f"(0, {1 - deck.counts[1] / sum(deck.counts):.4g})-DP",
    ):
        assert number in text


def test_one_window_is_one() -> None:
    sentences = " ".join(explain(survey(lifetime="lifetime = 2")).sentences)
    assert "pays for one whole window, " in sentences


def test_the_failure_chance_of_a_crowd_is_printed() -> None:
    """Zhilyaev & Zeber's first example: 1,000 records, ratio 2; the paper does not state how often it fails."""
    (example,) = (example for example in EXAMPLES if example.name == "k_randomization")
    crowd = replace(example, values=("ill",), ladder=(math.log(2),))
    totals, half, *_, copy = explain(parse_survey(text_of(crowd))).attackers
    assert totals.sees == "totals of 1,000 honest records"
    assert totals.epsilon == math.log(2)
    assert totals.delta == pytest.approx(3.4728e-5, rel=1e-3)
    assert half.delta is not None
    assert half.delta > 1e-3
    assert copy.epsilon == pytest.approx(3.3926, abs=1e-3)
    assert copy.delta == 0.0


def test_the_person_has_a_bound_of_their_own() -> None:
    text = " ".join(explain(survey()).sentences)
    assert "the person's own bound, 100 unless they set another, holds as well" in text
    endless = next(example for example in EXAMPLES if math.isinf(example.build().epsilons[-1]))
    text = " ".join(explain(parse_survey(text_of(endless))).sentences)
    assert "a device answers only if its person has set no finite bound either" in text


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "colour.toml"
    path.write_text(TEXT)
    return path


def test_the_command_explains_in_words_and_a_table(file: Path) -> None:
    shown = CliRunner().invoke(command, ["check", str(file)])
    assert shown.exit_code == 0
    for words in (survey().id, "Each device answers once per window of 1m", "Guarantee:", "Threat model:", "end + 30s"):
        assert words in shown.stdout
    assert "10,000,000" in shown.stdout
    assert shown.stderr == ""


def test_the_command_prints_one_json_object(file: Path) -> None:
    shown = CliRunner().invoke(command, ["check", "--json", str(file)])
    data = json.loads(shown.stdout)
    assert (data["id"], data["mechanism"], data["epsilon"]) == (survey().id, "grr", 2.0)
    assert isinstance(data["warnings"], list)
    assert [rung["opens_ms"] for rung in data["rungs"]] == [0, 10_000, 30_000]


def test_a_refused_file_ends_with_status_1_and_says_why(file: Path) -> None:
    file.write_text(survey_text(ladder="ladder = [0, 1, 2]"))
    shown = CliRunner().invoke(command, ["check", str(file)])
    assert shown.exit_code == 1
    assert shown.stdout == ""
    assert f"refused: {file}: release.ladder[0]: epsilon must be in (0, 20]" in shown.stderr
    shown = CliRunner().invoke(command, ["check", "--json", str(file)])
    assert shown.exit_code == 1
    assert json.loads(shown.stdout)["field"] == "release.ladder[0]"


def test_wrong_use_ends_with_status_2(tmp_path: Path) -> None:
    assert CliRunner().invoke(command, ["check", str(tmp_path / "none.toml")]).exit_code == 2
    assert CliRunner().invoke(command, ["check"]).exit_code == 2


def test_a_budget_that_unlocks_more_slowly_than_windows_ask_is_a_warning() -> None:
    asked = survey(size='size = "1d"', lifetime='lifetime = 40\nunlock = "0.5 per day"\nreserve = 10')
    explanation = explain(asked)
    assert explanation.epsilon_per_day == 0.5
    assert any("cost 2 a day, and 0.5 unlocks: rungs come late" in warning for warning in explanation.warnings)
    text = " ".join(explanation.sentences)
    assert "It unlocks over time, 0.5 per day: that much when a device is first asked" in text
    assert "10 is reserved on each device" in text
    assert explain(survey(size='size = "1d"', lifetime='lifetime = 40\nunlock = "2 per day"')).epsilon_per_day == 2.0
