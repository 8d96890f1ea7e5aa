"""States of alerts: read from Prometheus, or judged by the stored bounds."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from producers.survey.survey import parse_survey
from streams.exporter.alert_states import (
    PrometheusAlerts,
    alerts_of,
    assumption_alerts,
    pipeline_alerts,
    threshold_alerts,
    with_runbooks,
)
from streams.exporter.api import Alert, Alerts, CanaryScore, Health, SurveyHealth
from streams.exporter.health import stale_after_ms
from streams.exporter.pipeline import store_down
from streams.exporter.reader import Reader
from streams.exporter.views import Views, stored_alerts
from streams.windows.record import AlertBound, EstimateRecord
from tests.support.clock import ManualClock
from tests.support.exporter import NOW_MS, Client, Known, converse, record_of, save
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey_text

RULES = """
[[alert]]
value = "red"
above = 0.4

[[alert]]
value = "blue"
below = 0.1
"""
COLOUR = parse_survey(survey_text() + RULES, "colour.toml")


def record(red: float | None, blue: float | None, *, threshold: float = 0.4) -> EstimateRecord:
    bounds = [AlertBound("red", "above", threshold, 0.005, red), AlertBound("blue", "below", 0.1, 0.005, blue)]
    return msgspec.structs.replace(record_of(COLOUR, WEEK, [0.5, 0.3, 0.2]), alerts=bounds)


def test_a_rule_fires_when_its_bound_is_beyond_the_threshold_and_not_before() -> None:
    states = [(alert.name, alert.state) for alert in threshold_alerts(COLOUR, {"open": record(0.41, 0.2)})]
    assert states == [("ThawFrequencyAboveThreshold", "firing"), ("ThawFrequencyBelowThreshold", "inactive")]
    [above, below] = threshold_alerts(COLOUR, {"open": record(0.4, None), "1": record(None, 0.05)})
    assert (above.state, below.state, below.window) == ("inactive", "firing", "1")
    told = "blue is below its threshold of 0.1: the upper bound is 0.05; nothing is assumed about rungs"
    assert below.summary == told
    assert below.since_ms is None, "the stored estimate does not tell since when"


def test_bounds_of_a_rule_that_was_changed_since_do_not_count() -> None:
    [above, _] = threshold_alerts(COLOUR, {"open": record(0.41, None, threshold=0.3)})
    assert above.state == "inactive"


INDEPENDENT = parse_survey(survey_text() + '\n[estimate]\nrungs = "independent"\n', "colour.toml")


def watched(*p_values: float) -> dict[str, EstimateRecord]:
    """Return windows by age, the open one first, with these p-values; below 0.001 they contradict the assumption."""
    plain = msgspec.structs.replace(record_of(INDEPENDENT, WEEK, [0.5, 0.3, 0.2]), assumption="independent")
    ages = ("open", "1", "2", "3", "4", "5")
    return {
        age: msgspec.structs.replace(plain, homogeneity_p=p, contradicted=p < 0.001)
        for age, p in zip(ages, p_values, strict=False)
    }


@pytest.mark.parametrize(
    ("p_values", "state"),
    [
        ((0.5, 0.5, 0.5), "inactive"),
        ((1e-9, 0.5, 0.5), "inactive"),
        ((0.5, 0.0005, 0.5, 0.0005), "inactive"),
        ((0.5, 0.0005, 0.5, 0.0005, 0.0005), "firing"),
        ((0.5, 0.5, 0.5, 1e-7), "firing"),
    ],
)
def test_rungs_that_contradict_the_survey_are_an_alert(p_values: tuple[float, ...], state: str) -> None:
    [alert] = assumption_alerts(INDEPENDENT, watched(*p_values))
    assert (alert.name, alert.state, alert.survey) == ("ThawRungsContradicted", state, INDEPENDENT.id)
    assert ("contradict" in alert.summary) == (state == "firing")


def test_a_survey_that_assumes_nothing_cannot_be_contradicted() -> None:
    assert assumption_alerts(COLOUR, watched(0.5, 1e-9, 1e-9, 1e-9)) == []


def test_alerts_on_values_name_the_assumption() -> None:
    known = parse_survey(survey_text() + RULES + '\n[estimate]\nrungs = "independent"\n', "colour.toml")
    assumed = msgspec.structs.replace(record(0.41, 0.2), assumption="independent")
    [above, _] = threshold_alerts(known, {"open": assumed})
    assert above.summary.endswith("; assumes that the rung of a device does not depend on its value")


def test_a_store_that_is_away_and_a_canary_that_strays_are_alerts() -> None:
    down = store_down(NOW_MS, "no route")
    assert [(alert.name, alert.state) for alert in pipeline_alerts(down)] == [
        ("ThawStoreDown", "firing"),
        ("ThawKafkaDown", "inactive"),
        ("ThawEstimatesBehind", "inactive"),
        ("ThawEstimateStale", "inactive"),
    ]
    strayed = CanaryScore("canary-00000000", WEEK, "north", -7.25, 3.5)
    ok: Health = msgspec.structs.replace(down, status="ok", store="up", reasons=[], canary=strayed)
    [up, _, _, stale, canary] = pipeline_alerts(ok)
    assert (up.state, up.summary, stale.state, stale.summary) == ("inactive", "", "inactive", "")
    assert (canary.state, canary.summary) == ("firing", "north is -7.2 standard errors from its truth")


def test_a_kafka_that_is_away_and_estimates_that_are_behind_are_alerts() -> None:
    ill = msgspec.structs.replace(
        store_down(NOW_MS, "no route"), store="up", kafka="down", lag_seconds=28.4, lag_limit_seconds=20.0
    )
    firing = [(alert.name, alert.summary) for alert in pipeline_alerts(ill) if alert.state == "firing"]
    assert firing == [
        ("ThawKafkaDown", "Kafka does not answer every worker"),
        ("ThawEstimatesBehind", "Estimates are 28 s behind"),
    ]


def test_links_to_runbooks_lead_somewhere_from_the_page() -> None:
    own, path, other = (
        Alert("ThawStoreDown", "firing", None, None, None, "", None, runbook)
        for runbook in (None, "docs/runbooks/ThawStoreDown.md", "https://example.org/x")
    )
    foreign = msgspec.structs.replace(own, name="NodeDown")

    def links(base: str) -> list[str | None]:
        found = with_runbooks(Alerts("prometheus", [own, path, other, foreign]), base, {"ThawStoreDown.md"})
        return [alert.runbook for alert in found.alerts]

    assert links("/runbooks") == ["/runbooks/ThawStoreDown.md"] * 2 + ["https://example.org/x", None]
    assert links("https://a/r/")[:2] == ["https://a/r/ThawStoreDown.md"] * 2


@pytest.mark.parametrize(("options", "link"), [({}, "/runbooks"), ({"runbooks": "https://a/r"}, "https://a/r")])
def test_the_exporter_serves_the_runbooks_that_it_links_to(options: dict[str, str], link: str) -> None:
    async def talk(client: Client) -> tuple[Alerts, str, int]:
        alerts = msgspec.json.decode(await (await client.get("/api/v1/alerts")).read(), type=Alerts)
        page = await client.get("/runbooks/ThawStoreDown.md")
        assert page.content_type == "text/plain"
        return alerts, await page.text(), (await client.get("/runbooks/Nothing.md")).status

    alerts, page, missing = converse(MemoryStore(ManualClock(NOW_MS)), [COLOUR], talk, **options)
    assert {alert.runbook for alert in alerts.alerts} == {f"{link}/{alert.name}.md" for alert in alerts.alerts}
    assert page.startswith("# ThawStoreDown\n")
    assert missing == 404


def test_without_prometheus_the_api_judges_by_what_is_stored() -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    save(store, record(0.41, 0.2))

    async def talk(client: Client) -> Alerts:
        return msgspec.json.decode(await (await client.get("/api/v1/alerts")).read(), type=Alerts)

    answer: Alerts = converse(store, [COLOUR], talk)
    assert answer.source == "estimates"
    assert [(alert.name, alert.value) for alert in answer.alerts if alert.state == "firing"] == [
        ("ThawFrequencyAboveThreshold", "red"),
    ]


def test_the_old_id_of_a_changed_survey_is_not_evaluated_once_it_is_stale() -> None:
    store, clock = MemoryStore(ManualClock(NOW_MS)), ManualClock(NOW_MS)
    old_ms = NOW_MS - stale_after_ms(COLOUR) - 1
    save(store, msgspec.structs.replace(record(0.41, 0.2), computed_ms=old_ms))
    changed = parse_survey(survey_text(ladder="ladder = [0.5, 1.0, 3.0]") + RULES, "colour.toml")
    reader = Reader(store, Known(COLOUR, changed), clock=clock)
    views = Views(reader, clock=clock)

    def firing() -> list[tuple[str, str | None]]:
        snapshot = reader.snapshot()
        alerts = stored_alerts(views.health(snapshot), snapshot).alerts
        return [(alert.name, alert.survey) for alert in alerts if alert.state == "firing"]

    assert firing() == [("ThawEstimateStale", COLOUR.id), ("ThawFrequencyAboveThreshold", COLOUR.id)]
    save(store, record_of(changed, WEEK, [0.5, 0.3, 0.2]))
    assert firing() == []


def test_a_stale_survey_is_an_alert_by_the_same_limit_as_the_rule() -> None:
    down = store_down(NOW_MS, "no route")
    late = SurveyHealth("colour-00000000", NOW_MS - 130_000, True, 120_000)
    fresh = SurveyHealth("shade-00000000", NOW_MS, False, 120_000)
    *_, stale = pipeline_alerts(msgspec.structs.replace(down, status="stale", surveys=[late, fresh]))
    assert (stale.name, stale.state, stale.survey) == ("ThawEstimateStale", "firing", "colour-00000000")
    assert stale.summary == "The last estimate is 130 s old; the limit is 120 s"


ANSWER: dict[str, Any] = {
    "status": "success",
    "data": {
        "groups": [
            {
                "rules": [
                    {"type": "recording", "name": "x"},
                    {"type": "alerting", "name": "Quiet", "labels": {}, "annotations": {"summary": "{{ $value }}"}},
                    {
                        "type": "alerting",
                        "name": "Loud",
                        "alerts": [
                            {
                                "state": "pending",
                                "labels": {"survey": "s", "value": "v", "window": "1"},
                                "annotations": {"summary": "soon", "runbook_url": "docs/runbooks/Loud.md"},
                                "activeAt": "2026-09-21T14:14:00.123456789Z",
                            },
                            {"state": "firing", "labels": {}, "annotations": {"description": "now"}},
                        ],
                    },
                ]
            }
        ]
    },
}


def test_prometheus_is_read_firing_alerts_first() -> None:
    found = alerts_of(ANSWER).alerts
    assert [(alert.name, alert.state, alert.summary) for alert in found] == [
        ("Loud", "firing", "now"),
        ("Loud", "pending", "soon"),
        ("Quiet", "inactive", ""),
    ]
    assert (found[1].survey, found[1].value, found[1].window) == ("s", "v", "1")
    assert found[1].since_ms == 1_790_000_040_123
    assert found[1].runbook == "docs/runbooks/Loud.md"


@pytest.mark.parametrize(
    ("status", "body"),
    [(200, ANSWER), (500, {}), (200, {}), (200, {"data": None}), (200, []), (200, "<html>")],
    ids=["good", "error", "empty", "null", "list", "text"],
)
def test_a_failing_prometheus_is_reported_as_unreachable(status: int, body: Any) -> None:
    asked = 0

    async def rules(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response(body, status=status)

    async def talk() -> tuple[Alerts, Alerts]:
        app = web.Application()
        app.router.add_get("/api/v1/rules", rules)
        async with TestServer(app) as server:
            source = PrometheusAlerts(f"{server.make_url('/')}")
            return await source(), await source()

    first, second = asyncio.run(talk())
    assert first == second
    assert first.source == ("prometheus" if body is ANSWER else "unreachable")
    assert asked == 1, "Prometheus is asked every other second, for any number of viewers"


def test_a_prometheus_that_hangs_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.exporter.alert_states.WAIT_SECONDS", 0.05)
    asked, answers = 0, asyncio.Event()

    async def rules(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await answers.wait()
        return web.json_response(ANSWER)

    async def talk() -> tuple[list[Alerts], Alerts]:
        app = web.Application()
        app.router.add_get("/api/v1/rules", rules)
        async with TestServer(app) as server:
            source = PrometheusAlerts(f"{server.make_url('/')}")
            # One after the other: were each to wait for Prometheus, its time-out would end the first.
            hung = [await source() for _ in range(3)] + await asyncio.gather(*(source() for _ in range(50)))
            answers.set()
            while (answer := await source()).source == "unreachable":
                pass
            return hung, answer

    hung, answer = asyncio.run(talk())
    assert {found.source for found in hung} == {"unreachable"}
    assert answer.source == "prometheus"
    assert asked == 1, "one question serves all"


def test_a_prometheus_that_is_not_there_is_told_as_unreachable() -> None:
    assert asyncio.run(PrometheusAlerts("http://127.0.0.1:1")()) == Alerts("unreachable", [])
