"""A window's life as the planner sees it, and rules that it cannot watch."""

import numpy as np
import pytest

from producers.planning.draft import Draft, DraftAlert
from producers.planning.noticing import alert_outlook, chance_by, chances, first_noticed, looks_at, noisiest, watch_of
from producers.survey.alerts import AlertRule
from producers.survey.survey import Survey
from tests.support.surveys import INDEPENDENT, survey

HOUR_MS, DAY_MS = 3_600_000, 86_400_000
STOPS = (0.1, 0.2, 0.7)
RULE = AlertRule("red", "above", 0.3, 0.01)


def daily(**changes: object) -> Survey:
    given = {"ladder": (0.5, 1.0, 2.0), "opens_ms": (0, DAY_MS, 3 * DAY_MS), "jitter_ms": 6 * HOUR_MS}
    return Draft(("red", "green", "blue"), "grr", **(given | changes)).survey()  # type: ignore[arg-type]


def test_everybody_arrives_and_ends_on_the_rung_where_they_stop() -> None:
    looks = looks_at(daily(), 1_000, STOPS)
    totals = [float(look.users.sum()) for look in looks]
    assert totals == sorted(totals)
    assert [look.after_ms for look in looks] == sorted({look.after_ms for look in looks})
    assert looks[-1].after_ms == 3 * DAY_MS + 6 * HOUR_MS
    assert looks[-1].users == pytest.approx([100, 200, 700])
    before = max((look for look in looks if look.after_ms <= DAY_MS), key=lambda look: look.after_ms)
    assert before.users == pytest.approx([1_000, 0, 0])


def test_numbers_on_rungs_are_those_of_simulated_devices() -> None:
    """100,000 devices: a part is off by less than 0.01, seven standard errors; the seed is fixed."""
    known, devices, rng = daily(opens_ms=(0, 3 * HOUR_MS, 6 * HOUR_MS)), 100_000, np.random.default_rng(1)
    jitter = rng.uniform(0, known.jitter_ms, size=(3, devices))
    sent = np.array([rng.uniform(-DAY_MS, 0, devices), *np.full((2, devices), 0.0)]) + jitter
    sent[1:] += np.array(known.opens_ms[1:])[:, None]
    last = rng.choice(3, p=STOPS, size=devices)
    for look in looks_at(known, devices, STOPS)[::30]:
        here = (sent <= look.after_ms) & (np.arange(3)[:, None] <= last)
        highest = np.where(here.any(axis=0), 2 - np.argmax(here[::-1], axis=0), -1)
        parts = [(highest == rung).mean() for rung in range(3)]
        assert look.users / devices == pytest.approx(parts, abs=0.01)


def test_without_jitter_a_rung_opens_at_once() -> None:
    looks = looks_at(survey(), 600, (0.0, 0.0, 1.0))
    assert looks[-1].users == pytest.approx([0, 0, 600])
    assert [look.users.tolist() for look in looks if look.after_ms == 10_000] == [pytest.approx([0, 600, 0])]


@pytest.mark.parametrize("known", [survey(), survey(lifetime=INDEPENDENT)], ids=["any", "independent"])
def test_more_devices_and_larger_changes_are_noticed_more_surely(known: Survey) -> None:
    def chance(notice: float, users: int) -> float:
        return chance_by(known, watch_of(known, RULE, notice), users, STOPS, 30_000)

    assert chance(0.05, 1_000) < chance(0.1, 1_000) < chance(0.2, 1_000)
    assert chance(0.1, 500) < chance(0.1, 1_000) < chance(0.1, 4_000)
    assert chance(0.2, 100_000) == pytest.approx(1.0)
    assert chance(1e-6, 2_000) < RULE.alpha


@pytest.mark.parametrize("side", ["above", "below"])
def test_an_outlook_says_when_and_with_how_many(side: str) -> None:
    known = daily(assume="independent")
    rule = AlertRule("green", side, 0.3, 0.01)  # type: ignore[arg-type]
    found = alert_outlook(known, rule, notice=0.08, users=3_000, stops=STOPS, power=0.9)
    assert found.bound == "e-process"
    assert [stage.rung for stage in found.stages] == [0, 1, 2]
    assert [stage.after_ms for stage in found.stages] == [6 * HOUR_MS, DAY_MS + 6 * HOUR_MS, 3 * DAY_MS + 6 * HOUR_MS]
    assert [stage.chance for stage in found.stages] == sorted(stage.chance for stage in found.stages)
    assert found.users_needed is not None
    watch = watch_of(known, rule, 0.08)
    reached, missed = (
        chance_by(known, watch, round(part * found.users_needed), STOPS, found.stages[-1].after_ms)
        for part in (1, 0.97)
    )
    assert missed < 0.9 <= reached
    if found.notices_after_ms is not None:
        assert dict(chances(known, watch, 3_000, STOPS))[found.notices_after_ms] >= 0.9
        assert first_noticed(known, watch, 3_000, STOPS, 0.9) == found.notices_after_ms


def test_a_mean_is_watched_in_its_own_unit() -> None:
    known = Draft((), "mean", (1.0,), parameters={"low": 100.0, "high": 300.0}).survey()
    watch = watch_of(known, AlertRule("mean", "above", 150.0, 0.01), 20.0)
    assert (watch.threshold, watch.share) == pytest.approx((0.25, 0.35))
    assert watch.population == "sampling"
    assert watch.alpha == 0.01


def test_the_noisiest_value_is_a_sensitive_one() -> None:
    known = Draft(("a", "b", "c"), "urr", (1.0,), parameters={"sensitive": ["c"]}).survey()
    assert noisiest(known, np.array([0.3, 0.3, 0.4])) == "c"
    assert noisiest(survey(), np.array([0.2, 0.5, 0.3])) == "green"


@pytest.mark.parametrize(
    ("rule", "notice", "message"),
    [
        (AlertRule("red", "above", 0.3, 0.01), 0.8, "notice: red above 0.3 by 0.8 is impossible"),
        (AlertRule("red", "below", 0.3, 0.01), 0.4, "notice: red below 0.3"),
        (AlertRule("red", "above", 1.5, 0.01), 0.1, "threshold: must lie strictly between 0 and 1; got 1.5"),
    ],
)
def test_impossible_changes_are_refused(rule: AlertRule, notice: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        watch_of(survey(), rule, notice)


def test_mechanisms_without_always_valid_bounds_cannot_be_watched() -> None:
    known = Draft(("a", "b"), "rappor", (1.0,)).survey()
    with pytest.raises(ValueError, match="rappor has no always-valid bounds"):
        watch_of(known, AlertRule("a", "above", 0.3, 0.01), 0.1)


def test_a_drafted_alert_is_the_survey_s() -> None:
    known = Draft(("a", "b"), "grr", (1.0,), alert=DraftAlert("b", "below", 0.25, 0.02)).survey()
    assert known.alerts == (AlertRule("b", "below", 0.25, 0.02),)
