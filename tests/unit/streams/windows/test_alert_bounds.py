"""The bounds that rules read, what is stored for them, and the metrics they become."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer

from estimators.estimates import Population
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.intervals.always_valid import confidence_sequence
from estimators.intervals.checkpoints import checkpoint_alpha
from estimators.intervals.rung_shares import stratified_ends
from estimators.mechanisms.registry import randomizer_of
from estimators.tally import Tally
from producers.survey.alert_ranges import rule_problems, value_ranges
from producers.survey.check import explain
from producers.survey.survey import Survey, parse_survey
from streams.exporter.collector import folded
from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from streams.windows.alert_bounds import STATE, alert_bounds
from streams.windows.budget_spent import FirstWindows, budget_spent, first_window_ms, mean_epsilon
from streams.windows.record import AlertBound, EstimateRecord, decode_estimate, make_record
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey, survey_text

MINUTE_MS = 60_000
RULES = """
[[alert]]
value = "red"
above = 0.5

[[alert]]
value = "blue"
below = 0.2
"""


MEAN = """
name = "height"
question = "How tall are you, in cm?"
values = ["height"]

[mechanism]
name = "mean"
low = 100
high = 200

[release]
kind = "listed"
ladder = [4.0]

[window]
size = "1m"
retention = "5m"

[budget]
lifetime = 100

