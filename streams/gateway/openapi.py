"""The OpenAPI description of the gateway: schemas from the types that answers are made of."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any, Final

import msgspec

from producers.survey.bulletin import SignedBulletin
from producers.survey.document import Envelope
from producers.wire.layout import MAX_MESSAGE_BYTES
from streams.gateway.documents import Index
from streams.gateway.judge import RefusedFrame

FRAMES: Final = "application/vnd.thaw.frames"
FRAME_TYPES: Final = (FRAMES, "application/octet-stream")


class Confirmed(msgspec.Struct, frozen=True):
    """A broker has all reports of the request."""

    frames: int
    reports: int


class Problem(msgspec.Struct, frozen=True):
    """Nothing of the request was taken: a word for programs, a sentence for people, and every frame that is wrong."""

    reason: str
    error: str
    now_ms: int
    frames: list[RefusedFrame] = []


REFUSALS: Final = {
    401: "The token or certificate is missing or wrong (reason `credential`).",
    408: "The body did not come in time (`slow`); send it again.",
    413: "The request is larger than this credential may send (`large`); send fewer frames at once.",
    415: "Wrong content type, or an encoding (`type`).",
    422: "Frames that cannot be counted; `frames` names each, why, and whether it may be taken later (`again`).",
    429: "More reports than this credential may send (`rate`); send it again after `Retry-After` seconds.",
    503: "Out of memory (`busy`), no broker acknowledged (`broker`) or a stop (`stopping`); send the same bytes again "
    "after `Retry-After` seconds.",
}
"""What a client is told by status; nothing of such a request was taken."""

_TEMPLATE: Final = "#/components/schemas/{name}"


def description() -> dict[str, Any]:
    """Return the whole description, ready for JSON."""
    types = (Confirmed, Index, Envelope, SignedBulletin, Problem)
    (confirmed, index, envelope, bulletin, problem), components = msgspec.json.schema_components(
        types, ref_template=_TEMPLATE
    )
    refused = {str(status): _answer(text, problem) for status, text in REFUSALS.items()}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Thaw gateway",
            "version": version("thaw"),
            "description": "Takes frames of reports from devices and serves survey files. An answer to frames comes "
            "when a broker has them: what was confirmed is never lost, what was not is sent again.",
        },
        "paths": {
            "/v1/frames": {"post": _send(confirmed, refused)},
            "/v1/surveys": {
                "get": {
                    "operationId": "surveys",
                    "summary": "The surveys that are served here.",
                    "responses": {"200": _answer("The index.", index)},
                }
            },
            "/v1/surveys/{survey}": {
                "get": _survey("survey", "One survey, signed, with an expiry.", envelope, problem)
            },
            "/v1/surveys/{survey}/bulletin": {
                "get": _survey("bulletin", "What a rule has opened of its windows, signed.", bulletin, problem)
            },
        },
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Where the gateway knows credentials."}
            },
        },
    }


def _send(confirmed: Any, refused: dict[str, Any]) -> dict[str, Any]:
    body = {"schema": {"type": "string", "format": "binary", "maxLength": MAX_MESSAGE_BYTES}}
    return {
        "operationId": "send",
        "summary": "Send frames, back to back; taken whole or not at all.",
        "requestBody": {"required": True, "content": dict.fromkeys(FRAME_TYPES, body)},
        "responses": {"200": _answer("A broker has all reports.", confirmed), **refused},
        "security": [{}, {"token": []}],
    }


def _survey(operation: str, summary: str, envelope: Any, problem: Any) -> dict[str, Any]:
    survey = {
        "name": "survey",
        "in": "path",
        "required": True,
        "description": "Id of a survey.",
        "schema": {"type": "string", "minLength": 1},
    }
    return {
        "operationId": operation,
        "summary": summary,
        "parameters": [survey],
        "responses": {"200": _answer("The envelope.", envelope), "404": _answer("Unknown survey.", problem)},
    }


def _answer(text: str, schema: Any) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def documentation() -> str:
    """Return the table of refusals as Markdown, for docs/gateway.md."""
    lines = ["| status | meaning |", "|---|---|"]
    lines += [f"| {status} | {text} |" for status, text in REFUSALS.items()]
    return "\n".join(lines)
