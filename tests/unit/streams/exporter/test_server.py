"""The exporter's HTTP side: answers, refusals, headers, the token and the stream of what changes."""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from streams.exporter.api import Alert, Alerts, Health, History, Windows
from streams.exporter.feed import Feed, Listener
from streams.exporter.guard import HEADERS
from streams.exporter.server import PAGE
from streams.exporter.views import MOST_WINDOWS, fresh_windows
from streams.exporter.watcher import Seen
from streams.store.heartbeats import Heartbeat
from streams.store.truth import Truth as TrueShares
from streams.windows.settled import settles_ms
from tests.support.clock import ManualClock
from tests.support.exporter import MINUTE_MS, NOW_MS, Client, FixedHeartbeats, FixedTruths, converse, record_of, save
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(ManualClock(NOW_MS))


async def told(client: Client, path: str, status: int = 200) -> Any:
    response = await client.get(path)
    body = await response.text()
    assert response.status == status, body
    return json.loads(body)


def test_surveys_tell_what_is_asked_and_what_it_costs(store: MemoryStore) -> None:
    colour = survey()

    async def talk(client: Client) -> Any:
        return await told(client, "/api/v1/surveys"), await told(client, f"/api/v1/surveys/{colour.id}")

    [listed], single = converse(store, [colour], talk)
    assert listed == single
    assert (listed["id"], listed["values"], listed["mechanism"]) == (colour.id, ["red", "green", "blue"], "grr")
    assert listed["epsilons"] == list(colour.mechanism.epsilons)
    assert listed["quantities"] == ["share"] * 3
    assert listed["opens_ms"] == [0, 10_000, 30_000]


def test_windows_come_newest_first_with_the_truth_of_a_simulated_fleet(store: MemoryStore) -> None:
    colour = survey()
    records = [record_of(colour, WEEK - age * MINUTE_MS, [0.5, 0.3, None]) for age in range(5)]
    for record in records:
        save(store, record)
    truths = FixedTruths(
        {WEEK: TrueShares([0.5, 0.25, 0.25], 90, settled=False), WEEK - MINUTE_MS: TrueShares([1.0], 1, settled=True)}
    )

    async def talk(client: Client) -> list[Windows]:
        path = f"/api/v1/surveys/{colour.id}/windows"
        queries = (
            "",
            "?limit=2",
            f"?from_ms={WEEK - 3 * MINUTE_MS}&to_ms={WEEK - 2 * MINUTE_MS}",
            "?from_ms=5&to_ms=4",
        )
        return [msgspec.convert(await told(client, path + query), Windows) for query in queries]

    everything, newest, some, none = converse(store, [colour], talk, truths=truths)
    assert [window.window_start_ms for window in everything.windows] == [record.window_start_ms for record in records]
    assert not everything.truncated
    assert everything.windows[0].truth is not None
    assert everything.windows[0].truth.shares == [0.5, 0.25, 0.25]
    assert everything.windows[1].truth is None, "a truth that does not fit the survey is not shown"
    assert [window.window_start_ms for window in newest.windows] == [WEEK, WEEK - MINUTE_MS]
    assert newest.truncated
    assert [window.window_start_ms for window in some.windows] == [WEEK - 2 * MINUTE_MS, WEEK - 3 * MINUTE_MS]
    assert none.windows == []


def test_windows_say_whether_they_are_settled(store: MemoryStore) -> None:
    colour = survey()
    for age in range(4):
        save(store, record_of(colour, WEEK - age * MINUTE_MS, [0.5, 0.3, None]))

    async def talk(client: Client) -> Windows:
        return msgspec.convert(await told(client, f"/api/v1/surveys/{colour.id}/windows"), Windows)

    windows = converse(store, [colour], talk).windows
    # The window before ended ten seconds ago, and its last rung opens twenty seconds from now.
    assert [window.state for window in windows] == ["open", "releasing", "settled", "settled"]
    assert windows[1].settles_ms == settles_ms(colour, WEEK - MINUTE_MS) > NOW_MS


def test_without_a_worker_no_window_settles(store: MemoryStore) -> None:
    colour = survey()
    start_ms = WEEK - 9 * MINUTE_MS
    save(store, record_of(colour, start_ms, [0.5, 0.3, None], read_ms=start_ms + 3_000))

    async def talk(client: Client) -> Windows:
        return msgspec.convert(await told(client, f"/api/v1/surveys/{colour.id}/windows"), Windows)

    assert [window.state for window in converse(store, [colour], talk).windows] == ["waiting"]


