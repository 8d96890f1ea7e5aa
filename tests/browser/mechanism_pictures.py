"""`make screenshots`: a picture of the page of every mechanism's example survey, on estimates of simulated devices."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from deploy.docs import example_of
from estimators.mechanisms.registry import names
from producers.simulation.recordings import is_recorded, recording_of
from producers.survey.survey import Survey
from streams.folders import deploy_folder
from streams.local.redis import Redis
from streams.store.connect import open_truths
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_SECONDS, section
from tests.browser.stored import beat, store_windows
from tests.support.deadline import until
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
                    people=people_of(survey),
                )
                print(survey.id, file=sys.stderr)
            _, url = pipeline.exporter()
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light", locale="en-US", timezone_id="UTC"
            )
            for name, survey in zip(files, pipeline.surveys, strict=True):
                page.goto(f"{url}/?survey={survey.id}")
                take_live(page, pipeline, survey, folder / f"{name}.png", ".figure-map" if name == "map" else "")
        finally:
            pipeline.stop()


def take_live(page: Page, pipeline: Pipeline, survey: Survey, path: Path, only: str) -> None:
    """Take a picture while the page knows of a worker: it fades a few seconds after the last heartbeat."""
    here = section(page, survey.id)
    page.wait_for_selector(f"{here} tbody tr[data-value]")

    def taken() -> bool:
        before = is_live(page, pipeline)
        shoot(page, here, path, only)
        return before and is_live(page, pipeline)

    until(taken, PATIENCE_SECONDS, "a picture of a live page", poll_seconds=0.5)
    print(path, file=sys.stderr)


def is_live(page: Page, pipeline: Pipeline) -> bool:
    """Say once more that a worker lives, and tell whether the page knows: on a busy machine it may load for long."""
    beat(pipeline.settings, "worker-1")
    return page.locator('#live[data-state="live"]').count() > 0


def people_of(survey: Survey) -> Sequence[Any] | None:
    """Return the true values of the people in the data that an example replays; None without data or their package."""
    try:
        return recording_of(survey, survey.name).days[0].tolist() if is_recorded(survey) else None
    except ValueError as error:
        print(f"{survey.id}: {error}", file=sys.stderr)
        return None


def shoot(page: Page, here: str, path: Path, only: str) -> None:
    """Take the head of a survey's page with the chart and the table, or one figure of it."""
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
    Image.open(path).convert("RGB").quantize(COLOURS, Image.Quantize.MEDIANCUT).save(path, optimize=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("mechanisms", nargs="*")
    options = parser.parse_args()
    take(options.folder, options.mechanisms)
