"""Visitors answer from the page in a demo, and nowhere else."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from streams.exporter.guard import POLICY
from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from streams.settings import Settings, SettingsError
from tests.support.exporter import Known
from tests.support.memory_store import MemoryStore
from tests.support.surveys import survey
from tests.support.web_client import MODULES

GATEWAY = "http://127.0.0.1:9733"


def ask(demo_gateway: str, *paths: str) -> list[tuple[int, str, str]]:
    """Return status, policy and text of some paths."""

    async def asked() -> list[tuple[int, str, str]]:
        app = make_app(Reader(MemoryStore(), Known(survey())), value_limit=10, demo_gateway=demo_gateway)
        found = []
        async with TestClient(TestServer(app)) as client:
            for path in paths:
                async with client.get(path) as answer:
                    policy = answer.headers["Content-Security-Policy"]
                    found.append((answer.status, policy, await answer.text()))
        return found

    return asyncio.run(asked())


def test_without_a_demo_the_page_speaks_to_nobody_else_and_has_no_client() -> None:
    (_, policy, page), (status, _, _) = ask("", "/", "/static/client/index.js")
    assert policy == POLICY
    assert "data-gateway" not in page
    assert status == 404


def test_in_a_demo_the_page_names_its_gateway_and_may_speak_to_it_alone() -> None:
    paths = [f"/static/client/{path.name}" for path in MODULES]
    (_, policy, page), *modules = ask(GATEWAY, "/", *paths)
    assert policy == f"{POLICY}; connect-src 'self' {GATEWAY}"
    assert f'<body data-gateway="{GATEWAY}" data-page="loading">' in page
    assert [text for _, _, text in modules] == [path.read_text() for path in MODULES]


@pytest.mark.parametrize("wrong", ['http://h" onload="x', "http://h; script-src *"])
def test_an_address_that_could_say_more_is_refused(wrong: str) -> None:
    given: dict[str, Any] = {"demo_gateway": wrong}
    with pytest.raises(SettingsError, match="DEMO_GATEWAY"):
        Settings(**given)
