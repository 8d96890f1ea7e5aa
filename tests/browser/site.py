"""What the browser tests share: the running site, a page that is watched for errors, and ways to find and wait."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from streams.local.process import Child
from streams.local.redis import Redis
from tests.browser.pipeline import Pipeline
from tests.support.deadline import BUSY, until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE_SECONDS = 60
PATIENCE_MS = 1_000 * BUSY * PATIENCE_SECONDS


class Served:
    """An exporter and a browser, for all tests of a module."""

    def __init__(self, pipeline: Pipeline, browser: Browser, url: str) -> None:
        self.pipeline, self.browser, self.url = pipeline, browser, url

    def id_of(self, name: str) -> str:
        return next(survey.id for survey in self.pipeline.surveys if survey.name == name)

    def page_of(self, name: str, more: str = "") -> str:
        """Return the address of a survey's page."""
        return f"{self.url}/?survey={self.id_of(name)}{more}"

    def ask(self, path: str) -> Any:
        return json.loads(urllib.request.urlopen(self.url + path, timeout=BUSY * PATIENCE_SECONDS).read())


class Site(Served):
    """The whole path, with a worker."""

    def __init__(self, pipeline: Pipeline, browser: Browser, url: str, worker: Child) -> None:
        super().__init__(pipeline, browser, url)
        self.worker = worker


class StoredSite(Served):
    """An exporter on a Redis of its own that holds stored estimates."""

    def __init__(self, pipeline: Pipeline, browser: Browser, url: str, redis: Redis) -> None:
        super().__init__(pipeline, browser, url)
        self.redis = redis


class Watched:
    """A page and everything about it that must not happen."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self._url = page, url
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self._hear(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.context.on("request", lambda asked: self.requests.append(asked.url))

    def _hear(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def assert_quiet(self) -> None:
        assert self.complaints == []
        assert self.requests
        assert [url for url in self.requests if not url.startswith(self._url + "/")] == []


def section(page: Page, survey_id: str) -> str:
    return f'section[data-survey="{survey_id}"]'


def wait_for_text(page: Page, selector: str, pattern: str) -> re.Match[str]:
    """Wait until the text of an element matches, and return the match; spaces that keep a line together are spaces."""
    found = until(
        lambda: re.search(pattern, page.locator(selector).inner_text().replace("\u00a0", " ")),
        PATIENCE_SECONDS,
        f"{pattern!r} in {selector}",
        poll_seconds=0.1,
    )
    assert found is not None
    return found


def wait_for_live(page: Page) -> None:
    """Wait until the page is live and has no banner: on a busy machine a heartbeat may be late for a moment."""
    page.wait_for_selector("body:has(#live[data-state='live']):has(#banner[hidden])")


def shown(page: Page, here: str) -> Any:
    """Return what a survey shows, read in one step: the page may redraw between two."""
    return page.evaluate(
        """here => {
            const node = document.querySelector(here), plot = node.querySelector(".plot-windows");
            return {
                start: Number(node.dataset.current), state: node.dataset.state, range: plot.dataset.range,
                open: Number(plot.dataset.open), first: node.querySelector(".figure-values .sentence").textContent,
                cells: [...node.querySelectorAll("table.values tbody tr")].map(r => r.children[3].textContent),
                names: [...node.querySelectorAll("table.values tbody tr")].map(r => r.dataset.value),
            };
        }""",
        here,
    )


def says_first(seen: Any, headline: Any) -> bool:
    """Tell whether the page's first sentence has the bounds that the API has for its first value."""
    row = next(one for one in headline["values"] if one["value"] == seen["names"][0])
    first = seen["first"].replace("\u00a0", " ")
    found = re.match(r"First is (.+): between ([\d.]+) % and ([\d.]+) % .* sure of all values at once,", first)
    bounds = [100 * row["simultaneous_lower"], 100 * row["simultaneous_upper"]]
    return bool(
        found and found[1] == row["value"] and [float(found[2]), float(found[3])] == pytest.approx(bounds, abs=0.06)
    )


def health_tiles(page: Page) -> dict[str, Any]:
    """Return state, value and note of every tile."""
    script = """() => {
        const text = (tile, part) => tile.querySelector(part).textContent;
        const told = (tile) => [tile.dataset.state, text(tile, ".tile-value"), text(tile, ".tile-note")];
        const tiles = [...document.querySelectorAll(".tile")];
        return Object.fromEntries(tiles.map((tile) => [tile.dataset.tile, told(tile)]));
    }"""
    tiles: dict[str, Any] = page.evaluate(script)
    return tiles


@contextmanager
def explained(page: Page) -> Iterator[None]:
    """Let what fails in here say what the page showed."""
    try:
        yield
    except Exception as error:
        error.add_note(f"tiles: {health_tiles(page)}; banner: {page.inner_text('#banner')!r}")
        raise