def test_a_history_tells_how_the_band_narrowed_and_when_rungs_opened(store: MemoryStore) -> None:
    colour = survey()
    for half in (0.2, 0.1, 0.05):
        save(store, record_of(colour, WEEK, [0.5, 0.3, None], half=half))

    async def talk(client: Client) -> tuple[History, Any, Any]:
        path = f"/api/v1/surveys/{colour.id}/windows/{WEEK}"
        history = await told(client, path + "/history")
        assert history == await told(client, path + "/life"), "the former path has the same answer"
        return msgspec.convert(history, History), await told(client, path), history

    history, window, raw = converse(store, [colour], talk)
    added = {"truth": None, "state": "open", "settles_ms": settles_ms(colour, WEEK), "devices": 100}
    stored = msgspec.to_builtins(record_of(colour, WEEK, [0.5, 0.3, None], half=0.05))
    assert stored.pop("views") == [], "they have a path of their own"
    assert window == stored | added
    assert set(raw) == {"survey", "window_start_ms", "window_end_ms", "values", "openings_ms", "epsilons", "points"}
    assert set(raw["points"][0]) == {"time_ms", "users_per_rung", "values", "estimate", "lower", "upper"}
    assert history.openings_ms == [WEEK, WEEK + 70_000, WEEK + 90_000]
    assert [point.upper[0] for point in history.points] == pytest.approx([0.7, 0.6, 0.55])
    assert history.points[0].estimate == [0.5, 0.3, None]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/api/v1/surveys/nobody-00000000", 404, "unknown survey"),
        ("/api/v1/surveys/nobody-00000000/windows", 404, "unknown survey"),
        ("/api/v1/surveys/{id}/windows/5", 404, "no window of {id} with an estimate starts at 5"),
        ("/api/v1/surveys/{id}/windows/5/life", 404, "no window of {id}"),
        (
            "/api/v1/surveys/{id}/windows/now",
            400,
            "start_ms must be a whole number from 0 to 9007199254740991; got 'now'",
        ),
        ("/api/v1/surveys/{id}/windows/-5", 400, "start_ms must be"),
        ("/api/v1/surveys/{id}/windows?limit=no", 400, "limit must be a whole number from 1 to 500; got 'no'"),
        ("/api/v1/surveys/{id}/windows?limit=0", 400, "limit must be"),
        ("/api/v1/surveys/{id}/windows?limit=501", 400, "limit must be"),
        ("/api/v1/surveys/{id}/windows?limit=1_0", 400, "limit must be"),
        ("/api/v1/surveys/{id}/windows?limit=%D9%A3", 400, "limit must be"),
        ("/api/v1/surveys/{id}/windows?limit=" + "9" * 5_000, 400, "limit must be"),
        ("/api/v1/surveys/{id}/windows?from_ms=1e3", 400, "from_ms must be"),
        ("/api/v1/surveys/{id}/windows?limit=1&limit=2", 400, "limit must be given once; got it 2 times"),
        ("/api/v1/surveys/{id}/windows?limt=1", 400, "unknown parameter 'limt'; did you mean limit?"),
        ("/api/v1/surveys?x=1", 400, "unknown parameter 'x'; expected none"),
        ("/api/v1/nothing", 404, "/api/openapi.json lists all paths"),
        ("/nowhere", 404, "/api/openapi.json lists all paths"),
        ("/static/../exporter.py", 404, "/api/openapi.json"),
        ("/static/..%2fexporter.py", 404, "404 Not Found"),
        ("/static//etc/passwd", 404, "no such file"),
    ],
)
def test_wrong_questions_are_refused_in_json_with_what_was_expected(
    store: MemoryStore, path: str, status: int, words: str
) -> None:
    colour = survey()
    answer = converse(store, [colour], lambda client: told(client, path.format(id=colour.id), status))
    assert words.format(id=colour.id) in answer["error"]


def test_other_methods_are_not_allowed(store: MemoryStore) -> None:
    async def talk(client: Client) -> tuple[int, str, Any]:
        response = await client.post("/api/v1/surveys")
        return response.status, response.headers["Allow"], await response.json()

    status, allowed, body = converse(store, [], talk)
    assert (status, set(allowed.split(","))) == (405, {"GET", "HEAD"})
    assert "error" in body


