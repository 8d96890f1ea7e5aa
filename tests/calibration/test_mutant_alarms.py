"""Alert bounds and a homogeneity test that break their promise are reported.

Each of these was once the code. Verdicts are exact binomial tails at LEVEL; seeds are fixed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.estimates import Population
from estimators.estimation.estimator import Estimator
from estimators.estimation.mean import MeanEstimator
from estimators.inference import pooling
from estimators.inference.homogeneity import retention_homogeneity
from estimators.inference.inversion import Rungs
from estimators.inference.likelihood import retention_mle
from estimators.intervals import checkpoints
from estimators.intervals.always_valid import YesNo
from estimators.intervals.one_look import one_sided_z
from tests.calibration import homogeneity
from tests.calibration.alarms import RUNGS, Alarms, leaning, run_scenario
from tests.calibration.judge import Hits, least_reported
from tests.calibration.rules import ALPHA, Rules, watched
from tests.calibration.suite import Findings, failure

Floats = NDArray[np.float64]

LEVEL = 1e-9


@pytest.mark.statistical
def test_the_overall_share_in_every_rung_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def overall(tally: YesNo, alpha: float, population: Population) -> tuple[Floats, Floats]:
        assert population == "fleet"
        slope, weights = tally.truth - tally.lie, tally.users / tally.users.sum(axis=0)
        share = np.sum(weights * (tally.ones / tally.users - tally.lie) / slope, axis=0)
        inside = np.clip(share, 0.0, 1.0)
        noise = inside * tally.truth * (1.0 - tally.truth) + (1.0 - inside) * tally.lie * (1.0 - tally.lie)
        reach = one_sided_z(alpha) * np.sqrt(np.sum(weights**2 * noise / (tally.users * slope**2), axis=0))
        return share - reach, share + reach

    [scenario] = [s for s in leaning() if (s.values, s.groups[0].users) == (200, 10)]
    assert not any(failure(entry, LEVEL) for entry in run_scenario(scenario, 3, 300))
    monkeypatch.setattr(checkpoints, "bounds", overall)
    assert any(failure(entry, LEVEL) for entry in run_scenario(scenario, 3, 300))


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("estimator", "mechanism", "population"), [(MeanEstimator, "mean", "fleet"), (Estimator, "grr", "sampling")]
)
def test_a_bound_that_leaves_out_rounding_or_sampling_is_noticed(
    monkeypatch: pytest.MonkeyPatch, estimator: type[Estimator[Any]], mechanism: str, population: Population
) -> None:
    rules, windows = Rules(mechanism, "any", population), 24

    def noticed() -> bool:
        fired = rules.fired(3, windows)
        return any(Hits(windows, number).significantly_above(ALPHA, LEVEL) for number in fired.values())

    assert not noticed()
    monkeypatch.setattr(estimator, "answer_law", lambda _self, _population: "fleet")
    assert noticed()


def test_rules_that_alarm_a_little_too_often_are_noticed_over_all_mechanisms() -> None:
    """Three false alarms in a hundred are too few to be noticed in one rule, and too many over all."""
    rules = [Alarms(f"{name}, {RUNGS['any']}", "alert rule", "above", ALPHA, Hits(800, 24)) for name in watched()]
    assert not any(failure(one, LEVEL) for one in rules)
    found = Findings("long", 1, 1, LEVEL, alarms=rules)
    [said] = found.failures()
    assert said.startswith("all mechanisms, rungs any, alert rule above: 0.0300")
    assert least_reported(800, ALPHA, LEVEL) > 0.03 > least_reported(800 * len(rules), ALPHA, LEVEL)


@pytest.mark.statistical
def test_a_homogeneity_test_that_is_off_at_the_border_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def off_at_the_border(rungs: Rungs) -> float | None:
        likely = retention_mle(rungs)
        return None if likely is None or likely.shares.min() < 1e-6 else retention_homogeneity(rungs)

    [case] = [case for case in homogeneity.leaning() if "4 absent" in case.name]
    assert failure(homogeneity.run_case(case, 3, 40), LEVEL) is None
    monkeypatch.setattr(pooling, "retention_homogeneity", off_at_the_border)
    assert failure(homogeneity.run_case(case, 3, 40), LEVEL) is not None