[[alert]]
value = "height"
above = 150
"""


def with_rules(method: str = "pooled", rules: str = RULES) -> Survey:
    return parse_survey(f'{survey_text()}\n{rules}\n[estimate]\nrungs = "independent"\nmethod = "{method}"\n')


def counted(known: Survey, shares: Sequence[float], devices: int, *, seed: int = 3) -> Tally:
    """Let devices answer on mixed rungs."""
    mechanism, rng = known.mechanism, np.random.default_rng(seed)
    tally = Tally.empty(mechanism.rungs, 1, mechanism.answer.cells)
    values = rng.choice(list(mechanism.labels), size=devices, p=shares)
    bits = SeededBits(seed)
    randomizer = randomizer_of(mechanism)
    drawn = randomizer.draw(randomizer.encode(list(values), bits), bits)
    rungs = rng.integers(0, mechanism.rungs, size=devices)
    for rung in range(mechanism.rungs):
        answers = drawn.answers[rung][rungs == rung]
        tally.counts[rung, 0] = np.bincount(answers, minlength=mechanism.answer.cells)
        tally.users[rung, 0] = len(answers)
    return tally


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock(WEEK + 10_000))


def test_a_share_beyond_its_threshold_is_noticed_and_one_inside_is_not(store: MemoryStore) -> None:
    known = with_rules()
    beyond = alert_bounds(known, WEEK, counted(known, [0.8, 0.15, 0.05], 5_000), "pooled", store.states)
    assert [(rule.value, rule.side, rule.firing) for rule in beyond] == [
        ("red", "above", True),
        ("blue", "below", True),
    ]
    inside = alert_bounds(known, WEEK + MINUTE_MS, counted(known, [0.49, 0.3, 0.21], 5_000), "pooled", store.states)
    assert not any(rule.firing for rule in inside)
    assert inside[0].bound is not None
    assert 0.3 < inside[0].bound < 0.5
    unanswered = alert_bounds(known, WEEK, Tally.empty(3, 1, 3), "pooled", store.states)
    assert [rule.bound for rule in unanswered] == [0.0, 1.0], "nothing is known before the first answer"


@pytest.mark.parametrize("method", ["pooled", "mle"])
def test_where_the_bound_may_switch_each_construction_has_half_of_a_rules_alpha(
    store: MemoryStore, method: str
) -> None:
    known = with_rules(method)
    tally = counted(known, [0.6, 0.3, 0.1], 2_000)
    questions = estimator_of(known.mechanism).yes_no(tally)
    assert questions is not None
    lower = confidence_sequence(questions, 0.005 / 2)[0]
    upper = confidence_sequence(questions, 0.005 / 2, side="below")[2]
    found = alert_bounds(known, WEEK, tally, method, store.states)
    assert [rule.bound for rule in found] == [lower, upper]
    assert [rule.alpha for rule in found] == [0.005, 0.005]
    # Checkpoints are taken from the first look on, whether shown or not: a late start would choose its own clock.
    assert b'["red","above",0.5,0.0025],1,2000' in store.states.get(known.id, STATE, WEEK)


def test_a_single_rung_has_the_e_process_with_all_of_alpha(store: MemoryStore) -> None:
    one = survey_text(ladder="ladder = [1.0]", opens='opens = ["0s"]')
    known = parse_survey(f"{one}\n{RULES}")
    tally = counted(known, [0.6, 0.3, 0.1], 2_000)
    questions = estimator_of(known.mechanism).yes_no(tally)
    assert questions is not None
    found = alert_bounds(known, WEEK, tally, known.method, store.states)
    assert found[0].bound == confidence_sequence(questions, 0.005)[0]
    assert store.states.get(known.id, STATE, WEEK) == b"", "the e-process has no state"


def test_a_survey_that_assumes_nothing_spends_all_of_alpha_on_checkpoints(store: MemoryStore) -> None:
    known = parse_survey(f"{survey_text()}\n{RULES}")
    assert known.rungs == "any"
    alert_bounds(known, WEEK, counted(known, [0.6, 0.3, 0.1], 2_000), "stratified", store.states)
    assert b'["red","above",0.5,0.005],1,2000' in store.states.get(known.id, STATE, WEEK)


MEAN_RUNGS = MEAN.replace("ladder = [4.0]", 'ladder = [1.0, 4.0]\nopens = ["0s", "1s"]')
SHARES = survey_text() + '\n[[alert]]\nvalue = "red"\nabove = 0.5\n'


@pytest.mark.parametrize(
    ("text", "population", "law"),
    [
        (SHARES, "fleet", "fleet"),
        (SHARES, "sampling", "sampling"),
        (MEAN_RUNGS, "fleet", "sampling"),
        (MEAN_RUNGS, "sampling", "sampling"),
    ],
)
def test_a_checkpoint_is_a_stratified_band_that_counts_all_that_scatters(
    store: MemoryStore, text: str, population: Population, law: Population
) -> None:
    known = parse_survey(f'{text}\n[estimate]\npopulation = "{population}"\n')
    tally = Tally.empty(known.mechanism.rungs, 1, known.mechanism.answer.cells)
    tally.counts[0, 0, :2], tally.users[0, 0] = (750, 250), 1_000
    tally.counts[1, 0, :2], tally.users[1, 0] = (400, 600), 1_000
    [rule] = alert_bounds(known, WEEK, tally, known.method, store.states)
    part, estimator = checkpoint_alpha(0.01, 1), estimator_of(known.mechanism)
    band = estimator.estimate(tally, method="stratified", population=population, alpha=part)
    place, (low, high) = known.mechanism.labels.index(rule.value), (value_ranges(known) or ())[0]
    assert rule.bound == pytest.approx(max(float(band.lower[place]), low))
    questions = estimator.yes_no(tally)
    assert questions is not None
    lower, _ = stratified_ends(questions, alpha=part, population=law)
    assert rule.bound == pytest.approx(low + (high - low) * max(float(lower[place]), 0.0))


def test_a_stratified_survey_takes_checkpoints_and_stores_them(store: MemoryStore) -> None:
    known = with_rules("stratified")
    small, large = (counted(known, [0.7, 0.2, 0.1], devices) for devices in (2_000, 2_050))
    first = alert_bounds(known, WEEK, small, "stratified", store.states)
    state = store.states.get(known.id, STATE, WEEK)
    assert state
    again = alert_bounds(known, WEEK, small, "stratified", store.states)
    assert (again, store.states.get(known.id, STATE, WEEK)) == (first, state), "looking again spends nothing"
    between = alert_bounds(known, WEEK, large, "stratified", store.states)
    assert store.states.get(known.id, STATE, WEEK) == state, "no tenth more information, no checkpoint"
    assert between[0].bound == pytest.approx((first[0].bound or 0) * 2_000 / 2_050), "newcomers could all be against it"
    alert_bounds(known, WEEK, counted(known, [0.7, 0.2, 0.1], 4_000), "stratified", store.states)
    assert store.states.get(known.id, STATE, WEEK) != state


def test_two_workers_cannot_spend_one_checkpoint() -> None:
    beaten: list[bool] = []

    def another_worker_is_faster(method: str, when: str) -> bool:
        if (method, when) == ("states.swap", "before") and not beaten:
            beaten.append(True)
            alert_bounds(known, WEEK, other, "stratified", store.states)
        return False

    known = with_rules("stratified")
    other, mine = counted(known, [0.7, 0.2, 0.1], 2_000, seed=4), counted(known, [0.7, 0.2, 0.1], 2_000, seed=5)
    store, calm = MemoryStore(ManualClock(WEEK)), MemoryStore(ManualClock(WEEK))
    busy = FaultyStore(store, another_worker_is_faster)
    found = alert_bounds(known, WEEK, mine, "stratified", busy.states)
    assert beaten
    assert found == alert_bounds(known, WEEK, other, "stratified", calm.states), (
        "the stored checkpoint holds, not the own one"
    )


def test_a_rule_stays_awake_when_the_rungs_begin_to_disagree(store: MemoryStore) -> None:
    known = with_rules("pooled")
    tally = counted(known, [0.8, 0.15, 0.05], 5_000)
    pooled = alert_bounds(known, WEEK, tally, "pooled", store.states)
    stratified = alert_bounds(known, WEEK, tally, "stratified", store.states)
    assert all(rule.firing for rule in [*pooled, *stratified])
    assert [rule.bound for rule in pooled] != [rule.bound for rule in stratified]


def test_a_changed_rule_begins_anew_and_a_broken_state_does_too(store: MemoryStore) -> None:
    known = with_rules("stratified")
    tally = counted(known, [0.7, 0.2, 0.1], 2_000)
    alert_bounds(known, WEEK, tally, "stratified", store.states)
    changed = with_rules("stratified", RULES.replace("0.5", "0.6"))
    assert changed.id == known.id
    alert_bounds(changed, WEEK, counted(known, [0.7, 0.2, 0.1], 2_000, seed=9), "stratified", store.states)
    state = store.states.get(known.id, STATE, WEEK)
    assert b'["red","above",0.6,0.005],1,2000' in state
    assert b'["blue","below",0.2,0.005],1,2000' in state
    assert store.states.swap(known.id, STATE, WEEK, state, b"rubbish", WEEK + MINUTE_MS)
    assert alert_bounds(known, WEEK, tally, "stratified", store.states)[0].bound is not None


def test_the_bound_of_a_mean_is_in_its_own_units(store: MemoryStore) -> None:
    known = parse_survey(MEAN)
    tally = Tally.empty(1, 1, 2)
    tally.counts[0, 0], tally.users[0, 0] = [200, 1_800], 2_000
    [rule] = alert_bounds(known, WEEK, tally, "pooled", store.states)
    assert rule.bound is not None
    assert 150 < rule.bound < 200
    assert rule.firing


def test_rules_that_can_never_speak_are_named() -> None:
    assert rule_problems(survey()) == rule_problems(with_rules()) == []
    [problem] = rule_problems(with_rules(rules='[[alert]]\nvalue = "red"\nabove = 1.5'))
    assert "alert[0].above: red is always between 0 and 1" in problem
    assert problem in explain(with_rules(rules='[[alert]]\nvalue = "red"\nabove = 1.5')).warnings


def record_of(known: Survey, tally: Tally, window_ms: int, alerts: Sequence[AlertBound] = ()) -> EstimateRecord:
    estimates = estimator_of(known.mechanism).estimate(tally)
    return make_record(known, window_ms, tally, estimates, read_ms=1, computed_ms=WEEK - 1, alerts=alerts)


def test_the_bounds_travel_with_the_estimate_and_old_estimates_have_none() -> None:
    known = with_rules()
    record = record_of(known, counted(known, [0.6, 0.3, 0.1], 100), WEEK, [AlertBound("red", "above", 0.5, 0.1, None)])
    assert decode_estimate(record.encode()) == record
    assert not record.alerts[0].firing
    old = record.encode().replace(b',"alerts":[', b',"later":[')
    assert decode_estimate(old).alerts == []


def test_what_a_faithful_device_has_spent() -> None:
    known = survey()
    tally = Tally.empty(3, 1, 3)
    tally.counts[0, 0], tally.users[0, 0] = [10, 0, 0], 10
    tally.counts[2, 0], tally.users[2, 0] = [30, 0, 0], 30
    record = record_of(known, tally, WEEK - MINUTE_MS)
    low, _, high = known.mechanism.epsilons
    assert mean_epsilon(record) == pytest.approx((10 * low + 30 * high) / 40)
    spent = budget_spent(known, WEEK - 8 * MINUTE_MS, {"1": record}, WEEK + 1)
    assert spent == pytest.approx(8 * (10 * low + 30 * high) / 40 / 100)
    assert budget_spent(known, None, {"1": record}, WEEK) is None
    assert budget_spent(known, WEEK, {"open": record}, WEEK) is None, "an open window has not shown its cost"


def test_the_first_window_is_remembered(store: MemoryStore) -> None:
    known = survey()
    assert first_window_ms(store.states, known.id) is None
    one, other = FirstWindows(store.states), FirstWindows(store.states)
    for windows, start_ms in ((one, WEEK), (other, WEEK + MINUTE_MS), (one, WEEK - MINUTE_MS), (other, WEEK)):
        windows.note(known, start_ms, WEEK)
    assert first_window_ms(store.states, known.id) == WEEK - MINUTE_MS


def test_shards_are_folded_to_a_bounded_number_of_series() -> None:
    assert folded([]) == []
    assert folded([1, 2, 3]) == [1, 2, 3]
    assert folded([1] * 130) == [3, 3] + [2] * 62


def test_rules_canaries_budgets_and_shards_become_metrics(store: MemoryStore) -> None:
    known = parse_survey(survey_text() + RULES + "\n[canary]\ndevices = 100\nseed = 1\nshares = [0.6, 0.3, 0.1]")

    class Known:
        def surveys(self, now_ms: int) -> Sequence[Survey]:  # noqa: ARG002
            return [known]

    tally = counted(known, [0.6, 0.3, 0.1], 500)
    record = record_of(known, tally, WEEK - MINUTE_MS, [AlertBound("red", "above", 0.5, 0.005, 0.42)])
    secret = store.queue.lock(known.id, WEEK - MINUTE_MS, 1_000)
    assert secret is not None
    store.estimates.save(known.id, WEEK - MINUTE_MS, secret, record.encode(), WEEK + 10 * MINUTE_MS)
    FirstWindows(store.states).note(known, WEEK - MINUTE_MS, WEEK)

    async def talk() -> str:
        reader = Reader(store, Known(), clock=ManualClock(WEEK + 10_000))
        async with TestClient(TestServer(make_app(reader, value_limit=100))) as client:
            return await (await client.get("/metrics")).text()

    text = asyncio.run(talk())
    rule = f'side="above",survey="{known.id}",value="red"'
    assert f'thaw_alert_bound_ratio{{{rule},window="1"}} 0.42' in text
    assert f"thaw_alert_threshold_ratio{{{rule}}} 0.5" in text
    assert f"thaw_alert_false_alarm_ratio{{{rule}}} 0.005" in text
    assert f'thaw_canary_z_score{{survey="{known.id}",value="red",window="1"}}' in text
    assert f'thaw_budget_spent_ratio{{survey="{known.id}"}}' in text
    exported = text.split(f'thaw_last_estimate_timestamp_seconds{{survey="{known.id}"}} ')[1].split("\n")[0]
    assert float(exported) == (WEEK - 1) / 1_000
    assert f'thaw_reports_rejected_total{{reason="magic",survey="{known.id}"}} 0.0' in text
