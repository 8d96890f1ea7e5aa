"""The full likelihood of unary reports on the whole path: asked for on the page, in the API and on the terminal."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from estimators.inference.em_bits import reports_mle
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_MS, Site, Watched, section, wait_for_text
from tests.browser.stored import survey_file
from tests.integration.workers import run_thaw
from tests.support.deadline import END_SECONDS, until
from tests.support.services import fresh_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = pytest.mark.real

DEVICES, WINDOWS, SEED = 3_000, 2, 7
VALUES = [f"word {i}" for i in range(20)]


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("likelihood")
    (folder / "files").mkdir()
    files = [survey_file(folder / "files", "words", VALUES, mechanism='name = "sue"')]
    with chromium() as browser:
        kafka: str = request.getfixturevalue("kafka")
        redis_url: str = request.getfixturevalue("redis_server").url
        pipeline = Pipeline(kafka, redis_url, fresh_name() + ".", folder, files)
        try:
            worker = pipeline.worker()
            behaviour = ["--scenario", "stoppers", "--seed", str(SEED), "--devices", str(DEVICES)]
            fleet = pipeline.fleet("--pace", "fast", "--windows", str(WINDOWS), "--tick-ms", "10000", *behaviour)
            assert fleet.wait(END_SECONDS)
            assert fleet.returncode == 0, fleet.tail()
            _, url = pipeline.exporter()
            yield Site(pipeline, browser, url, worker)
        finally:
            pipeline.stop()


def likeliest(survey: Survey, window_ms: int) -> NDArray[np.float64]:
    """Draw the answers of the fleet again and return the shares under which they are likeliest."""
    shares = falling_shares(len(VALUES))
    block = BlockWindow(Plan(survey, DEVICES, scenario_named("stoppers"), SEED, shares, window_ms), window_ms, 0)
    rungs = np.zeros(block.rows, dtype=np.int64)
    np.maximum.at(rungs, block.row, block.rung.astype(np.int64))
    one_hot = survey.mechanism.one_hot
    assert one_hot is not None
    found = reports_mle(
        one_hot.channels, block.answers[rungs, np.arange(block.rows)], rungs, sensitive=one_hot.shielded
    )
    assert found is not None
    return np.asarray(found.shares[one_hot.places])


@pytest.fixture(scope="module")
def starts(site: Site) -> list[int]:
    """Return the windows once both are settled, newest first."""
    path = f"/api/v1/surveys/{site.id_of('words')}/windows"

    def settled() -> list[int]:
        site.worker.check()
        windows = site.ask(path)["windows"]
        found = [one["window_start_ms"] for one in windows if one["state"] == "settled" and one["users"] == DEVICES]
        return found if len(found) == WINDOWS else []

    return until(settled, 60, "both windows settled", poll_seconds=0.2)


def likelihood_of(site: Site, start_ms: int, more: str = "") -> Any:
    views = site.ask(f"/api/v1/surveys/{site.id_of('words')}/windows/{start_ms}/views{more}")["views"]
    return next(one for one in views if one["name"] == "likelihood")


def test_a_running_worker_computes_what_is_chosen_on_the_page(site: Site, starts: list[int]) -> None:
    [survey], newest = site.pipeline.surveys, starts[0]
    before = likelihood_of(site, newest)
    assert (before["state"], before["shares"]) == ("not asked", None)
    context = site.browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)
    watched = Watched(context.new_page(), site.url)
    page, here = watched.page, section(watched.page, survey.id)
    page.goto(site.page_of("words"))
    page.wait_for_selector(f"{here} tbody tr[data-value]")
    page.select_option(f"{here} .values-tools select", "likelihood")
    wait_for_text(page, f"{here} [data-role=view]", f"it is biased and has no band. From {DEVICES:,} reports")
    told = likelihood_of(site, newest)
    assert told["state"] == "ready"
    assert told["closer"] == (told["distance"] < 0.9 * told["unbiased_distance"])
    verdict = "closer to the truth as a whole" if told["closer"] else "not closer to the truth as a whole"
    wait_for_text(page, f"{here} [data-role=view]", f"In windows simulated like this one it is {verdict}")
    np.testing.assert_allclose(told["shares"], likeliest(survey, newest), atol=1e-6)
    assert page.get_attribute(here, "data-current") == str(newest)
    for row in page.locator(f"{here} table.values tbody tr[data-value]").all():
        place = VALUES.index(str(row.get_attribute("data-value")))
        assert float(row.locator("td.beside").inner_text().rstrip(" %")) == pytest.approx(
            100 * told["shares"][place], abs=0.06
        )
    watched.assert_quiet()
    context.close()


def test_a_running_worker_computes_what_the_api_is_asked_for_and_the_terminal_prints_the_same(
    site: Site, starts: list[int]
) -> None:
    [survey], older = site.pipeline.surveys, starts[1]
    assert likelihood_of(site, older)["state"] == "not asked", "it is computed for the request below"
    seen: list[tuple[str, float | None]] = []

    def ready() -> list[float] | None:
        view = likelihood_of(site, older, "?ask=likelihood")
        seen.append((view["state"], view["progress"]))
        assert view["state"] in ("asked", "computing", "ready"), view
        return view["shares"] if view["state"] == "ready" else None

    shares = until(ready, 60, "the likelihood")
    progress = [part for state, part in seen if state == "computing"]
    assert progress == sorted(part for part in progress if part is not None)
    np.testing.assert_allclose(shares, likeliest(survey, older), atol=1e-6)
    shown = run_thaw(site.pipeline.settings, "estimates", "words", "--view", "likelihood")
    assert shown.returncode == 0, shown.stderr
    assert "most likely distribution" in shown.stdout
    data = run_thaw(site.pipeline.settings, "estimates", "words", "--view", "likelihood", "--format", "csv")
    assert data.returncode == 0, data.stderr
    rows = list(csv.DictReader(StringIO(data.stdout)))
    assert {row["view"] for row in rows} == {"likelihood"}
    of_older = {row["value"]: float(row["view_share"]) for row in rows if row["window_start_ms"] == str(older)}
    assert of_older == dict(zip(VALUES, shares, strict=True))
