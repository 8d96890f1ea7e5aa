"""The exporter: a process of its own that reads Redis alone and serves metrics, a page and an API over HTTP."""

from __future__ import annotations

import asyncio
import html
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from producers.survey import Survey
from streams.clock import Clock, system_clock
from streams.estimate_record import EstimateRecord, RecordError, decode_estimate
from streams.logs import StateLog
from streams.metrics import Families
from streams.recompute import SurveyList
from streams.store import UNKNOWN_SURVEY, Store, StoreUnavailableError

logger = logging.getLogger(__name__)

CLOSED_WINDOWS = 5
"""Closed windows that have series of their own; older ones are in the API. More: more series for the same survey."""
API_WINDOWS = 50

_COUNTERS = ("applied", "duplicate", "stale", "conflict", "expired")
_REJECTED = "rejected:"


def windows_by_age(survey: Survey, now_ms: int) -> dict[str, int]:
    """Return the starts of the windows that have series: `open` is the one that closes next, `1` closed last."""
    windows = survey.windows
    first_open = windows.starts(now_ms)[0]
    return {"open": first_open} | {str(age): first_open - age * windows.step_ms for age in range(1, CLOSED_WINDOWS + 1)}


@dataclass(frozen=True)
class SurveyState:
    """What the store knows of one survey at one moment."""

    survey: Survey
    records: Mapping[str, EstimateRecord]
    """By age."""
    counters: Mapping[str, int]


class Reader:
    """Reads surveys, estimates and counters. Blocking; the HTTP server calls it from a thread."""

    def __init__(self, store: Store, surveys: SurveyList, *, clock: Clock = system_clock) -> None:
        self._store, self._surveys, self._clock = store, surveys, clock

    def surveys(self) -> Sequence[Survey]:
        """Return all known surveys."""
        return self._surveys.surveys(self._clock())

    def states(self) -> list[SurveyState]:
        """Return what is known of every survey."""
        now_ms = self._clock()
        found = []
        for survey in self._surveys.surveys(now_ms):
            starts = windows_by_age(survey, now_ms)
            records = {age: self._record(survey.id, start_ms) for age, start_ms in starts.items()}
            found.append(
                SurveyState(
                    survey,
                    {age: record for age, record in records.items() if record is not None},
                    self._store.counters(survey.id),
                )
            )
        return found

    def strangers(self) -> Mapping[str, int]:
        """Return the counters of what was rejected before its survey was known."""
        return self._store.counters(UNKNOWN_SURVEY)

    def dirty(self) -> int:
        """Return the number of windows whose estimate is older than their counts."""
        return len(self._store.dirty())

    def windows(self, survey_id: str, limit: int) -> list[EstimateRecord]:
        """Return the stored estimates of a survey, newest window first."""
        starts = self._store.window_starts(survey_id)[-limit:]
        records = (self._record(survey_id, start_ms) for start_ms in reversed(starts))
        return [record for record in records if record is not None]

    def _record(self, survey_id: str, start_ms: int) -> EstimateRecord | None:
        payload = self._store.estimate(survey_id, start_ms)
        if payload is None:
            return None
        try:
            return decode_estimate(payload)
        except RecordError as error:
            logger.warning("%s, window %d: %s", survey_id, start_ms, error)
            return None


class ThawCollector(Collector):
    """Makes all metrics anew at every scrape, so that a series ends with what it told about."""

    def __init__(self, reader: Reader, *, value_limit: int) -> None:
        self._reader, self._value_limit = reader, value_limit
        self._redis = StateLog(logger, "Redis")

    def collect(self) -> Iterator[Metric]:
        """Return all families; only `thaw_store_up` has a sample if the store does not answer."""
        families = Families()
        try:
            states = self._reader.states()
            dirty = self._reader.dirty()
            strangers = self._reader.strangers()
        except StoreUnavailableError as error:
            self._redis.down(error)
            families.add("thaw_store_up", 0)
        else:
            self._redis.up()
            families.add("thaw_store_up", 1)
            families.add("thaw_dirty_windows", dirty)
            _add_rejected(families, UNKNOWN_SURVEY, strangers)
            for state in states:
                self._add(families, state)
        yield from families.all()

    def _add(self, families: Families, state: SurveyState) -> None:
        survey = state.survey
        families.add("thaw_survey_info", 1, survey.id, survey.name, survey.mechanism.name)
        for name in _COUNTERS:
            families.add(f"thaw_reports_{name}_total", state.counters.get(name, 0), survey.id)
        _add_rejected(families, survey.id, state.counters)
        shown = chosen_values(survey.mechanism.labels, state.records.values(), self._value_limit)
        families.add("thaw_frequency_values_left_out", len(survey.mechanism.labels) - len(shown), survey.id)
        for age, record in state.records.items():
            families.add("thaw_window_end_timestamp_seconds", record.window_end_ms / 1_000, survey.id, age)
            families.add("thaw_estimate_timestamp_seconds", record.computed_ms / 1_000, survey.id, age)
            families.add("thaw_homogeneity_p_ratio", record.homogeneity_p, survey.id, age)
            for rung, users in enumerate(record.users_per_rung):
                families.add("thaw_users", users, survey.id, age, str(rung))
            for row in record.values:
                if row.value in shown:
                    place = (survey.id, row.value, age)
                    families.add("thaw_frequency_estimate_ratio", row.estimate, *place)
                    families.add("thaw_frequency_variance", row.variance, *place)
                    families.add("thaw_frequency_lower_bound_ratio", row.lower, *place)
                    families.add("thaw_frequency_upper_bound_ratio", row.upper, *place)
                    families.add("thaw_frequency_always_valid_lower_bound_ratio", row.always_valid_lower, *place)
                    families.add("thaw_frequency_always_valid_upper_bound_ratio", row.always_valid_upper, *place)


