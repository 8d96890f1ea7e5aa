"""The pages of surveys with hundreds of values and with cells of a map, on stored estimates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from streams.local.redis import Redis
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_MS, Served, Watched, section, wait_for_text
from tests.browser.stored import beat, store_windows, survey_file
from tests.support.deadline import until

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.real

WINDOWS = 5
LONG = "a very long answer that goes on and on about the many reasons for which somebody may have chosen it, and"
MANY = [*(f"{i} تفاحة" for i in range(3)), f"{LONG} more", f"{LONG} less", *(f"word number {i}" for i in range(495))]
GRID = 'south = 44.9, north = 45.0, west = -93.3, east = -93.2, rows = 6, columns = 8, outside = "elsewhere"'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, redis_server: Redis) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("many")
    (folder / "files").mkdir()
    files = [
        survey_file(folder / "files", "words", MANY, mechanism='name = "oue"'),
        survey_file(folder / "files", "places", GRID, mechanism='name = "grr"'),
        survey_file(folder / "files", "agree", ["نعم", "لا"]),
    ]
    with chromium() as browser:
        pipeline = Pipeline("127.0.0.1:1", redis_server.url, "many-", folder, files, topics=False)
        try:
            for i, survey in enumerate(pipeline.surveys):
                store_windows(pipeline.settings, survey, windows=WINDOWS, users=2_000, seed=10 * i)
            beat(pipeline.settings, "worker-1")
            _, url = pipeline.exporter()
            yield Served(pipeline, browser, url)
        finally:
            pipeline.stop()


@pytest.fixture
def watched(site: Served) -> Iterator[Watched]:
    context = site.browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)
    page = Watched(context.new_page(), site.url)
    try:
        yield page
        page.assert_quiet()
    finally:
        context.close()


def opened(site: Served, page: Page, name: str) -> str:
    page.goto(site.page_of(name))
    here = section(page, site.id_of(name))
    page.wait_for_selector(f"{here} tbody tr[data-value]")
    return here


def shown_window(site: Served, page: Page, name: str, here: str) -> Any:
    return site.ask(f"/api/v1/surveys/{site.id_of(name)}/windows/{page.get_attribute(here, 'data-current')}")


def colours(page: Page, here: str, figure: str) -> int:
    """Return how many different colours a canvas shows: 1 if nothing is drawn."""
    script = """node => {
        const { data } = node.getContext("2d").getImageData(0, 0, node.width, node.height), seen = new Set();
        for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
        return seen.size;
    }"""
    return int(page.locator(f"{here} .figure-{figure} canvas.cells").evaluate(script))


def test_five_hundred_values_have_a_top_a_rest_a_search_and_a_heat_map(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "words")
    window = shown_window(site, page, "words", here)
    rows = page.locator(f"{here} table.values tbody tr")
    assert rows.count() == 12
    listed = {str(row.get_attribute("data-value")) for row in rows.all()}
    rest = page.locator(f"{here} tr[data-role=others]")
    assert rest.locator("th").inner_text() == "all 488 others"
    others = [row for row in window["values"] if row["value"] not in listed]
    said = float(rest.locator("td.strong").inner_text().rstrip(" %"))
    assert said == pytest.approx(100 * sum(row["estimate"] for row in others), abs=0.1)
    assert rest.get_attribute("data-lower") is None, "no band holds for values that the estimates chose"
    assert rest.locator("td.num:not(.strong)").first.inner_text() == "no band"
    wait_for_text(page, f"{here} .figure-heat figcaption", r"^40 values by lower bound\. Colour is")
    until(lambda: colours(page, here, "heat") > 5, 60, "a heat map in colours", poll_seconds=0.1)
    page.click(f"{here} .more")
    until(lambda: rows.count() == 500, 60, "all values", poll_seconds=0.1)
    assert rest.count() == 0, "nothing is left over"
    page.fill(f"{here} .values-tools input", "تفاحة")
    wait_for_text(page, f"{here} table.values tbody", "تفاحة")
    page.wait_for_function("here => document.querySelectorAll(`${here} table.values tbody tr`).length === 3", arg=here)
    assert page.locator(f"{here} .figure-heat").is_hidden(), "three values need no heat map"


def test_long_names_that_differ_at_their_ends_differ_in_the_table(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "words")
    page.fill(f"{here} .values-tools input", "many reasons")
    page.wait_for_function("here => document.querySelectorAll(`${here} table.values tbody tr`).length === 2", arg=here)
    shown = page.locator(f"{here} .value-name").all_inner_texts()
    assert sorted(name[-4:] for name in shown) == ["less", "more"]
    assert max(map(len, shown)) < 60
    wide = "here => { const box = document.querySelector(`${here} .figure-values .scroll`); "
    assert page.evaluate(wide + "return box.scrollWidth <= box.clientWidth; }", here), "no column is cut"


def test_a_name_that_runs_from_right_to_left_does_not_take_the_number_beside_it_along(
    site: Served, watched: Watched
) -> None:
    page = watched.page
    here = opened(site, page, "agree")
    found = wait_for_text(
        page, f"{here} .figure-windows figcaption", "So \u2068(نعم|لا)\u2069 [\\d.]+\\s% to [\\d.]+\\s%\\.$"
    )
    script = """([here, name]) => {
        const text = document.createTreeWalker(document.querySelector(`${here} .figure-windows figcaption`), 4);
        while (text.nextNode() && !text.currentNode.data.includes(" So "));
        const node = text.currentNode, at = node.data.lastIndexOf(name), range = document.createRange();
        const edge = (from, to) => (range.setStart(node, from), range.setEnd(node, to), range.getBoundingClientRect());
        const word = edge(at, at + name.length), digit = edge(at + name.length + 2, at + name.length + 3);
        return digit.top > word.top + 1 || word.right <= digit.left + 1;
    }"""
    assert page.evaluate(script, [here, found[1]]), "the number is right of the name, or on the next line"


def test_a_heat_map_ends_above_its_sentence_on_every_screen(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "words")
    wait_for_text(page, f"{here} .figure-heat figcaption", "^40 values")
    apart = """here => {
        const [canvas, text] = ["canvas.cells", "figcaption"].map(
            (part) => document.querySelector(`${here} .figure-heat ${part}`).getBoundingClientRect());
        return canvas.height > 300 && canvas.bottom <= text.top + 1;
    }"""
    for width in (360, 1440, 1920):
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(apart, arg=here)


def test_a_cell_of_the_heat_map_leads_to_its_value_and_window(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "words")
    wait_for_text(page, f"{here} .figure-heat figcaption", "^40 values")
    canvas = page.locator(f"{here} .figure-heat canvas.cells")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": 0.4 * box["width"] + 4, "y": 8})
    name = wait_for_text(page, f"{here} .figure-heat .tip", r"^.+")[0]
    assert name in MANY
    canvas.click(position={"x": 0.4 * box["width"] + 4, "y": 8})
    page.wait_for_url(re.compile("&value=.*&window="))
    wait_for_text(page, f"{here} .figure-windows figcaption", f"^\u2068?{re.escape(name)}\u2069?, window of")


def test_the_cells_of_a_grid_are_drawn_as_a_map(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "places")
    window = shown_window(site, page, "places", here)
    sure = sum((row["simultaneous_lower"] or 0) > 0 for row in window["values"][:-1])
    wait_for_text(page, f"{here} .figure-map figcaption", rf"{sure} of 48 cells surely have someone, 95 % sure")
    until(lambda: colours(page, here, "map") > 5, 60, "a map in colours", poll_seconds=0.1)
    canvas = page.locator(f"{here} .figure-map canvas.cells")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    canvas.hover(position={"x": 0.5 * box["width"] + 3, "y": 30})
    wait_for_text(page, f"{here} .figure-map .tip", r"^E1, around 44\.99\d*, -93\.24\d*\n")
    canvas.click(position={"x": 0.5 * box["width"] + 3, "y": 30})
    wait_for_text(page, f"{here} .figure-map figcaption", "^E1: ")
    assert "value=E1" in page.url
    page.set_viewport_size({"width": 360, "height": 800})
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    page.wait_for_function(f"() => {wide} <= 0")
