"""The overview and the pages of surveys on a real Redis: links, ranges, search, files, terms, and what is unknown."""

from __future__ import annotations

import csv
import io
import json
import re
import signal
import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streams.local.redis import Redis
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_MS, PATIENCE_SECONDS, StoredSite, Watched, health_tiles, section, wait_for_text
from tests.browser.stored import beat, store_windows, survey_file
from tests.support.deadline import until
from tests.support.services import running
from tests.support.telling import Tells

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.real

LONG = [f"an answer with a long name, number {i}" for i in range(50)]
WINDOWS = 40


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredSite]:
    """Nine surveys; the Redis is this module's own, since tests stop it."""
    folder = tmp_path_factory.mktemp("overview")
    (folder / "files").mkdir()
    files = [
        survey_file(folder / "files", "browser", ["Chrome", "Safari", "Edge", "Firefox", "Opera", "=1+1"]),
        survey_file(folder / "files", "numbered", LONG, question="Which of fifty answers? " + "And why? " * 20),
        survey_file(folder / "files", "height", ["height"], mechanism='name = "mean"\nlow = 100\nhigh = 4000'),
        survey_file(folder / "files", "basket", ["bread", "milk"], mechanism='name = "lpp"'),
        survey_file(folder / "files", "over", ["yes", "no"], end="2020-01-01"),
        *(survey_file(folder / "files", f"other-{i}", ["yes", "no"]) for i in range(4)),
    ]
    with chromium() as browser, running(Redis) as redis:
        pipeline = Pipeline("127.0.0.1:1", redis.url, "", folder, files, topics=False)
        try:
            for i, survey in enumerate(pipeline.surveys):
                store_windows(pipeline.settings, survey, windows=WINDOWS, users=2_000, seed=10 * i)
            beat(pipeline.settings, "worker-1")
            _, url = pipeline.exporter()
            yield StoredSite(pipeline, browser, url, redis)
        finally:
            pipeline.stop()


@pytest.fixture
def watched(site: StoredSite) -> Iterator[Watched]:
    context = site.browser.new_context(
        viewport={"width": 1440, "height": 900}, locale="en-US", timezone_id="Asia/Kolkata", accept_downloads=True
    )
    context.set_default_timeout(PATIENCE_MS)
    try:
        yield Watched(context.new_page(), site.url)
    finally:
        context.close()


def opened(site: StoredSite, page: Page, name: str, more: str = "") -> str:
    """Open a survey's page, wait for its numbers, and return its selector."""
    page.goto(site.page_of(name, more))
    here = section(page, site.id_of(name))
    page.wait_for_selector(f"{here} tbody tr[data-lower]")
    return here


def downloaded(page: Page, selector: str) -> tuple[str, bytes]:
    """Click, and return the name and the content of the file that comes."""
    with page.expect_download() as got:
        page.click(selector)
    return got.value.suggested_filename, Path(got.value.path()).read_bytes()


def clock_times(page: Page, here: str) -> list[str]:
    """Return the window that each panel names, read in one step: panels are drawn one after the other, and again."""
    parts = [".chooser strong", *(f".figure-{name}" for name in ("windows figcaption", "values h3"))]
    parts += [f".figure-{name} figcaption" for name in ("history", "users")]
    script = r"""([here, parts]) => parts.map(part =>
        document.querySelector(`${here} ${part}`)?.innerText.match(/\d\d:\d\d:\d\d/)?.[0] ?? `no time in ${part}`)"""
    times: list[str] = page.evaluate(script, [here, parts])
    return times


def one_window(page: Page, here: str) -> list[str]:
    """Wait until all panels name the same window, and return what they name."""

    def agreed() -> list[str] | None:
        times = clock_times(page, here)
        return times if len(set(times)) == 1 else None

    return until(agreed, PATIENCE_SECONDS, "one window in all panels", poll_seconds=0.2)


