"""The exporter: what is served from a store, without a network between."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
import tomli_w
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from producers.survey.survey import Canary, Survey, parse_survey
from streams.exporter.alert_states import pipeline_alerts
from streams.exporter.collector import Families, chosen_values
from streams.exporter.health import stale_after_ms
from streams.exporter.reader import Reader, windows_by_age
from streams.exporter.server import make_app
from streams.exporter.views import Views
from streams.metrics import METRICS
from streams.store.contract import Store
from streams.store.counters import UNKNOWN_SURVEY, Counters
from streams.windows.epsilon_audit import STATE, EpsilonAudit, encode_audit
from streams.windows.record import AlertBound
from tests.support.clock import ManualClock
from tests.support.examples import EXAMPLES, survey_file
from tests.support.exporter import MINUTE_MS, NOW_MS, Known, record_of, save
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey, survey_text


def serve(
    store: Store, *surveys: Survey, value_limit: int = 100
) -> Callable[[Callable[[TestClient[Any, Any]], Awaitable[Any]]], Any]:
    """Return what runs a conversation with the exporter."""

    def run(conversation: Callable[[TestClient[Any, Any]], Awaitable[Any]]) -> Any:
        async def talk() -> Any:
            reader = Reader(store, Known(*surveys), clock=ManualClock(NOW_MS))
            async with TestClient(TestServer(make_app(reader, value_limit=value_limit))) as client:
                return await conversation(client)

        return asyncio.run(talk())

    return run


async def text_of(client: TestClient[Any, Any], path: str) -> str:
    response: ClientResponse = await client.get(path)
    assert response.status == 200, await response.text()
    return await response.text()


def samples(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock(NOW_MS))


def test_the_assumption_about_rungs_and_its_contradiction_are_metrics(store: MemoryStore) -> None:
    known = parse_survey(survey_text() + '\n[estimate]\nrungs = "independent"\n', "test.toml")
    free = survey(name='name = "free"')
    for age, against in enumerate((False, True)):
        made = record_of(known, WEEK - age * MINUTE_MS, [0.5, 0.3, 0.2])
        save(store, msgspec.structs.replace(made, assumption="independent", contradicted=against))
    save(store, record_of(free, WEEK, [0.5, 0.3, 0.2]))
    found = samples(serve(store, known, free)(lambda client: text_of(client, "/metrics")))
    stated = {dict(labels)["survey"]: dict(labels)["rungs"] for name, labels in found if name == "thaw_survey_info"}
    assert stated == {known.id: "independent", free.id: "any"}
    against_by_place = {
        (dict(labels)["survey"], dict(labels)["window"]): value
        for (name, labels), value in found.items()
        if name == "thaw_rungs_contradicted"
    }
    assert against_by_place == {(known.id, "open"): 0.0, (known.id, "1"): 1.0}


def test_ages_count_back_from_the_window_that_closes_next() -> None:
    #   -1m       0         1m
    #   [--- 1 ---)[- open -)
    #                ^ now
    tumbling = windows_by_age(survey(), NOW_MS)
    assert tumbling == {"open": WEEK} | {str(age): WEEK - age * MINUTE_MS for age in range(1, 6)}
    #   hopping by 20 s: three windows are open, the oldest closes next
    hopping = windows_by_age(survey(size='size = "1m"\nstep = "20s"'), NOW_MS)
    assert hopping["open"] == WEEK - 40_000
    assert hopping["1"] == WEEK - 60_000


def test_copies_of_a_device_are_one_device_in_the_metrics(store: MemoryStore) -> None:
    [found] = [example for example in EXAMPLES if example.name == "k_randomization"]
    content = survey_file(found)
    content["mechanism"]["copies"] = 4
    crowd = parse_survey(tomli_w.dumps(content))
    record = record_of(crowd, WEEK, [0.5] * 4)
    save(store, msgspec.structs.replace(record, users=400, users_per_rung=[400], epsilons=[1.0]))
    metrics = samples(serve(store, crowd)(lambda client: text_of(client, "/metrics")))
    users = [number for (name, _), number in metrics.items() if name == "thaw_users"]
    assert users == [100]


def test_estimates_counters_and_times_become_metrics(store: MemoryStore) -> None:
    colour = survey()
    save(store, record_of(colour, WEEK, [0.5, 0.3, None]))
    save(store, record_of(colour, WEEK - MINUTE_MS, [0.6, 0.3, 0.1]))
    save(store, record_of(colour, WEEK - 6 * MINUTE_MS, [0.6, 0.3, 0.1]))
    store.log.count(colour.id, WEEK, Counters(expired=4, rejected={"rung": 2}), WEEK + 10 * MINUTE_MS)
    store.log.count(UNKNOWN_SURVEY, None, Counters(rejected={"magic": 3}), WEEK + 10 * MINUTE_MS)
    store.queue.put([(colour.id, WEEK)])
    found = samples(serve(store, colour)(lambda client: text_of(client, "/metrics")))

    def value(name: str, **labels: str) -> float | None:
        return found.get((name, tuple(sorted(labels.items()))))

    assert value("thaw_store_up") == 1
    assert value("thaw_frequency_estimate_ratio", survey=colour.id, value="red", window="open") == 0.5
    assert value("thaw_frequency_estimate_ratio", survey=colour.id, value="red", window="1") == 0.6
    assert value("thaw_frequency_lower_bound_ratio", survey=colour.id, value="red", window="1") == pytest.approx(0.5)
    assert value("thaw_frequency_upper_bound_ratio", survey=colour.id, value="red", window="1") == pytest.approx(0.7)
    assert value("thaw_frequency_estimate_ratio", survey=colour.id, value="blue", window="open") is None
    assert value("thaw_users", survey=colour.id, window="open", rung="0") == 70
    assert value("thaw_window_end_timestamp_seconds", survey=colour.id, window="1") == WEEK / 1_000
    assert value("thaw_estimate_timestamp_seconds", survey=colour.id, window="1") == (NOW_MS - 400) / 1_000
    assert value("thaw_reports_applied_total", survey=colour.id) == 0, "counters start at zero, not absent"
    assert value("thaw_reports_expired_total", survey=colour.id) == 4
    assert value("thaw_reports_rejected_total", survey=colour.id, reason="rung") == 2
    assert value("thaw_reports_rejected_total", survey=UNKNOWN_SURVEY, reason="magic") == 3
    assert value("thaw_recompute_queue_windows") == 1
    assert {dict(labels)["window"] for name, labels in found if "window" in dict(labels)} == {"open", "1"}


def values_of(store: MemoryStore, name: str, *surveys: Survey) -> dict[str, float]:
    """Return the samples of one metric by survey id."""
    found = samples(serve(store, *surveys)(lambda client: text_of(client, "/metrics")))
    return {dict(labels)["survey"]: value for (sample, labels), value in found.items() if sample == name}


LIMITED = (
    survey_text()
    + """
