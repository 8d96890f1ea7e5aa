"""The OpenAPI description of the API: paths from one table, schemas from the types that answers are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import msgspec

from streams.exporter import api as api_types
from streams.exporter.api_views import ShareViews
from streams.exporter.query import LATEST_MS
from streams.exporter.views import MOST_WINDOWS, RECENT_WINDOWS

SURVEY_PATTERN: Final = r"^[a-z0-9][a-z0-9_-]{0,47}(\.[a-z][a-z0-9-]{0,23})?-[0-9a-f]{8}$"


@dataclass(frozen=True)
class Operation:
    """One path: its answer, the type of it, and the query parameters."""

    path: str
    name: str
    summary: str
    answer: Any
    query: tuple[str, ...] = ()
    refusals: Mapping[int, str] = field(default_factory=dict)
    same_as: str = ""
    """Another operation whose answer this one gives too: a former path that keeps working."""

    @property
    def handler(self) -> str:
        """Name of the server's method that answers."""
        return self.same_as or self.name


_NO_SURVEY = "Unknown survey."
_NO_WINDOW = "Unknown survey, or no window with this start has an estimate."
_BAD = "A parameter is unknown or has a wrong value; the body names it and what was expected."

OPERATIONS: tuple[Operation, ...] = (
    Operation("/api/v1/surveys", "surveys", "All surveys.", list[api_types.SurveyInfo], (), {400: _BAD}),
    Operation(
        "/api/v1/surveys/{survey}",
        "survey",
        "One survey.",
        api_types.SurveyInfo,
        (),
        {400: _BAD, 404: _NO_SURVEY},
    ),
    Operation(
        "/api/v1/surveys/{survey}/windows",
        "windows",
        f"Estimates of the newest windows in a range of start times, newest first, at most {MOST_WINDOWS} at a time.",
        api_types.Windows,
        ("limit", "from_ms", "to_ms"),
        {400: _BAD, 404: _NO_SURVEY},
    ),
    Operation(
        "/api/v1/surveys/{survey}/windows/{start_ms}",
        "window",
        "The estimate of one window.",
        api_types.Window,
        (),
        {400: _BAD, 404: _NO_WINDOW},
    ),
    Operation(
        "/api/v1/surveys/{survey}/windows/{start_ms}/history",
        "history",
        "How the estimate of one window changed while rungs opened.",
        api_types.History,
        (),
        {400: _BAD, 404: _NO_WINDOW},
    ),
    Operation(
        "/api/v1/surveys/{survey}/windows/{start_ms}/views",
        "views",
        "The shares of one window seen as distributions, beside the unbiased estimate.",
        ShareViews,
        ("ask",),
        {400: _BAD, 404: _NO_WINDOW},
    ),
    Operation(
        "/api/v1/surveys/{survey}/windows/{start_ms}/life",
        "life",
        "Former path of `history`; the same answer.",
        api_types.History,
        (),
        {400: _BAD, 404: _NO_WINDOW},
        same_as="history",
    ),
    Operation("/api/v1/health", "health", "Health of the pipeline.", api_types.Health, (), {400: _BAD}),
    Operation("/api/v1/alerts", "alerts", "The states of the alerts.", api_types.Alerts, (), {400: _BAD}),
)

_TIME = {"type": "integer", "minimum": 0, "maximum": LATEST_MS}
PARAMETERS: Mapping[str, dict[str, Any]] = {
    "survey": {
        "name": "survey",
        "in": "path",
        "required": True,
        "description": "Id of a survey.",
        "schema": {"type": "string", "pattern": SURVEY_PATTERN},
    },
    "start_ms": {
        "name": "start_ms",
        "in": "path",
        "required": True,
        "description": "Start of the window, ms since the epoch.",
        "schema": _TIME,
    },
    "limit": {
        "name": "limit",
        "in": "query",
        "description": "Most windows to return.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MOST_WINDOWS, "default": RECENT_WINDOWS},
    },
    "ask": {
        "name": "ask",
        "in": "query",
        "description": "`likelihood`: let a worker compute the most likely distribution, unless it is there.",
        "schema": {"type": "string", "enum": ["likelihood"]},
    },
    "from_ms": {
        "name": "from_ms",
        "in": "query",
        "description": "Earliest start of a window, ms since the epoch.",
        "schema": _TIME | {"default": 0},
    },
    "to_ms": {
        "name": "to_ms",
        "in": "query",
        "description": "Latest start of a window, ms since the epoch.",
        "schema": _TIME | {"default": LATEST_MS},
    },
}

_TEMPLATE = "#/components/schemas/{name}"


def description() -> dict[str, Any]:
    """Return the whole description, ready for JSON."""
    types = [operation.answer for operation in OPERATIONS] + [api_types.Problem]
    schemas, components = msgspec.json.schema_components(types, ref_template=_TEMPLATE)
    paths: dict[str, Any] = {}
    for operation, schema in zip(OPERATIONS, schemas, strict=False):
        paths[operation.path] = {"get": _get(operation, schema, schemas[-1])}
    paths["/api/v1/events"] = {"get": _events(schemas[-1])}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Thaw",
            "version": _version(),
            "description": "Estimates with error bars from gradually released, locally private reports. "
            "Keys are stable: new ones may appear, old ones keep their meaning.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Required if THAW_TOKEN is set."}
            },
        },
        "security": [{}, {"token": []}],
    }


def _get(operation: Operation, schema: Any, problem: Any) -> dict[str, Any]:
    in_path = [name for name in ("survey", "start_ms") if f"{{{name}}}" in operation.path]
    refusals = {
        **operation.refusals,
        401: "The token is missing or wrong.",
        503: "Redis does not answer; try again later.",
    }
    return {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [PARAMETERS[name] for name in (*in_path, *operation.query)],
        "responses": {
            "200": {"description": operation.summary, "content": {"application/json": {"schema": schema}}},
            **_refusals(refusals, problem),
        },
    }


def _events(problem: Any) -> dict[str, Any]:
    text = (
        "Server-sent events: `health` (Health) and `alerts` (Alerts) every second, `window` (Window) for every window "
        "whose estimate changed. Request the windows themselves after connecting."
    )
    refusals = {400: _BAD, 401: "The token is missing or wrong.", 503: "Too many listeners; try again later."}
    return {
        "operationId": "events",
        "summary": "Changes, as they happen.",
        "description": text,
        "parameters": [],
        "responses": {
            "200": {"description": text, "content": {"text/event-stream": {"schema": {"type": "string"}}}},
            **_refusals(refusals, problem),
        },
    }


def _refusals(refusals: Mapping[int, str], problem: Any) -> dict[str, Any]:
    return {
        str(status): {"description": text, "content": {"application/json": {"schema": problem}}}
        for status, text in sorted(refusals.items())
    }


def _version() -> str:
    try:
        return version("thaw")
    except PackageNotFoundError:
        return "0"


def documentation() -> str:
    """Return the table of paths as Markdown, for docs/dashboard.md."""
    lines = ["| path | answer | query parameters |", "|---|---|---|"]
    for operation in OPERATIONS:
        asked = ", ".join(f"`{name}`" for name in operation.query) or ""
        lines.append(f"| `{operation.path}` | {operation.summary} | {asked} |")
    lines.append("| `/api/v1/events` | Changes, as server-sent events: `health`, `alerts`, `window`. | |")
    return "\n".join(lines)