def test_nine_surveys_fit_on_an_overview_that_is_searched(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    for survey in site.pipeline.surveys:
        page.wait_for_selector(f'[data-card="{survey.id}"][data-state="settled"]')
    band = page.locator(f'[data-card="{site.id_of("numbered")}"] .headline-band')
    assert band.get_attribute("title") == "95 % sure of all values at once"
    windows = site.ask(f"/api/v1/surveys/{site.id_of('numbered')}/windows")["windows"]
    window = max((w for w in windows if w["state"] == "settled"), key=lambda w: int(w["window_start_ms"]))
    first = max(window["values"], key=lambda row: float(row["lower"]))
    shown = [float(end) for end in re.findall(r"[\d.]+(?= ?%)", band.inner_text())]
    assert shown == pytest.approx([100 * first["simultaneous_lower"], 100 * first["simultaneous_upper"]], abs=0.06)
    bottom = page.locator(".cards").evaluate("node => node.getBoundingClientRect().bottom + scrollY")
    assert bottom < 2 * 900, "nine surveys on two screens at most"
    page.fill("#search-surveys", "firef")
    page.wait_for_selector(f'[data-card="{site.id_of("numbered")}"]', state="detached")
    assert page.locator(".survey-card").count() == 1
    page.click(".matches a")
    wait_for_text(page, f"{section(page, site.id_of('browser'))} .figure-windows figcaption", "^Firefox, window of")
    page.go_back()
    page.wait_for_selector("#search-surveys")
    assert page.input_value("#search-surveys") == "firef"
    assert page.locator(".survey-card").count() == 1
    page.fill("#search-surveys", "nothing like it")
    wait_for_text(page, ".overview .empty", "^No survey and no value matches")
    watched.assert_quiet()


def test_what_is_shown_is_in_the_address_and_the_back_button_works(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "browser")
    one_window(page, here)
    page.click(f"{here} .legend-item >> text=Safari")
    wait_for_text(page, f"{here} .figure-windows figcaption", "^Safari, window of")
    box = page.locator(f"{here} .plot-windows .u-over").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 60, steps=4)
    page.mouse.up()
    page.wait_for_url(re.compile(r"from=.*&to="))
    wait_for_text(page, f"{here} .range .range-note", r"^1[0-4] windows$")
    page.click(f"{here} .plot-windows .u-over", position={"x": 0.5 * box["width"], "y": 60})
    page.wait_for_url(re.compile(r"&window="))
    page.wait_for_selector(f'{here} .chooser [aria-pressed="false"]')
    times = one_window(page, here)
    chosen, link = page.url, page.get_attribute(f"{here} .controls > a", "href")
    page.go_back()
    page.wait_for_selector(f'{here} .chooser [aria-pressed="true"]')
    page.go_back()
    wait_for_text(page, f"{here} .range .range-note", f"^{WINDOWS} windows$")
    page.go_forward()
    page.go_forward()
    assert page.url == chosen
    until(lambda: clock_times(page, here) == times, 60, "the same window again", poll_seconds=0.2)
    page.goto("about:blank")
    page.goto(site.url + str(link))
    wait_for_text(page, f"{here} .figure-windows figcaption", "^Safari, window of")
    until(lambda: clock_times(page, here) == times, 60, "the same by its permalink", poll_seconds=0.2)
    watched.assert_quiet()


def test_ranges_are_chosen_zoomed_and_entered_by_keyboard(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "browser", "&tz=utc")
    page.select_option(f"{here} .range select", label="Last 5 min")
    assert "last=5m" in page.url
    page.select_option(f"{here} .range select", "newest")
    wait_for_text(page, f"{here} .range .range-note", f"^{WINDOWS} windows$")
    page.focus(f'{here} button[aria-label="Zoom in"]')
    page.keyboard.press("Enter")
    wait_for_text(page, f"{here} .range .range-note", r"^(19|20|21) windows$")
    page.focus(f'{here} button[aria-label="Earlier"]')
    page.keyboard.press("Enter")
    page.select_option(f"{here} .range select", "choose")
    page.fill(f"{here} .range-form label:nth-child(1) input", "2020-01-01T00:00:00")
    page.fill(f"{here} .range-form label:nth-child(2) input", "2019-01-01T00:00:00")
    page.keyboard.press("Enter")
    wait_for_text(page, f"{here} .range-form .error", "must end after it begins")
    page.fill(f"{here} .range-form label:nth-child(2) input", "2020-01-02T00:00:00")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("from=2020-01-01T00:00:00Z&to=2020-01-02T00:00:00Z"))
    wait_for_text(page, f"{here} .empty", "^No window of this range has an estimate")
    watched.assert_quiet()


