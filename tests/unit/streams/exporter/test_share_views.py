"""Views of a window through the API: labelled, with what they are closer to, and a likelihood that is asked for."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from producers.survey.survey import parse_survey
from streams.store.contract import StoreDeniedError
from streams.windows.likelihood import Likelihood, Likelihoods
from streams.windows.record import ShareView
from tests.support.clock import ManualClock
from tests.support.exporter import NOW_MS, Client, converse, record_of, save
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey, survey_text

SUE = parse_survey(survey_text().replace('name = "grr"', 'name = "sue"'), "test.toml")
VIEWS = [
    ShareView("simplex", [0.6, 0.4, 0.0], None, 0.02, 0.1),
    ShareView("threshold", [0.7, 0.15, 0.15], [True, False, False], 0.11, 0.1),
]


async def told(client: Client, path: str, status: int = 200) -> Any:
    response = await client.get(path)
    body = await response.text()
    assert response.status == status, body
    return json.loads(body)


def test_views_are_labelled_and_say_whether_they_are_closer() -> None:
    store, colour = MemoryStore(ManualClock(NOW_MS)), survey()
    save(store, msgspec.structs.replace(record_of(colour, WEEK, [0.7, 0.5, -0.2]), views=VIEWS))

    async def talk(client: Client) -> Any:
        path = f"/api/v1/surveys/{colour.id}"
        return await told(client, path), await told(client, f"{path}/windows/{WEEK}/views")

    info, found = converse(store, [colour], talk)
    assert info["views"] == ["threshold", "simplex"]
    assert abs(info["z"] - 1.96) < 0.01
    simplex, threshold = found["views"]
    assert (simplex["name"], simplex["state"], simplex["shares"], simplex["closer"]) == (
        "simplex", "ready", [0.6, 0.4, 0.0], True,
    )  # fmt: skip
    assert "2.0 points away in total variation, the unbiased estimate 10.0" in simplex["note"]
    assert threshold["kept"] == [True, False, False]
    assert not threshold["closer"]
    assert "not closer" in threshold["note"]


def test_a_likelihood_is_computed_only_when_it_is_asked_for() -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    save(store, record_of(SUE, WEEK, [0.7, 0.5, -0.2]))
    likelihoods = Likelihoods(store.states)

    async def talk(client: Client) -> Any:
        path = f"/api/v1/surveys/{SUE.id}/windows/{WEEK}/views"
        before = (await told(client, path))["views"][-1]
        asked = (await told(client, f"{path}?ask=likelihood"))["views"][-1]
        assert likelihoods.asked(SUE) == [WEEK]
        assert likelihoods.take(SUE, WEEK, "one", NOW_MS)
        likelihoods.tell(SUE, WEEK, Likelihood("computing", NOW_MS, "one", 0.25))
        computing = (await told(client, path))["views"][-1]
        likelihoods.tell(SUE, WEEK, Likelihood("done", NOW_MS, "one", 1.0, 100, [0.5, 0.5, 0.0]))
        done = (await told(client, path))["views"][-1]
        wrong = await told(client, f"{path}?ask=more", 400)
        return before, asked, computing, done, wrong

    before, asked, computing, done, wrong = converse(store, [SUE], talk)
    assert [one["state"] for one in (before, asked, computing, done)] == ["not asked", "asked", "computing", "ready"]
    assert computing["progress"] == 0.25
    assert done["shares"] == [0.5, 0.5, 0.0]
    assert done["note"] == "From 100 reports."
    assert wrong["error"] == "ask must be likelihood; got 'more'"


def test_a_reader_that_may_not_ask_is_told_so_and_sees_everything_else() -> None:
    store, refusal = MemoryStore(ManualClock(NOW_MS)), "user 'reader' lacks a right at Redis at h:6379"
    save(store, record_of(SUE, WEEK, [0.7, 0.5, -0.2]))

    def deny(call: str, _when: str) -> bool:
        if call == "states.swap":
            raise StoreDeniedError(refusal)
        return False

    async def talk(client: Client) -> Any:
        path = f"/api/v1/surveys/{SUE.id}/windows/{WEEK}/views"
        refused = await told(client, f"{path}?ask=likelihood", 503)
        assert (await client.get("/healthz")).status == 200
        return refused, (await told(client, path))["views"][-1]["state"]

    assert converse(FaultyStore(store, deny), [SUE], talk) == ({"error": refusal}, "not asked")
