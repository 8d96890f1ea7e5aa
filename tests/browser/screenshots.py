"""`make screenshots`: pictures of the page for the README, taken from a real pipeline with simulated devices."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from streams.local.kafka import ApacheKafka
from streams.local.redis import Redis
from tests.browser.pipeline import Pipeline, chromium
from tests.support.deadline import until
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Page

IMAGES = ROOT / "docs" / "images"
SURVEYS = Path(__file__).parent / "surveys"
WINDOWS = 40
"""Windows on the pictures; two seconds each."""
COMPLETE = "up to rung 2 of 0 to 2"
POINTS = 4


def opened(browser: Browser, url: str, width: int, height: int, theme: Literal["dark", "light"], scale: float) -> Page:
    """Return a page, connected."""
    page = browser.new_page(
        viewport={"width": width, "height": height},
        color_scheme=theme,
        device_scale_factor=scale,
        locale="en-US",
        timezone_id="UTC",
    )
    page.goto(url)
    page.wait_for_selector('#live[data-state="live"]')
    return page


def is_complete(page: Page) -> bool:
    """Tell whether the history that is shown has reached the last rung, with enough points to see how it got there."""
    if COMPLETE not in page.locator(".figure-history figcaption").first.inner_text():
        return False
    script = """async () => {
        const [survey, figure] = [".survey", ".figure-history"].map((one) => document.querySelector(one).dataset);
        const path = `/api/v1/surveys/${survey.survey}/windows/${figure.window}/history`;
        return (await (await fetch(path)).json()).points.length;
    }"""
    return bool(page.evaluate(script) >= POINTS)


def place(page: Page, selector: str) -> FloatRect:
    """Return where an element stands; a live page may never be still enough for a picture of the element itself."""
    box = page.locator(selector).first.bounding_box()
    assert box is not None
    return box


def windows_of(url: str, survey_id: str) -> int:
    """Return how many windows of a survey have estimates."""
    path = f"{url}/api/v1/surveys/{survey_id}/windows?limit=500"
    return len(json.loads(urllib.request.urlopen(path, timeout=20).read())["windows"])


def take(folder: Path) -> list[Path]:
    """Run everything, take the pictures, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []

    def shot(page: Page, name: str, selector: str | None = None) -> None:
        path = folder / f"{name}.png"

        def taken() -> bool:
            """Take it while a complete history is shown: the page goes on to the next window after a while."""
            before = is_complete(page)
            page.screenshot(path=path, animations="disabled", clip=place(page, selector) if selector else None)
            return before and is_complete(page)

        until(taken, 120, "a picture of a complete history", poll_seconds=0.3)
        made.append(path)
        print(path, file=sys.stderr)

    files = [SURVEYS / "browser.toml", SURVEYS / "crowd.toml", SURVEYS / "canary.toml"]
    with tempfile.TemporaryDirectory() as scratch, ApacheKafka() as kafka, Redis() as redis, chromium() as browser:
        pipeline = Pipeline(kafka.address, redis.url, "", Path(scratch), files)
        try:
            worker = pipeline.worker()
            _, url = pipeline.exporter()
            pipeline.fleet("--devices", "20000", "--seed", "7", "--scenario", "city", only="browser")
            pipeline.fleet("--devices", "4000", "--seed", "8", only="crowd")
            pipeline.canary()
            until(lambda: windows_of(url, pipeline.surveys[0].id) >= WINDOWS, 300, "enough windows", poll_seconds=1)
            survey = f"{url}/?survey={pipeline.surveys[0].id}"
            shot(opened(browser, survey, 1920, 1080, "dark", 1), "wall-dark")
            page = opened(browser, survey, 1440, 1220, "light", 1)
            shot(page, "page-light")
            shot(opened(browser, survey, 1440, 1220, "light", 2), "history", ".figure-history")
            shot(opened(browser, survey, 390, 844, "dark", 2), "phone-dark")
            overview = opened(browser, url, 1440, 620, "light", 1)
            for one in pipeline.surveys:
                overview.wait_for_selector(f'[data-card="{one.id}"][data-state="settled"]')
            overview.screenshot(path=folder / "overview-light.png", animations="disabled")
            made.append(folder / "overview-light.png")
            worker.kill()
            page.wait_for_selector("#banner:not([hidden])", timeout=60_000)
            page.set_viewport_size({"width": 1440, "height": 620})
            page.screenshot(path=folder / "stale-light.png", animations="disabled")
            made.append(folder / "stale-light.png")
        finally:
            pipeline.stop()
    return made


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=IMAGES)
    take(parser.parse_args().folder)
