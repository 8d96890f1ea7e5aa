"""Whatever is sent to the exporter's port: an answer or a closed connection, and the next caller is served."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestServer
from hypothesis import given, settings
from hypothesis import strategies as st

from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from tests.support.clock import ManualClock
from tests.support.hostile import corpus
from tests.support.memory_store import MemoryStore
from tests.support.reports import SurveyDict
from tests.support.surveys import WEEK, survey

KNOWN = survey()
MOST_ANSWER_BYTES = 1 << 20
HALF_REQUEST_SECONDS = 0.25
_PATHS = ["/", "/metrics", "/healthz", "/api/openapi.json", "/api/v1/surveys", "/api/v1/health", "/api/v1/alerts"]
_PATHS += [f"/api/v1/surveys/{KNOWN.id}", f"/api/v1/surveys/{KNOWN.id}/windows", "/static/../../pyproject.toml"]
_WORDS = ["limit=0", "limit=99999999999999999999", "from_ms=-1", "to_ms=%00", "a=b", "limit=1&limit=2", "%ff", "=", "&"]


async def talk(*requests: bytes) -> list[bytes]:
    """Send raw bytes, each on a connection of its own, then an honest request; return all answers."""
    store = MemoryStore(ManualClock(WEEK))
    app = make_app(Reader(store, SurveyDict(KNOWN), clock=ManualClock(WEEK)), value_limit=10, token="")
    answers = []
    async with TestServer(app) as server:
        for request in requests:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(request)
            # What looks like half a request gets no answer: the server waits for the rest, and we hang up.
            with suppress(asyncio.TimeoutError, ConnectionResetError):
                answers.append(await asyncio.wait_for(reader.read(MOST_ANSWER_BYTES), HALF_REQUEST_SECONDS))
            writer.close()
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: thaw\r\nConnection: close\r\n\r\n")
        answers.append(await asyncio.wait_for(reader.read(MOST_ANSWER_BYTES), 30))
        writer.close()
    return answers


def survives(*requests: bytes) -> list[bytes]:
    *answers, honest = asyncio.run(talk(*requests))
    assert honest.startswith(b"HTTP/1.1 200")
    for answer in answers:
        assert answer == b"" or answer.startswith(b"HTTP/1."), answer[:80]
        assert not answer.startswith((b"HTTP/1.1 500", b"HTTP/1.0 500")), answer[:400]
        assert b"[project]" not in answer, "a file outside the page was served"
        assert b"Traceback" not in answer
    return answers


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Requests that are nearly right: odd methods, paths, parameters, headers and lengths."""
    method = draw(st.sampled_from(["GET", "HEAD", "POST", "DELETE", "OPTIONS", "get", "G\tT", ""]))
    path = draw(st.sampled_from(_PATHS)) + draw(st.text(max_size=8))
    query = "&".join(draw(st.lists(st.sampled_from(_WORDS), max_size=3)))
    lines = [f"{method} {path}{'?' if query else ''}{query} HTTP/{draw(st.sampled_from(['1.1', '1.0', '9.9', 'x']))}"]
    lines += draw(
        st.lists(
            st.sampled_from(
                [
                    "Host: thaw",
                    "Content-Length: 5",
                    "Content-Length: -1",
                    "Content-Length: 99999999999999999999",
                    "Transfer-Encoding: chunked",
                    "Authorization: Bearer \xff",
                    "Accept: \x00",
                    "If-None-Match: *",
                    "Expect: 100-continue",
                    "Upgrade: websocket",
                    "X" * 9_000 + ": 1",
                    "no colon",
                ]
            ),
            max_size=4,
        )
    )
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode("utf-8", "replace") + draw(st.binary(max_size=30))


@settings(max_examples=20)
@given(st.lists(requests() | st.binary(max_size=200), min_size=1, max_size=4))
def test_odd_requests_are_refused_and_the_next_one_is_served(sent: list[bytes]) -> None:
    survives(*sent)


@pytest.mark.parametrize("path", corpus("requests"), ids=lambda path: path.stem)
def test_the_corpus_of_requests_does_no_harm(path: Path, caplog: Any) -> None:
    survives(path.read_bytes())
    assert "internal error of the exporter" not in caplog.text