def _add_rejected(families: Families, survey_id: str, counters: Mapping[str, int]) -> None:
    for name, count in counters.items():
        if name.startswith(_REJECTED):
            families.add("thaw_reports_rejected_total", count, survey_id, name.removeprefix(_REJECTED))


def chosen_values(labels: Sequence[str], records: Any, limit: int) -> frozenset[str]:
    """Return the values that get series: all, or the `limit` most frequent over the windows shown, ties as listed."""
    if len(labels) <= limit:
        return frozenset(labels)
    people = dict.fromkeys(labels, 0.0)
    for record in records:
        for row in record.values:
            people[row.value] = people.get(row.value, 0.0) + (row.estimate or 0.0) * record.users
    return frozenset(sorted(labels, key=lambda label: -people[label])[:limit])


def survey_json(survey: Survey) -> dict[str, Any]:
    """Return what the API tells about a survey."""
    return {
        "id": survey.id,
        "name": survey.name,
        "question": survey.question,
        "mechanism": survey.mechanism.name,
        "guarantee": survey.mechanism.guarantee.sentence,
        "values": list(survey.mechanism.labels),
        "epsilons": [epsilon if epsilon < float("inf") else None for epsilon in survey.mechanism.epsilons],
        "opens_ms": list(survey.opens_ms),
        "window_size_ms": survey.windows.size_ms,
        "window_step_ms": survey.windows.step_ms,
        "retention_ms": survey.retention_ms,
        "method": survey.method,
        "population": survey.population,
        "alpha": survey.alpha,
    }


# Nothing is loaded from anywhere and nothing runs: whatever a survey file says stays text.
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_SURVEY_ID = re.compile(r"[^/]{1,200}")


def make_app(reader: Reader, *, value_limit: int) -> web.Application:
    """Return the HTTP application."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ThawCollector(reader, value_limit=value_limit))
    # The store connection serves one caller at a time.
    lock = asyncio.Lock()

    async def read(function: Callable[[], Any]) -> Any:
        async with lock:
            try:
                return await asyncio.to_thread(function)
            except StoreUnavailableError as error:
                raise web.HTTPServiceUnavailable(text=f"Redis does not answer: {error}\n") from error

    async def metrics(request: web.Request) -> web.Response:
        encode, content_type = exposition.choose_encoder(request.headers.get("Accept", ""))
        body = await read(lambda: encode(registry))
        return web.Response(body=body, headers={"Content-Type": content_type})

    async def healthz(_request: web.Request) -> web.Response:
        await read(reader.dirty)
        return web.Response(text="ok\n")

    async def surveys(_request: web.Request) -> web.Response:
        return _json([survey_json(survey) for survey in await read(reader.surveys)])

    async def windows(request: web.Request) -> web.Response:
        survey_id = request.match_info["survey"]
        try:
            limit = int(request.query.get("limit", API_WINDOWS))
        except ValueError:
            limit = 0
        if not 1 <= limit <= 10_000:
            raise web.HTTPBadRequest(text="limit must be a whole number from 1 to 10000\n")
        if all(survey.id != survey_id for survey in await read(reader.surveys)):
            raise web.HTTPNotFound(text="no such survey; /api/v1/surveys lists them\n")
        return _json(await read(lambda: reader.windows(survey_id, limit)))

    async def page(_request: web.Request) -> web.Response:
        return web.Response(text=_page(await read(reader.states)), content_type="text/html")

    @web.middleware
    async def harden(request: web.Request, handler: Any) -> web.StreamResponse:
        try:
            response: web.StreamResponse = await handler(request)
        except web.HTTPException as error:
            error.headers.update(_HEADERS)
            raise
        response.headers.update(_HEADERS)
        return response

    app = web.Application(middlewares=[harden])
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/api/v1/surveys", surveys)
    app.router.add_get(f"/api/v1/surveys/{{survey:{_SURVEY_ID.pattern}}}/windows", windows)
    app.router.add_get("/", page)
    return app


def _json(data: Any) -> web.Response:
    return web.Response(body=msgspec.json.encode(data), content_type="application/json")


_HEAD = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Thaw</title>"
    "<style>body{font:16px system-ui;margin:2em auto;max-width:60em;padding:0 1em}"
    "table{border-collapse:collapse}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ccc}"
    "td:first-child,th:first-child{text-align:left}</style><h1>Thaw</h1>"
)


def _page(states: Sequence[SurveyState]) -> str:
    parts = [_HEAD]
    if not states:
        parts.append("<p>No surveys: THAW_SURVEYS names a folder without survey files.</p>")
    for state in states:
        survey = state.survey
        parts.append(f"<h2>{html.escape(survey.name)}</h2><p>{html.escape(survey.question)}</p>")
        if not state.records:
            parts.append("<p>No estimates yet.</p>")
        for age, record in state.records.items():
            start = datetime.fromtimestamp(record.window_start_ms / 1_000, UTC).isoformat(timespec="seconds")
            parts.append(
                f"<h3>Window {html.escape(start)} ({html.escape(age)})</h3><p>{record.users} users, "
                f"{html.escape(record.method)}, {100 * (1 - record.alpha):g} % intervals</p>"
                "<table><tr><th>value</th><th>estimate</th><th>from</th><th>to</th></tr>"
            )
            for row in record.values:
                numbers = (row.estimate, row.lower, row.upper)
                cells = "".join(f"<td>{'-' if number is None else f'{number:.4f}'}</td>" for number in numbers)
                parts.append(f"<tr><td>{html.escape(row.value)}</td>{cells}</tr>")
            parts.append("</table>")
    return "".join(parts)