def test_values_are_searched_and_long_names_stay_apart(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "numbered")
    script = """async (values) => {
        const { shortNames } = await import("/static/labels.js");
        return [shortNames(values, 16), shortNames(["a".repeat(30), "a".repeat(31)], 10), shortNames(["x", "y"], 5)];
    }"""
    long, same, short = page.evaluate(script, LONG)
    assert long[:2] == ["…0", "…1"]
    assert len(set(long)) == len(LONG)
    assert len(set(same)) == 2
    assert short == ["x", "y"]
    page.fill(f"{here} .values-tools input", "number 4")
    until(lambda: page.locator(f"{here} table.values tbody tr").count() == 11, 60, "the values found", poll_seconds=0.1)
    legend = page.locator(f"{here} .legend-item")
    others = legend.filter(has_not_text="number 4")
    until(lambda: legend.count() > others.count() == 0, 60, "a chart of what was found", poll_seconds=0.1)
    assert "q=number" in page.url
    page.fill(f"{here} .values-tools input", "nothing")
    wait_for_text(page, f"{here} .none", "No value matches “nothing”")
    watched.assert_quiet()


def test_files_hold_what_is_seen(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "browser")
    wait_for_text(page, f"{here} .figure-history figcaption", "when it closed")
    name, content = downloaded(page, f'{here} [aria-label="Save values as CSV"]')
    assert re.fullmatch(r"browser-[0-9a-f]{8}-values-[\dT-]+Z?\.csv", name)
    rows = list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    start_ms = page.get_attribute(here, "data-current")
    stored = site.ask(f"/api/v1/surveys/{site.id_of('browser')}/windows/{start_ms}")["values"]
    told = {row["value"]: float(row["estimate"]) for row in rows}
    assert told["Chrome"] == pytest.approx(next(one["estimate"] for one in stored if one["value"] == "Chrome"))
    assert "'=1+1" in told, "a spreadsheet must not compute a name"
    _, windows = downloaded(page, f'{here} [aria-label="Save windows as CSV"]')
    assert len(windows.decode().splitlines()) == 1 + 6 * WINDOWS
    name, picture = downloaded(page, f'{here} [aria-label="Save history as PNG"]')
    assert name.endswith(".png")
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width > 400
    assert height > 250
    watched.assert_quiet()


def test_times_are_local_or_utc_and_say_so(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "browser")
    local = page.inner_text(f"{here} .chooser strong")
    assert page.inner_text("#zone") in ("Kolkata", "Calcutta")
    page.click("#zone")
    until(lambda: page.inner_text(f"{here} .chooser strong") != local, 60, "another time", poll_seconds=0.1)
    wait_for_text(page, "#zone", "^UTC$")
    assert "tz=utc" in page.url
    assert page.inner_text(f"{here} .chooser strong")[-5:-3] != local[-5:-3], "India is half an hour off"
    page.goto(site.url)
    wait_for_text(page, "#zone", "^UTC$")  # the choice is kept
    watched.assert_quiet()


def test_terms_are_explained_by_keyboard_in_the_words_of_the_glossary(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "browser")
    page.focus(f"{here} .about .term >> nth=0")
    page.keyboard.press("Enter")
    page.wait_for_selector("#term-help:popover-open")
    assert page.evaluate("document.activeElement.id") == "term-help", "screen readers read it"
    assert page.inner_text("#term-title") == "mechanism"
    wait_for_text(page, "#term-text", "^The rule by which a device randomizes a value")
    page.keyboard.press("Escape")
    page.wait_for_selector("#term-help", state="hidden")
    assert page.evaluate("document.activeElement.className") == "term"
    page.focus("#help-button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#help[open] dt >> text=recompute queue")
    page.keyboard.press("Escape")
    page.wait_for_selector("#help[open]", state="detached")
    watched.assert_quiet()


def test_means_have_their_own_unit_and_shares_are_percent(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "height")
    assert re.fullmatch(r"[\d,.]+", page.inner_text(f"{here} tbody td.strong"))
    wait_for_text(page, f"{here} .meaning", "mean of the numbers")
    here = opened(site, page, "basket")
    assert all("%" in text for text in page.locator(f"{here} tbody td.strong").all_inner_texts())
    page.click(f'{here} [data-kind="mean"]')
    wait_for_text(
        page, f"{here} .figure-windows figcaption", r"^Mean of “bread”, .* between -?[\d.]+ and -?[\d.]+, 95 % sure"
    )
    assert not any("%" in text for text in page.locator(f"{here} tbody td.strong").all_inner_texts())
    watched.assert_quiet()


