"""`make screenshots`: a picture of the page of every mechanism's example survey, on estimates of simulated devices."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from deploy.docs import example_of
from estimators.mechanisms.registry import names
from streams.folders import deploy_folder
from streams.local.redis import Redis
from streams.store.connect import open_truths
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import section
from tests.browser.stored import beat, store_windows
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from playwright.sync_api import Page

FOLDER = ROOT / "docs" / "images" / "mechanisms"
WINDOWS, DEVICES = 12, 4_000
WIDTH, HEIGHT = 1440, 1400
COLOURS = 256


def take(folder: Path, wanted: list[str]) -> None:
    """Store estimates of every example, and take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    files = {name: example_of(name) for name in wanted or names()}
    if not wanted:
        files["map"] = deploy_folder("surveys") / "stops.toml"
    with tempfile.TemporaryDirectory() as scratch, Redis() as redis, chromium() as browser:
        pipeline = Pipeline("127.0.0.1:1", redis.url, "", Path(scratch), list(files.values()), topics=False)
        try:
            truths = open_truths(pipeline.settings)
            for i, survey in enumerate(pipeline.surveys):
                devices = max(DEVICES, survey.mechanism.least_devices)
                store_windows(
                    pipeline.settings,
                    survey,
                    windows=WINDOWS,
                    users=devices,
                    seed=20 * i,
                    truths=truths,
                    different=WINDOWS,
                )
                print(survey.id, file=sys.stderr)
            _, url = pipeline.exporter()
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-US", timezone_id="UTC"
            )
            for name, survey in zip(files, pipeline.surveys, strict=True):
                beat(pipeline.settings, "worker-1")
                page.goto(f"{url}/?survey={survey.id}")
                shoot(page, section(page, survey.id), folder / f"{name}.png", ".figure-map" if name == "map" else "")
        finally:
            pipeline.stop()


def shoot(page: Page, here: str, path: Path, only: str) -> None:
    """Take the head of a survey's page with the chart and the table, or one figure of it."""
    page.wait_for_selector(f"{here} tbody tr[data-value]")
    page.wait_for_selector('#live[data-state="live"]')
    first, last = (page.locator(f"{here} {only or part}").first for part in (".survey-head", ".figure-values"))
    first.wait_for()
    if only:
        first.scroll_into_view_if_needed()
    top, end = first.bounding_box(), last.bounding_box()
    assert top is not None
    assert end is not None
    clip = {"x": 0, "y": top["y"] - 6, "width": WIDTH, "height": end["y"] + end["height"] - top["y"] + 12}
    page.screenshot(path=path, animations="disabled", clip=clip)  # type: ignore[arg-type]  # it is a rectangle
    # Few colours are enough for lines and letters, and a third of the bytes.
    Image.open(path).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
    print(path, file=sys.stderr)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("mechanisms", nargs="*")
    options = parser.parse_args()
    take(options.folder, options.mechanisms)