[[alert]]
value = "red"
above = 0.4

[limits]
band = 0.077
stale = "7m"
budget = 0.66
flood = 31
"""
)


def test_an_ended_survey_has_no_limit_of_age(store: MemoryStore) -> None:
    colour = replace(survey(), end_ms=NOW_MS)
    save(store, record_of(colour, WEEK, [0.5, 0.3, 0.2]))
    found = {name for name, _ in samples(serve(store, colour)(lambda client: text_of(client, "/metrics")))}
    assert {"thaw_last_estimate_timestamp_seconds", "thaw_limit_budget_ratio"} <= found
    assert not {"thaw_limit_stale_seconds", "thaw_limit_lag_seconds"} & found


def test_thresholds_and_limits_of_the_survey_file_become_metrics(store: MemoryStore) -> None:
    colour = parse_survey(LIMITED)
    [rule] = colour.alerts
    stored = [AlertBound("red", "above", 0.4, rule.alpha, 0.45)]
    save(store, msgspec.structs.replace(record_of(colour, WEEK, [0.5, 0.3, 0.2]), alerts=stored))
    found = samples(serve(store, colour)(lambda client: text_of(client, "/metrics")))
    assert {name: value for (name, _), value in found.items() if re.match("thaw_(limit|alert)_", name)} == {
        "thaw_limit_band": 0.077,
        "thaw_limit_stale_seconds": 420,
        "thaw_limit_lag_seconds": 60,
        "thaw_limit_budget_ratio": 0.66,
        "thaw_limit_shard_reports_per_second": 31,
        "thaw_alert_threshold_ratio": 0.4,
        "thaw_alert_false_alarm_ratio": 0.01,
        "thaw_alert_bound_ratio": 0.45,
    }
    assert values_of(store, "thaw_limit_band", survey()) == {}, "no limit, no series, no alert"
    assert values_of(store, "thaw_limit_stale_seconds", survey()) == {colour.id: 120}


def test_a_bound_of_a_rule_that_was_changed_since_is_not_exported(store: MemoryStore) -> None:
    colour = parse_survey(LIMITED)
    stored = [AlertBound("red", "above", 0.3, 0.01, 0.45), AlertBound("red", "below", 0.3, 0.01, 0.1)]
    save(store, msgspec.structs.replace(record_of(colour, WEEK, [0.5, 0.3, 0.2]), alerts=stored))
    assert values_of(store, "thaw_alert_bound_ratio", colour) == {}


MEAN = """
name = "delay"
question = "How long did it take?"
values = ["delay"]

[mechanism]
name = "mean"
low = 0
high = 500

