"""The page in a real Chromium, on a real pipeline: what people see, by the DOM and the API, never by pixels."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_MS, Site, Watched, says_first, section, shown, wait_for_live, wait_for_text
from tests.support.deadline import COINCIDENCE, until
from tests.support.services import fresh_name
from tests.support.telling import Tells

pytestmark = pytest.mark.real

SURVEYS = sorted((Path(__file__).parent / "surveys").glob("*.toml"))


@pytest.fixture(scope="module")
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with chromium() as browser:
        kafka: str = request.getfixturevalue("kafka")
        redis_url: str = request.getfixturevalue("redis_server").url
        pipeline = Pipeline(kafka, redis_url, fresh_name() + ".", tmp_path_factory.mktemp("page"), SURVEYS)
        try:
            worker = pipeline.worker()
            _, url = pipeline.exporter()
            pipeline.fleet("--devices", "4000", "--seed", "11", "--scenario", "drift", without="quiet")
            pipeline.canary()
            yield Site(pipeline, browser, url, worker)
        finally:
            pipeline.stop()


@pytest.fixture
def watched(site: Site) -> Iterator[Watched]:
    context = site.browser.new_context(viewport={"width": 1440, "height": 900}, locale="en-US", timezone_id="UTC")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    try:
        yield Watched(page, site.url)
    finally:
        context.close()


def test_every_survey_has_a_card_and_a_page_with_charts_sentences_and_health(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    for name in ("browser", "canary", "hostile"):
        page.click(f'[data-card="{site.id_of(name)}"] .card-link')
        here = section(page, site.id_of(name))
        page.wait_for_selector(f"{here} .plot-windows canvas")
        page.wait_for_selector(f"{here} .plot-users canvas")
        page.wait_for_selector(f"{here} tbody tr[data-lower]")
        page.go_back()
        page.wait_for_selector(f'[data-card="{site.id_of(name)}"][data-state="settled"] .headline strong')
        assert page.locator(here).count() == 0
    here = section(page, site.id_of("browser"))
    page.click(f'#nav [data-key="{site.id_of("browser")}"]')
    sentence = (
        r"between [\d.]+ % and [\d.]+ % of devices, 95 % sure of all values at once, [\d,]+ devices, epsilon up to "
    )
    sentence += r"(0\.5|1|2)(\.0)?\."
    wait_for_text(page, f"{here} .figure-windows figcaption", sentence)
    wait_for_text(
        page, f"{here} .figure-users figcaption", r"[\d,]+ devices, [\d,]+ at epsilon 0\.5, [\d,]+ at epsilon 1"
    )
    wait_for_text(page, f"{here} .figure-values .sentence", r"^First is \w+: ")
    wait_for_live(page)
    wait_for_text(page, '[data-tile="rate"] .tile-value', r"^\d")
    wait_for_text(page, '[data-tile="lag"] .tile-note', r"behind, limit \d+ s")
    wait_for_text(page, '[data-tile="workers"] .tile-note', "^1 worker, Kafka answers$")
    wait_for_text(page, '[data-tile="rejects"] .tile-note', "no dead letters")
    wait_for_text(page, '[data-tile="canary"] .tile-value', r"^[+−]\d+\.\d σ$")
    wait_for_text(page, '[data-tile="canary"] .tile-note', r"; ε ≥ \d\.\d\d, declared [123]\.0$")
    page.click(f'#nav [data-key="{site.id_of("canary")}"]')
    proven = (
        r"^Canary devices: epsilon is at least \d\.\d\d \(declared 1\.0\) at rung 0, .* answers whose truth is known\."
    )
    wait_for_text(page, f'{section(page, site.id_of("canary"))} [data-role="epsilon"]', proven)
    watched.assert_quiet()


def test_values_are_sorted_by_lower_bound_and_the_truth_of_the_fleet_stands_beside(
    site: Site, watched: Watched
) -> None:
    page = watched.page
    page.goto(site.page_of("browser"))
    here = section(page, site.id_of("browser"))
    page.wait_for_selector(f"{here} tbody tr[data-lower]")

    def truths_beside() -> bool:
        """Look at the rows once; a window whose truth the fleet has not told yet is looked at again."""
        # One evaluation: `eval_on_selector_all` finds rows and reads them in two steps; the page may redraw between.
        rows = page.evaluate(
            "rows => [...document.querySelectorAll(rows)].map(r => [Number(r.dataset.lower), r.lastChild.textContent])",
            f"{here} table.values tbody tr",
        )
        lowers = [lower for lower, _ in rows]
        assert len(lowers) == 6
        assert lowers == sorted(lowers, reverse=True)
        return all(re.fullmatch(r"-?[\d.]+ %", truth) for _, truth in rows)

    until(truths_beside, 60, "the truth beside every value", poll_seconds=0.1)
    watched.assert_quiet()


def test_the_band_narrows_as_rungs_open(site: Site, watched: Watched) -> None:
    survey_id = site.id_of("browser")
    page = watched.page
    page.goto(site.page_of("browser"))
    here = section(page, survey_id)
    words = r"from ±([\d.]+) points when it closed to ±([\d.]+) points now, with answers up to rung 2 of 0 to 2\."

    def narrowed() -> str | None:
        """Return the start of the window that is shown if its band has narrowed to less than half.

        Standard errors of one answer at epsilon 0.5 and 2 differ by a factor of 5.6 among six values; half is far away.
        A window whose first estimate came late on a busy machine has not seen all of it; another one comes.
        """
        start_ms, text = page.evaluate(
            "here => { const node = document.querySelector(here); "
            "return [node?.dataset.window ?? '', node?.querySelector('figcaption')?.innerText ?? '']; }",
            f"{here} .figure-history",
        )
        found = re.search(words, text)
        return start_ms if found and float(found[2]) < float(found[1]) / 2 else None

    start_ms = until(narrowed, COINCIDENCE, "a window whose band narrowed", poll_seconds=0.1)
    history = site.ask(f"/api/v1/surveys/{survey_id}/windows/{start_ms}/history")
    first, last = history["points"][0], history["points"][-1]
    assert last["upper"][0] - last["lower"][0] < (first["upper"][0] - first["lower"][0]) / 2
    assert len(history["openings_ms"]) == 3
    page.locator(f"{here} .figure-history summary").click()
    page.wait_for_selector(f"{here} .figure-history .numbers tbody tr:nth-child(3)")
    watched.assert_quiet()


def test_new_windows_appear_without_loading_the_page_again(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.page_of("browser"))
    here = section(page, site.id_of("browser"))
    page.wait_for_selector(f"{here} tbody tr[data-lower]")
    canvas = page.query_selector(f"{here} .plot-windows canvas")
    first = page.get_attribute(here, "data-current")
    until(lambda: page.get_attribute(here, "data-current") != first, 60, "a newer window", poll_seconds=0.1)
    assert canvas is not None
    assert canvas.evaluate("node => node.isConnected"), "charts are fed, not made anew"
    lists = [url for url in watched.requests if re.search(r"/windows\?limit=\d+$", url)]
    assert len(lists) == 1, "asked once, then heard"
    watched.assert_quiet()


def test_whatever_a_survey_says_stays_text(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.page_of("hostile"))
    here = section(page, site.id_of("hostile"))
    page.wait_for_selector(f"{here} tbody tr[data-lower]")
    shown = page.locator(f"{here} .value-name").all_inner_texts()
    assert {"<script>window.hacked = 3</script>", "<img src=x onerror=window.hacked=4>", "__proto__"} <= set(shown)
    assert page.locator(f"{here} h2").inner_text().startswith("<script>window.hacked = 1</script><img")
    page.locator(f"{here} .value-name", has_text="onload").click()
    wait_for_text(page, f"{here} .figure-windows figcaption", re.escape('"><svg onload=window.hacked=5>, window of'))
    assert page.evaluate("window.hacked") is None
    assert page.locator(f"{here} img, {here} script").count() == 0
    watched.assert_quiet()


def test_noise_of_an_open_window_is_no_headline(site: Site, watched: Watched) -> None:
    survey_id = site.id_of("crowd")
    page = watched.page
    page.goto(site.page_of("crowd"))
    here = section(page, survey_id)
    until(lambda: page.get_attribute(here, "data-state") == "settled", 60, "a settled window", poll_seconds=0.1)
    starts = set()

    def windows() -> dict[int, Any]:
        return {one["window_start_ms"]: one for one in site.ask(f"/api/v1/surveys/{survey_id}/windows")["windows"]}

    def noisy() -> Any:
        """Return what is shown, once page and API tell of the same moment.

        A busy machine lets answers of a window come after it has settled: the page is judged where no estimate of a
        settled window changed while it was read, and where the headline has its answers of the top rung.
        """
        before, seen, after = windows(), shown(page, here), windows()
        assert seen["state"] == "settled"
        assert after[seen["start"]]["state"] == "settled", "the headline is a settled window"
        starts.add(seen["start"])
        settled = [one for one in before.values() if one["state"] == "settled"]
        headline = after[seen["start"]]
        later = [after.get(one["window_start_ms"], one) for one in settled]
        still = [one["computed_ms"] for one in settled] == [one["computed_ms"] for one in later]
        if not still or headline["users_per_rung"][-1] < headline["users"] / 2 or not says_first(seen, headline):
            return None
        top = float(seen["range"].split()[1])
        # The page may hear of a new estimate later than the API answers with it; then it is looked at again.
        follows = top <= 1.2 * max(row["upper"] for one in settled for row in one["values"])
        highest = [max(row["upper"] for row in one["values"]) for one in after.values() if one["state"] == "open"]
        far_above = seen["open"] > 0 and bool(highest) and max(highest) > 1.5 * top
        return seen if follows and far_above and len(starts) > 1 else None

    what = "the headline of the API, a y axis of settled windows, and an open window whose noise is far above it"
    seen = until(noisy, COINCIDENCE, what, poll_seconds=0.2)
    for cell in seen["cells"]:
        low, high = cell.split(" – ")
        assert low != high, "no band reads as if it had no width"
    caption = f"{here} .figure-windows figcaption"
    wait_for_text(page, caption, "95 % sure of all values at once")
    page.click(f"{here} .legend-item >> nth=1")
    wait_for_text(page, caption, "95 % sure, ")
    page.locator(f"{here} .figure-windows summary").click()
    wait_for_text(page, f"{here} .figure-windows .numbers", r"\(open\)")
    watched.assert_quiet()


def test_before_a_window_has_settled_the_page_says_when(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.page_of("crowd"))
    here = section(page, site.id_of("crowd"))
    page.wait_for_selector(f"{here} tbody tr[data-lower]")
    script = """async (info) => {
        const { SurveyView } = await import("/static/survey.js");
        const now = 1_800_000_000_000;
        const view = new SurveyView({ ...info, id: "early-00000000" }, () => now);
        document.getElementById("surveys").prepend(view.node);
        const values = info.values.map((value, i) => ({
            value, estimate: i ? -0.1 : 0.39, variance: 1, lower: i ? -2 : -1, upper: 2,
            simultaneous_lower: -3, simultaneous_upper: 4, always_valid_lower: null, always_valid_upper: null,
        }));
        const put = (start, state, settles) => view.hear({
            survey: view.info.id, window_start_ms: start, window_end_ms: start + 3000, read_ms: now, computed_ms: now,
            users: 40, users_per_rung: [40, 0], epsilons: info.epsilons, method: "pooled", population: "fleet",
            alpha: 0.05, homogeneity_p: null, notes: [], values, alerts: [], truth: null, state, settles_ms: settles,
        });
        put(now - 2000, "open", now + 15_000);
        put(now - 5000, "releasing", now + 12_000);
        view.draw();
        const text = (where) => view.node.querySelector(where).textContent;
        return [
            text(".figure-windows figcaption"), text(".figure-values .sentence"), text(".figure-values .chip"),
            view.node.querySelectorAll("table.values tbody tr").length, view.node.dataset.state,
            view.node.querySelector(".plot-windows").dataset.range, view.node.textContent.includes("39"),
            text(".figure-users figcaption"),
        ];
    }"""
    info = site.ask(f"/api/v1/surveys/{site.id_of('crowd')}")
    waiting = "No window is settled yet: first settled window in 12 s."
    told = page.evaluate(script, info)
    assert told[:7] == [waiting, waiting, "not settled", 0, "none", "0 1", False]
    assert re.match(r"Window of [\d:]+ \(open for another 1\.0 s\): 40 devices", told[7])


def test_the_page_says_that_rungs_contradict_the_survey(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.page_of("browser"))
    here = section(page, site.id_of("browser"))
    wait_for_text(page, f"{here} .about:not(.registry)", "rungs assumed independent of values")
    assert page.locator(f"{here} .warning").is_hidden()
    script = """async () => {
        const { contradictionText, newer } = await import("/static/settled.js");
        const plain = { state: "settled", contradicted: false, homogeneity_p: 0.4, method: "pooled", computed_ms: 5 };
        const against = { ...plain, contradicted: true, homogeneity_p: 0.000012, method: "stratified" };
        const open = { ...against, state: "open" };
        return [
            contradictionText([plain, plain, open]), contradictionText([against, plain, plain, plain, plain, plain]),
            contradictionText([plain, against, plain]),
            newer(undefined, open).state, newer(plain, { ...open, computed_ms: 4 }).state, newer(plain, open).state,
            newer(open, plain).state, newer(plain, { ...open, computed_ms: 6 }).state,
        ];
    }"""
    told = page.evaluate(script)
    assert told[:2] == ["", ""], "open windows and those of long ago say nothing"
    assert told[2].startswith(
        'In 1 of the last 3 settled windows the rungs contradict rungs = "independent" (smallest p 0.000012): '
    )
    assert told[2].endswith("Their estimates are stratified, which assumes nothing about rungs.")
    assert told[3:] == ["open", "settled", "settled", "settled", "open"]
    page.goto(site.page_of("hostile"))
    wait_for_text(page, f"{section(page, site.id_of('hostile'))} .about:not(.registry)", "rungs may depend on values")
    watched.assert_quiet()


def test_one_quiet_survey_is_stale_by_itself(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.page_of("quiet"))
    quiet = section(page, site.id_of("quiet"))
    fleet = site.pipeline.fleet("--devices", "200", "--seed", "5", only="quiet")
    page.wait_for_selector(f"{quiet} tbody tr[data-lower]")
    fleet.kill()
    page.wait_for_selector(f'{quiet}[data-stale="true"]')
    wait_for_text(page, f'{quiet} [data-role="age"]', r"^stale · no new reports for \d")
    page.click("#nav a")
    page.wait_for_selector(f'[data-card="{site.id_of("quiet")}"][data-freshness="stale"]')
    page.wait_for_selector(f'[data-card="{site.id_of("browser")}"][data-freshness="fresh"]')
    wait_for_live(page)
    assert page.locator("body.is-stale").count() == 0
    until(lambda: site.ask("/api/v1/health")["status"] == "ok", 60, "a healthy whole", poll_seconds=0.1)
    watched.assert_quiet()


def test_the_keyboard_is_enough(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.page_of("browser"))
    here = section(page, site.id_of("browser"))
    page.wait_for_selector(f"{here} .legend-item:nth-child(3)")
    reached: list[str] = []
    for _ in range(50):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.id || document.activeElement.className"))
    assert {"skip", "brand", "zone", "help-button", "theme", "term", "icon-button", "legend-item"} <= set(reached)
    page.focus("#theme")
    dark = page.get_attribute("#theme", "data-dark")
    page.keyboard.press("Enter")
    assert page.get_attribute("#theme", "data-dark") != dark
    page.reload()
    page.wait_for_selector(f"{here} .legend-item:nth-child(3)")
    assert page.get_attribute("#theme", "data-dark") != dark, "the choice is kept"
    page.focus(f"{here} .legend-item:nth-child(3)")
    page.keyboard.press("Space")
    page.wait_for_selector(f'{here} .legend-item:nth-child(3)[aria-pressed="true"]')
    wait_for_text(page, f"{here} .figure-windows figcaption", "^Edge, window of")
    page.focus(f'{here} button[aria-label="Older window"]')
    page.keyboard.press("Enter")
    page.wait_for_selector(f'{here} .chooser .small-button[aria-pressed="false"]')
    watched.assert_quiet()


@pytest.mark.parametrize(("width", "height"), [(360, 740), (820, 1180), (3840, 2160)])
def test_it_fits_phones_tablets_and_walls(site: Site, watched: Watched, width: int, height: int) -> None:
    page = watched.page
    page.set_viewport_size({"width": width, "height": height})
    page.goto(site.page_of("browser"))
    page.wait_for_selector(f"{section(page, site.id_of('browser'))} .plot-history canvas")
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0
    # One evaluation: a chart may be made anew between finding and measuring it. Heat map and map are hidden here.
    shown = "[...document.querySelectorAll('.plot canvas')].filter(c => !c.closest('[hidden]'))"

    def large() -> bool:
        canvases = page.evaluate(f"{shown}.map(c => [c.clientWidth, c.clientHeight])")
        return len([size for size in canvases if size[0] > 200 and size[1] > 100]) == len(canvases) >= 3

    until(large, 60, "charts that can be read", poll_seconds=0.1)
    watched.assert_quiet()


def test_a_token_is_asked_for_and_enough(site: Site, watched: Watched) -> None:
    _, url = site.pipeline.exporter(THAW_TOKEN="s3cret word")
    page = watched.page
    page.goto(url)
    page.fill("#token", "wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#login:not([hidden])")
    page.fill("#token", "s3cret word")
    page.keyboard.press("Enter")
    page.wait_for_selector(f'[data-card="{site.id_of("browser")}"][data-state="settled"]')
    assert page.locator("#login").is_hidden()
    page.evaluate("sessionStorage.clear()")
    page.goto("about:blank")
    page.goto(f"{url}/#token=s3cret%20word")
    page.wait_for_selector(f'[data-card="{site.id_of("browser")}"][data-state="settled"]')
    assert page.evaluate("location.hash") == ""


def test_the_page_says_when_the_exporter_is_gone_and_when_it_is_back(
    site: Site, watched: Watched, tells: Tells
) -> None:
    exporter, url = site.pipeline.exporter()
    page = watched.page
    page.goto(url)
    page.wait_for_selector('#live[data-state="live"]')
    exporter.kill()
    tells.begin()
    page.wait_for_selector('#live[data-state="offline"]')
    wait_for_text(page, "#banner", r"^The exporter has not answered for [\d.]+ s\.")
    tells.note("The exporter is away", "banner of the page")
    site.pipeline.exporter(port=int(url.rsplit(":", 1)[1]))
    wait_for_live(page)


def test_a_banner_says_that_no_worker_counts_until_one_does_again(site: Site, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    wait_for_live(page)
    site.worker.kill()
    page.wait_for_selector("#banner:not([hidden])")
    wait_for_text(page, "#banner", r"^No worker heartbeat for \d+ s\. Estimates are not updated; reports wait in Kafka")
    page.wait_for_selector('#live[data-state="stale"]')
    page.wait_for_selector('[data-tile="workers"][data-state="bad"]')
    site.worker = site.pipeline.worker()
    wait_for_live(page)
    watched.assert_quiet()