def test_sentences_say_what_bands_outside_the_possible_mean(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    window = {
        "population": "fleet",
        "alpha": 0.05,
        "users": 41220,
        "users_per_rung": [220, 41000, 0],
        "epsilons": [0.5, 1.0, 2.0],
    }
    bands: list[list[float | None]] = [
        [0.118, 0.131],
        [-0.01, 0.02],
        [0.97, 1.02],
        [-0.4, -0.1],
        [-3.0, 4.0],
        [None, None],
        [0.0, 0.0],
        [0.21, 0.21000004],
        [-0.3, 0.00002],
        [1.0, 1.3],
    ]
    rows = [{"value": "x", "estimate": None, "lower": lower, "upper": upper} for lower, upper in bands]
    script = """async ([window, rows]) => {
        const { sentence } = await import("/static/format.js");
        const mean = { kind: "mean", unit: "cm" };
        return rows.map((row) => sentence(window, row, { kind: "share" })).concat(sentence(window, rows[0], mean));
    }"""
    end = ", 95 % sure, 41,220 devices, epsilon up to 1.0"
    assert page.evaluate(script, [window, rows]) == [
        f"between 11.8 % and 13.1 % of devices{end}",
        f"at most 2.0 % of devices{end}",
        f"at least 97.0 % of devices{end}",
        f"next to none of devices{end}",
        f"not known yet: anything from none to all{end}",
        f"not known yet{end}",
        f"not known yet{end}",
        f"between 21.0000000 % and 21.0000040 % of devices{end}",
        f"at most 0.0020 % of devices{end}",
        f"nearly all of devices{end}",
        f"between 0.118 cm and 0.131 cm{end}",
    ]


@pytest.mark.parametrize("width", [360, 1920])
def test_overview_and_long_names_fit(site: StoredSite, watched: Watched, width: int) -> None:
    page = watched.page
    page.set_viewport_size({"width": width, "height": 800})
    page.goto(site.url)
    here = f'[data-card="{site.id_of("numbered")}"]'
    page.locator(here).scroll_into_view_if_needed()
    card = page.locator(f'{here}[data-state="settled"] .headline-value')
    name = card.get_attribute("title")
    assert name in LONG
    assert card.inner_text().endswith(name[-11:]), "the end is what tells it from the others"
    assert card.evaluate("node => node.scrollWidth - node.clientWidth") <= 0, "and it is not cut off"
    wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(wide) <= 0
    opened(site, page, "numbered")
    assert page.evaluate(wide) <= 0
    watched.assert_quiet()


def test_an_ended_survey_is_neither_stale_nor_red(site: StoredSite, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    page.wait_for_selector(f'[data-card="{site.id_of("over")}"][data-freshness="ended"]')
    # All others get no reports in this module, and are stale sooner or later.
    page.goto(site.page_of("over"))
    told = r"^No alert of this survey fires\. [1-8] alerts? of other surveys fires?\. "
    wait_for_text(page, "#alerts .sentence", told)
    watched.assert_quiet()


def first_health(site: StoredSite) -> Any:
    """Return what the event stream tells a page that opens now."""
    with urllib.request.urlopen(f"{site.url}/api/v1/events", timeout=PATIENCE_SECONDS) as stream:
        while stream.readline() != b"event: health\n":
            pass
        return json.loads(stream.readline().removeprefix(b"data: "))


def test_without_redis_a_fresh_page_is_unknown_and_recovers(site: StoredSite, watched: Watched, tells: Tells) -> None:
    page = watched.page
    site.redis.child.send_signal(signal.SIGSTOP)
    tells.begin()
    try:
        until(lambda: first_health(site)["store"] == "down", 60, "an exporter that knows", poll_seconds=0.5)
        page.goto(site.url)
        wait_for_text(page, "#banner", "Redis does not answer .* nothing is known")
        tells.note("Redis hangs or is away, seen on the page", "banner of the page")
        until(
            lambda: {told[:2] == ["unknown", "?"] for told in health_tiles(page).values()} == {True},
            60,
            "tiles that are all unknown",
            poll_seconds=0.2,
        )
        page.wait_for_selector('.survey-card[data-state="unknown"]')
        others = page.locator('.survey-card:not([data-state="unknown"])')
        until(lambda: others.count() == 0, 60, "all cards to be unknown", poll_seconds=0.1)
        page.click(".survey-card .card-link")
        wait_for_text(page, ".survey .empty", "^Unknown: the estimates cannot be read")
        assert "No estimates yet" not in page.inner_text("main")
    finally:
        site.redis.child.send_signal(signal.SIGCONT)
    page.wait_for_selector("tbody tr[data-lower]")
    until(lambda: health_tiles(page)["rate"][0] != "unknown", 60, "tiles that are known again", poll_seconds=0.2)