[release]
kind = "listed"
ladder = [1.0]
opens = ["0s"]

[window]
size = "1m"
retention = "5m"

[budget]
lifetime = 100

[[alert]]
value = "delay"
above = 120
"""


def test_means_are_not_ratios(store: MemoryStore) -> None:
    delay = parse_survey(MEAN)
    [label], [rule] = delay.mechanism.labels, delay.alerts
    stored = [AlertBound(label, "above", 120.0, rule.alpha, 125.5)]
    save(store, msgspec.structs.replace(record_of(delay, WEEK, [130.0]), alerts=stored))
    found = samples(serve(store, delay)(lambda client: text_of(client, "/metrics")))
    named = {name: value for (name, labels), value in found.items() if dict(labels).get("value") == label}
    assert named == {
        "thaw_mean_estimate": 130.0,
        "thaw_mean_variance": 0.01,
        "thaw_mean_lower_bound": 129.9,
        "thaw_mean_upper_bound": 130.1,
        "thaw_alert_mean_bound": 125.5,
        "thaw_alert_mean_threshold": 120.0,
        "thaw_alert_false_alarm_ratio": 0.01,
    }


def test_a_removed_survey_has_no_series(store: MemoryStore) -> None:
    colour, shade = survey(), survey(name='name = "shade"')
    for known in (colour, shade):
        save(store, record_of(known, WEEK, [0.5, 0.3, 0.2]))
    both = serve(store, colour, shade)(lambda client: text_of(client, "/metrics"))
    one = serve(store, shade)(lambda client: text_of(client, "/metrics"))
    assert colour.id in both
    assert colour.id not in one
    assert shade.id in one


def test_the_old_id_of_a_changed_survey_has_no_limits_once_it_is_stale(store: MemoryStore) -> None:
    old, new = survey(), survey(ladder="ladder = [0.5, 1.0, 3.0]")
    assert (old.name, old.id != new.id) == (new.name, True)
    stale = msgspec.structs.replace(
        record_of(old, WEEK - MINUTE_MS, [0.5, 0.3, 0.2]), computed_ms=NOW_MS - stale_after_ms(old) - 1
    )
    save(store, stale)
    limit = "thaw_limit_stale_seconds"
    assert set(values_of(store, limit, old, new)) == {old.id, new.id}, "the new survey has no estimate yet"
    save(store, record_of(new, WEEK, [0.5, 0.3, 0.2]))
    assert set(values_of(store, limit, old, new)) == {new.id}
    save(store, record_of(old, WEEK, [0.5, 0.3, 0.2]))
    assert set(values_of(store, limit, old, new)) == {old.id, new.id}, "late reports still arrive for the old one"


def test_the_last_estimate_is_the_newest_computation_of_the_newest_windows(store: MemoryStore) -> None:
    colour = survey()
    save(store, record_of(colour, WEEK - MINUTE_MS, [0.5, 0.3, 0.2]))
    save(store, msgspec.structs.replace(record_of(colour, WEEK, [0.5, 0.3, 0.2]), computed_ms=NOW_MS - 9_000))
    name = "thaw_last_estimate_timestamp_seconds"
    assert values_of(store, name, colour) == {colour.id: (NOW_MS - 400) / 1_000}
    reader = Reader(store, Known(colour), clock=ManualClock(NOW_MS))
    health = Views(reader, clock=ManualClock(NOW_MS)).health(reader.snapshot())
    assert health.surveys[0].last_estimate_ms == NOW_MS - 400


def test_the_canary_of_the_page_and_of_the_metrics_is_the_same_number(store: MemoryStore) -> None:
    canary = replace(survey(), canary=Canary(2_000, 1, (0.5, 0.3, 0.2)))
    for age in range(8):
        save(store, record_of(canary, WEEK - age * MINUTE_MS, [0.6, 0.2, 0.2], users=2_000))
    clock = ManualClock(NOW_MS)
    reader = Reader(store, Known(canary), clock=clock)
    shown = Views(reader, clock=clock).health(reader.snapshot()).canary
    assert shown is not None
    assert values_of(store, "thaw_canary_joint_z_score", canary) == {canary.id: shown.z}
    assert values_of(store, "thaw_limit_canary_z_score", canary) == {canary.id: shown.limit}
    # Windows that may still get reports of open rungs do not count: the one of WEEK, and the one before.
    assert shown.window_start_ms == WEEK - 2 * MINUTE_MS


def proven(store: MemoryStore, canary: Survey, bounds: list[float]) -> None:
    """Store what the answers of a canary have shown."""
    audit = EpsilonAudit(1, NOW_MS, 0.001, 6_000, bounds, [], {"0": WEEK})
    raw = store.states.get(canary.id, STATE)
    assert store.states.swap(canary.id, STATE, None, raw, encode_audit(audit), NOW_MS + MINUTE_MS)


def test_what_a_canary_proves_of_its_epsilon_is_on_the_page_and_in_the_metrics_beside_what_is_declared(
    store: MemoryStore,
) -> None:
    canary, other = replace(survey(), canary=Canary(2_000, 1, (0.5, 0.3, 0.2))), survey(name='name = "other"')
    clock = ManualClock(NOW_MS)
    reader = Reader(store, Known(canary, other), clock=clock)
    views = Views(reader, clock=clock)
    assert views.health(reader.snapshot()).epsilon_audits == []
    proven(store, other, [9.0, 9.0, 9.0])  # not a canary: nobody knows its truth
    levels = canary.mechanism.epsilons
    for bounds, exceeded in (([0.5 * level for level in levels], False), ([levels[0], 0.0, levels[2] + 0.5], True)):
        proven(store, canary, bounds)
        health = views.health(reader.snapshot())
        [audit] = health.epsilon_audits
        assert (audit.survey, audit.answers, audit.exceeded) == (canary.id, 6_000, exceeded)
        found = samples(serve(store, canary, other)(lambda client: text_of(client, "/metrics")))
        for name, expected in (("lower_bound", bounds), ("declared", levels)):
            series = {
                (dict(labels)["survey"], dict(labels)["rung"]): value
                for (sample, labels), value in found.items()
                if sample == f"thaw_audit_epsilon_{name}"
            }
            assert series == {(canary.id, str(rung)): value for rung, value in enumerate(expected)}
        told = [text for text in health.warnings if "prove an epsilon" in text]
        assert len(told) == exceeded
        if exceeded:
            assert f"{canary.id} prove an epsilon of at least {levels[2] + 0.5:.2f} at rung 2; declared is" in told[0]
        [alert] = [alert for alert in pipeline_alerts(health) if alert.name == "ThawEpsilonAboveDeclared"]
        assert alert.state == ("firing" if exceeded else "inactive")
        assert ("at least" in alert.summary) == exceeded


def test_a_stored_audit_of_another_ladder_is_not_shown(store: MemoryStore) -> None:
    canary = replace(survey(), canary=Canary(2_000, 1, (0.5, 0.3, 0.2)))
    proven(store, canary, [9.0])
    assert values_of(store, "thaw_audit_epsilon_lower_bound", canary) == {}
    assert values_of(store, "thaw_audit_timestamp_seconds", canary) == {}


def test_only_names_of_the_table_can_be_exported() -> None:
    families = Families()
    families.add("thaw_store_up", 1)
    with pytest.raises(KeyError):
        families.add("thaw_unknown", 1)


def test_a_missing_number_has_no_sample() -> None:
    families = Families()
    families.add("thaw_homogeneity_p_ratio", None, "s", "1")
    assert all(not family.samples for family in families.all())


def test_every_metric_of_the_table_is_described_and_no_other(store: MemoryStore) -> None:
    text = serve(store)(lambda client: text_of(client, "/metrics"))
    described = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    assert described == {metric.name for metric in METRICS if metric.process == "exporter"}


def test_a_survey_with_many_values_shows_the_most_frequent_ones(store: MemoryStore) -> None:
    colour = survey()
    save(store, record_of(colour, WEEK, [0.1, 0.5, 0.4]))
    found = samples(serve(store, colour, value_limit=2)(lambda client: text_of(client, "/metrics")))
    shown = {dict(labels)["value"] for name, labels in found if name == "thaw_frequency_estimate_ratio"}
    assert shown == {"green", "blue"}
    assert found["thaw_frequency_values_left_out", (("survey", colour.id),)] == 1


def test_windows_with_more_users_weigh_more_when_values_are_chosen() -> None:
    colour = survey()
    records = [record_of(colour, WEEK, [0.9, 0.1, 0.0], users=10), record_of(colour, WEEK, [0.0, 0.1, 0.9], users=90)]
    assert chosen_values(colour.mechanism.labels, records, 1) == {"blue"}
    assert chosen_values(colour.mechanism.labels, [], 2) == {"red", "green"}, "without estimates as the survey lists"


def unreachable() -> FaultyStore:
    return FaultyStore(MemoryStore(ManualClock(NOW_MS)), lambda _method, _when: True, error="no route")


def test_a_store_that_is_away_is_told_and_nothing_old_is_shown() -> None:
    colour, away = survey(), unreachable()

    async def talk(client: TestClient[Any, Any]) -> tuple[str, list[int]]:
        text = await text_of(client, "/metrics")
        paths = ("/healthz", f"/api/v1/surveys/{colour.id}/windows")
        return text, [(await client.get(path)).status for path in paths]

    text, statuses = serve(away, colour)(talk)
    assert samples(text) == {("thaw_store_up", ()): 0.0}
    assert statuses == [503, 503]
