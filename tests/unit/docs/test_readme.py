"""What the README and the page on gradual release quote is what the code says."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy import gradual_release_figure as figure
from producers.survey.check import explain
from producers.survey.survey import Survey, load_survey
from tests.support.paths import ROOT
from tests.support.transports import MemoryTransport

README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def survey(tmp_path_factory: pytest.TempPathFactory) -> Survey:
    """Return the survey that the README shows."""
    (text,) = re.findall(r"```toml\n(.*?)```", README, re.DOTALL)
    file: Path = tmp_path_factory.mktemp("readme") / "browser.toml"
    file.write_text(text)
    return load_survey(file)


def quoted() -> list[str]:
    """Return the block quotes, each as one line."""
    blocks = re.findall(r"(?:^> .*\n)+", README, re.MULTILINE)
    return [" ".join(line.removeprefix("> ") for line in block.splitlines()) for block in blocks]


def test_the_survey_is_explained_as_quoted(survey: Survey) -> None:
    sentences = " ".join(explain(survey).sentences)
    assert any(quote in sentences for quote in quoted())


def test_the_alert_is_worded_as_quoted(survey: Survey) -> None:
    groups = yaml.safe_load((ROOT / "deploy" / "prometheus" / "rules" / "thaw.yaml").read_text())["groups"]
    rules = {rule["alert"]: rule["annotations"] for group in groups for rule in group["rules"]}
    opening = rules["ThawFrequencyAboveThreshold"]["summary"].partition("{{ with ")[0]
    said = opening.replace("{{ $labels.value }}", "Opera").replace("{{ $labels.survey }}", survey.id)
    assert f"**ThawFrequencyAboveThreshold** {said} of 20%" in quoted()


def test_a_small_population_has_the_stated_band(survey: Survey) -> None:
    rung = explain(survey).rungs[1]
    assert rung.epsilon_asked == 1.0
    assert rung.half_widths is not None
    assert (
        f"with 1,000 devices, six values and epsilon 1 a share is known to ± {100 * rung.half_widths[0]:.0f}" in README
    )


def test_the_gain_of_gradual_release_is_as_stated() -> None:
    two, six, sixteen = (f"{figure.final_ratio(size):.1f}" for size in (2, 6, 16))
    stated = f"{six} times as large with six values ({two} times with two values, {sixteen} times with sixteen)"
    assert stated in README.replace("\n", " ")
    page = (ROOT / "docs" / "gradual-release.md").read_text().replace("\n", " ")
    assert f"{two} times as large with two equally common values, {six} times with six and {sixteen} times" in page


def test_the_first_look_is_the_same_and_later_ones_are_narrower() -> None:
    first, second, third = figure.widths()
    assert first[0] == pytest.approx(first[1])
    assert second[0] > 1.5 * second[1]
    assert third[0] > 2 * third[1]


def test_the_figure_is_the_one_that_its_script_draws() -> None:
    assert figure.TARGET.read_text(encoding="utf-8") == figure.figure()


def test_a_suspicion_rises_as_stated() -> None:
    def posterior(prior: float, epsilon: float) -> float:
        odds = prior / (1 - prior) * math.exp(epsilon)
        return odds / (1 + odds)

    low, middle, high = (f"{posterior(0.2, epsilon):.0%}".replace("%", " %") for epsilon in (0.5, 1.0, 2.0))
    glossary = (ROOT / "docs" / "glossary.md").read_text()
    assert f"at most {low} (epsilon 0.5), {middle} (epsilon 1) or {high} (epsilon 2)" in glossary
    assert f"a suspicion of 20 % can rise to at most {high}" in README.replace("\n", " ")


def test_the_device_program_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    sent = MemoryTransport()
    monkeypatch.setattr("producers.wire.kafka.KafkaTransport", lambda _: sent)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    names: dict[str, Any] = {}
    exec(program, names)
    with names["device"] as device:
        device.tick(device.next_ms())
    assert len(sent.messages) == 1


def test_the_number_of_reference_values_is_right() -> None:
    values = json.loads((ROOT / "tests" / "vectors" / "reference.json").read_text())
    assert f"checks {len(values)} reference values" in README