def test_a_huge_range_is_answered_with_a_bounded_number_of_windows(store: MemoryStore) -> None:
    colour = survey()
    for age in range(MOST_WINDOWS + 3):
        save(store, record_of(colour, WEEK - age * MINUTE_MS, [0.5, 0.3, 0.2]))
    path = f"/api/v1/surveys/{colour.id}/windows?from_ms=0&to_ms=9007199254740991&limit={MOST_WINDOWS}"
    answer = msgspec.convert(converse(store, [colour], lambda client: told(client, path)), Windows)
    assert (len(answer.windows), answer.truncated) == (MOST_WINDOWS, True)


def test_every_answer_forbids_scripts_from_elsewhere_and_sniffing(store: MemoryStore) -> None:
    async def talk(client: Client) -> list[dict[str, str]]:
        paths = (
            "/",
            "/static/app.js",
            "/metrics",
            "/healthz",
            "/api/v1/surveys",
            "/api/openapi.json",
            "/no",
            "/api/v1/x",
        )
        return [dict((await client.get(path)).headers) for path in paths]

    for headers in converse(store, [survey()], talk):
        assert {name: headers[name] for name in HEADERS} == HEADERS
        assert "Access-Control-Allow-Origin" not in headers
    assert HEADERS["Content-Security-Policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_the_page_is_served_whole_and_only_sent_again_when_it_changed(store: MemoryStore) -> None:
    async def talk(client: Client) -> None:
        for path in PAGE.rglob("*"):
            if path.is_file():
                name = path.relative_to(PAGE).as_posix()
                response = await client.get("/" if name == "index.html" else f"/static/{name}")
                assert response.status == 200, name
                assert await response.read() == path.read_bytes()
                again = await client.get(response.url.path, headers={"If-None-Match": response.headers["ETag"]})
                assert again.status == 304
        assert (await client.get("/")).content_type == "text/html"
        assert (await client.get("/static/app.js")).content_type == "text/javascript"

    converse(store, [], talk)


def test_without_the_token_only_the_page_and_the_probe_answer(store: MemoryStore) -> None:
    async def talk(client: Client) -> None:
        closed = ("/api/v1/surveys", "/api/v1/health", "/api/v1/events", "/api/openapi.json", "/metrics", "/api/v1/x")
        for path in closed:
            for given in (
                {},
                {"Authorization": "Bearer wrong"},
                {"Authorization": "Basic s3cret"},
                {"Authorization": "s3cret"},
            ):
                response = await client.get(path, headers=given)
                assert (response.status, response.headers["WWW-Authenticate"]) == (401, 'Bearer realm="thaw"'), path
                assert "s3cret" not in await response.text()
        for path in ("/", "/static/app.js", "/healthz"):
            assert (await client.get(path)).status == 200
        for given in ({"Authorization": "Bearer s3cret"}, {"Authorization": "bearer s3cret"}):
            assert (await client.get("/api/v1/surveys", headers=given)).status == 200
            assert (await client.get("/metrics", headers=given)).status == 200

    converse(store, [survey()], talk, token="s3cret")


def unreachable() -> FaultyStore:
    return FaultyStore(MemoryStore(ManualClock(NOW_MS)), lambda _method, _when: True, error="no route")


def test_a_store_that_is_away_is_an_answer_of_health_and_a_refusal_elsewhere() -> None:
    colour = survey()

    async def talk(client: Client) -> tuple[Any, Any]:
        await told(client, "/healthz", 503)
        await told(client, "/api/v1/surveys")
        return (
            await told(client, "/api/v1/health"),
            await told(client, f"/api/v1/surveys/{colour.id}/windows", 503),
        )

    health, refusal = converse(unreachable(), [colour], talk)
    assert (health["status"], health["reports_per_second"]) == ("down", None)
    assert "Redis does not answer (no route)" in health["reasons"][0]
    assert "Redis does not answer" in refusal["error"]


async def events(response: Any, wanted: int) -> list[tuple[str, Any]]:
    """Read this many events; what a proxy must not see in them would show here."""
    found: list[tuple[str, Any]] = []
    name = ""
    while len(found) < wanted:
        line = (await asyncio.wait_for(response.content.readline(), 60)).decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            found.append((name, json.loads(line.removeprefix("data: "))))
    return found


def test_a_listener_hears_health_alerts_and_every_window_that_changed_once(store: MemoryStore) -> None:
    colour = survey()
    save(store, record_of(colour, WEEK, [0.5, 0.3, 0.2]))
    rule = Alert("ThawFrequencyAboveThreshold", "firing", colour.id, "red", "open", "red is high", 5, None)

    async def alerts() -> Alerts:
        return Alerts("prometheus", [rule])

    async def talk(client: Client) -> list[tuple[str, Any]]:
        async with client.get("/api/v1/events") as response:
            assert response.headers["Content-Type"] == "text/event-stream"
            heard: list[tuple[str, Any]] = []
            for share in (0.6, 0.7):
                save(store, record_of(colour, WEEK, [share, 0.2, 0.2]))
                windows = len([name for name, _ in heard if name == "window"])
                while len([name for name, _ in heard if name == "window"]) == windows:
                    heard += await events(response, 1)
            return heard

    heard = converse(store, [colour], talk, alerts=alerts)
    windows = [data for name, data in heard if name == "window"]
    assert [window["values"][0]["estimate"] for window in windows] == [0.6, 0.7], "not what was there before"
    assert {name for name, _ in heard} == {"health", "alerts", "window"}
    health = msgspec.convert(next(data for name, data in heard if name == "health"), Health)
    assert health.last_estimate_ms == NOW_MS - 400
    assert next(data for name, data in heard if name == "alerts")["alerts"][0]["summary"] == "red is high"


def test_a_slow_listener_gets_the_newest_of_each_kind_and_no_queue() -> None:
    async def talk() -> list[bytes]:
        listener = Listener()
        for number in range(1_000):
            listener.put(("window", "a", "1"), b"window %d;" % number)
            listener.put(("health",), b"health %d;" % number)
        messages = listener.messages()
        first = await anext(messages)
        listener.put(("health",), b"health, newer;")
        return [first, await anext(messages)]

    assert asyncio.run(talk()) == [b"window 999;", b"health, newer;"]


def test_a_closed_listener_ends() -> None:
    async def talk() -> list[bytes]:
        listener = Listener()
        listener.close()
        return [message async for message in listener.messages()]

    assert asyncio.run(talk()) == []


def test_too_many_listeners_are_refused(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.exporter.feed.MOST_LISTENERS", 1)

    async def talk(client: Client) -> Any:
        async with client.get("/api/v1/events") as first:
            await events(first, 1)
            return await told(client, "/api/v1/events", 503)

    assert "too many listeners" in converse(store, [], talk)["error"]


def test_a_failed_look_does_not_end_the_feed(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    real = Feed.look

    async def look(feed: Feed, seen: Seen) -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise RuntimeError("once")
        await real(feed, seen)

    monkeypatch.setattr(Feed, "look", look)

    async def talk(client: Client) -> list[tuple[str, Any]]:
        async with client.get("/api/v1/events") as response:
            return await events(response, 1)

    assert converse(store, [], talk)[0][0] == "health"


def test_workers_and_their_lag_are_in_the_health(store: MemoryStore) -> None:
    colour = survey()
    save(store, record_of(colour, WEEK, [0.5, 0.3, 0.2]))
    heartbeats = [
        Heartbeat("a", NOW_MS - 1_000, 5, NOW_MS - 2_000, 0.5, 1.5),
        Heartbeat("b", NOW_MS - 2_000, 7, None, None, None),
        Heartbeat("c", NOW_MS - 60_000, 100, None, None, None),
    ]
    path = "/api/v1/health"
    answer = msgspec.convert(
        converse(store, [colour], lambda client: told(client, path), heartbeats=FixedHeartbeats(*heartbeats)), Health
    )
    assert (answer.status, answer.lag_records) == ("ok", 12)
    assert [(worker.name, worker.alive) for worker in answer.workers] == [("a", True), ("b", True), ("c", False)]


def test_windows_that_can_still_change_are_watched_and_the_rest_now_and_then() -> None:
    assert fresh_windows(survey()) == 12
    assert fresh_windows(survey(size='size = "20m"\nstep = "20s"', retention='retention = "1h"')) == 66
