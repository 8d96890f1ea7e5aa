"""The pages of surveys that estimate more than shares of a few values, on stored estimates."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from producers.clock import system_clock
from streams.folders import deploy_folder
from streams.local.redis import Redis
from streams.store.connect import open_store
from streams.windows.likelihood import Likelihood, Likelihoods
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_MS, Served, Watched, section, wait_for_text
from tests.browser.stored import beat, store_windows, survey_file

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.real

WINDOWS = 3
REGISTRY = 'owner = "hours@example.org"\nreview = "https://reviews.example.org/17"\nexpires = 2099-01-31'
FEW = 600
USERS = {"basket": 30, "crowd": FEW, "interests": 8_000}
"""Reports in a window where they are not 2,000; the four copies of 2,000 devices for interests."""
HOURS = 'name = "mean"\nlow = 0\nhigh = 24\nunit = "h"'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, redis_server: Redis) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("quantities")
    (folder / "files").mkdir()
    files = [
        survey_file(folder / "files", "hours", ["hours"], mechanism=HOURS, registry=REGISTRY),
        survey_file(folder / "files", "basket", ["bread", "milk", "rice"], mechanism='name = "lpp"'),
        survey_file(folder / "files", "start", ["blank", "news", "mail"], mechanism='name = "rappor"\nbits = 32'),
        survey_file(folder / "files", "colours", [f"colour {i}" for i in range(20)], mechanism='name = "sue"'),
        survey_file(
            folder / "files", "places", ["home", "shop", "clinic"], mechanism='name = "urr"\nsensitive = ["clinic"]'
        ),
        survey_file(folder / "files", "spread", ["hours"], mechanism=f"{HOURS}\nmoments = 2"),
        survey_file(folder / "files", "agree", ["yes", "no"]),
        survey_file(folder / "files", "crowd", ["ham", "cheese"], publish="least_devices = 1000"),
        survey_file(folder / "files", "filling", ["ham", "cheese"], publish="least_devices = 1000"),
        *(deploy_folder("surveys") / f"{name}.toml" for name in ("k_randomization", "profile")),
    ]
    with chromium() as browser:
        pipeline = Pipeline("127.0.0.1:1", redis_server.url, "quantities-", folder, files, topics=False)
        try:
            for i, survey in enumerate(pipeline.surveys):
                users = USERS.get(survey.name, 2_000)
                # Ten devices more for every seed: a crowd stays one that is too small.
                seed = 0 if users == FEW else 10 * i
                store_windows(pipeline.settings, survey, windows=WINDOWS, users=users, seed=seed)
                if survey.name == "filling":
                    store_windows(pipeline.settings, survey, windows=1, users=FEW, seed=0)
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


def opened(site: Served, page: Page, name: str, more: str = "") -> str:
    page.goto(site.page_of(name, more))
    here = section(page, site.id_of(name))
    page.wait_for_selector(f"{here} tbody tr[data-value]")
    return here


def test_a_mean_has_its_unit_and_its_range(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "hours")
    wait_for_text(page, f"{here} .figure-values h3", "^Mean, ")
    assert "between 0 and 24 h" in page.locator(f"{here} .meaning").inner_text()
    assert page.locator(f"{here} .figure-values input[type=search]").is_hidden()
    wait_for_text(page, f"{here} .figure-values > .sentence:last-child", r"^hours: between [\d.]+ h and [\d.]+ h, 95 %")
    assert "%" not in page.locator(f"{here} table.values tbody").inner_text()
    assert re.fullmatch(r"[\d.]+ – [\d.]+ h", page.locator(f"{here} table.values tbody td").nth(2).inner_text())
    told = page.locator(f"{here} .registry")
    assert re.fullmatch(r"Owner: hours@example\.org · privacy review · expires .*2099.*", told.inner_text())
    assert told.locator("a").get_attribute("href") == "https://reviews.example.org/17"
    assert page.locator(f"{section(page, site.id_of('spread'))} .registry").is_hidden()


def test_a_number_and_its_square_have_a_unit_each_and_a_spread(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "spread")
    cells = {
        str(row.get_attribute("data-value")): row.locator("td.strong").inner_text()
        for row in page.locator(f"{here} table.values tbody tr").all()
    }
    assert re.fullmatch(r"[\d.]+ h", cells["hours"])
    assert re.fullmatch(r"[\d.]+ h²", cells["square of hours"])
    assert list(cells) == ["hours", "square of hours"], "no order of numbers that cannot be compared"
    assert page.locator(f"{here} .figure-values h3").inner_text().startswith("Values, ")
    assert page.locator(f"{here} .legend-item").count() == 1, "they have no axis in common"
    wait_for_text(page, f"{here} .figure-values > .sentence:last-child", r"^hours: between [\d.]+ h and [\d.]+ h, 95 %")
    wait_for_text(
        page, f"{here} [data-derived='standard deviation']", r"^Standard deviation of the numbers .*: [\d.]+ \("
    )


def test_large_numbers_are_grouped_and_named_as_their_bands_deserve(site: Served, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    script = """async ([rows, unit]) => {
        const { band, halfWidth, number, points } = await import("/static/format.js");
        const quantity = { kind: "mean", unit };
        return rows.map(([lower, estimate, upper]) => {
            const row = { lower, estimate, upper }, half = halfWidth(row);
            return [number(estimate, quantity, half), band(row, quantity), points(half, quantity)];
        });
    }"""
    rows = [
        [-2_079.4, -1_549.2, -1_018.9],
        [5.4567e9, 6.2661e9, 7.0754e9],
        [1_229_000, 1_234_567, 1_240_000],
        [1, 2, 3],
    ]
    assert page.evaluate(script, [rows, "euros"]) == [
        ["-1,549 euros", "-2,079 – -1,019 euros", "±530 euros"],
        ["6.3 billion euros", "5.5 billion – 7.1 billion euros", "±809 million euros"],
        ["1.235 million euros", "1.229 million – 1.240 million euros", "±5,500 euros"],
        ["2.0 euros", "1.0 – 3.0 euros", "±1.0 euros"],
    ]


def test_a_key_has_a_share_and_a_mean_or_that_there_is_none_is_said(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "basket")
    rows = page.locator(f"{here} table.values tbody tr")
    assert sorted(rows.locator(".value-name").all_inner_texts()) == ["bread", "milk", "rice"]
    assert page.locator(f"{here} table.values .beside").first.inner_text() == "mean of its value"
    windows = site.ask(f"/api/v1/surveys/{site.id_of('basket')}/windows")["windows"]
    window = max((w for w in windows if w["state"] == "settled"), key=lambda w: int(w["window_start_ms"]))
    means = {row["value"]: row["estimate"] for row in window["values"] if row["value"].endswith("/mean")}
    assert None in means.values(), "thirty devices are too few for some key"
    for row in rows.all():
        name = row.locator(".value-name").inner_text()
        said = row.locator("td.beside").inner_text()
        assert (said == "not estimable") == (means[f"{name}/mean"] is None), (name, said)
    graph = {one["name"]: one["estimate"] for one in window["derived"]}
    assert list(graph) == ["edges", "keys per device", "average degree", "density", "weight", "mean edge weight"]
    for name, number in graph.items():
        said = page.locator(f"{here} [data-derived='{name}']").inner_text().split(": ")[1]
        assert re.fullmatch("not estimable" if number is None else r"-?[\d.,]+( %)? \(.+ – .+\)", said), (name, said)
    page.click(f"{here} button[data-kind=mean]")
    wait_for_text(page, f"{here} table.values thead", "share with the key")
    wait_for_text(page, f"{here} .figure-windows figcaption", "^Mean of “")


def test_strings_have_standard_errors_and_a_share_that_no_candidate_explains(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "start")
    assert page.locator(f"{here} table.values .beside").first.inner_text() == "standard error"
    for cell in page.locator(f"{here} td.beside").all_inner_texts():
        assert re.fullmatch(r"[\d.]+ points", cell)
    wait_for_text(
        page, f"{here} [data-role=unexplained]", r"^Explained by no candidate: -?[\d.]+ % of devices, standard error"
    )


def test_a_view_stands_beside_the_estimates_with_a_link_of_its_own(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "colours")
    assert page.locator(f"{here} [data-role=view]").is_hidden()
    page.select_option(f"{here} .values-tools select", "simplex")
    wait_for_text(page, f"{here} [data-role=view]", "A view, not the estimate: it is biased and has no band. .* points")
    assert "view=simplex" in page.url
    page.wait_for_selector(f"{here} table.values[data-beside=true]")
    start_ms = page.get_attribute(here, "data-current")
    told = site.ask(f"/api/v1/surveys/{site.id_of('colours')}/windows/{start_ms}/views")["views"]
    shares = next(view["shares"] for view in told if view["name"] == "simplex")
    for row in page.locator(f"{here} table.values tbody tr[data-value]").all():
        position = int(str(row.get_attribute("data-value")).split()[1])
        assert float(row.locator("td.beside").inner_text().rstrip(" %")) == pytest.approx(
            100 * shares[position], abs=0.06
        )
    page.select_option(f"{here} .values-tools select", "likelihood")
    wait_for_text(page, f"{here} [data-role=view]", "Asked for; a worker begins within seconds")
    # A worker that takes its time: what it tells is shown.
    survey = next(known for known in site.pipeline.surveys if known.name == "colours")
    likelihoods, window_ms = Likelihoods(open_store(site.pipeline.settings).states), int(str(start_ms))
    assert likelihoods.take(survey, window_ms, "one", system_clock())
    assert likelihoods.tell(survey, window_ms, Likelihood("computing", system_clock(), "one", 0.4))
    wait_for_text(page, f"{here} [data-role=view]", "A worker is computing it: 40 %")
    page.go_back()
    wait_for_text(page, f"{here} [data-role=view]", "nearest to the estimates")
    page.goto(site.page_of("hours"))
    page.wait_for_selector(f"{section(page, site.id_of('hours'))} tbody tr[data-value]")
    assert page.locator(f"{section(page, site.id_of('hours'))} .values-tools select").is_hidden()


def test_sensitive_values_are_marked(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "places")
    marks = {
        row.get_attribute("data-value"): row.locator(".mark-sensitive").inner_text()
        for row in page.locator(f"{here} table.values tbody tr").all()
    }
    assert marks == {"home": "not hidden", "shop": "not hidden", "clinic": "sensitive"}


def test_a_yes_no_question_has_one_line(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "agree")
    wait_for_text(page, f"{here} .figure-windows figcaption", r"So (yes|no) [\d.]+ % to [\d.]+ %\.$")
    assert page.locator(f"{here} .legend-item").count() == 1
    assert page.locator(f"{here} table.values tbody tr").count() == 2


def test_copies_of_one_answer_are_counted_as_a_device(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "interests")
    window = site.ask(f"/api/v1/surveys/{site.id_of('interests')}/windows/{page.get_attribute(here, 'data-current')}")
    assert window["users"] >= USERS["interests"], "reports"
    devices = f"{round(window['users'] / 4):,}"
    wait_for_text(page, f"{here} .figure-users figcaption", f": {devices} devices, {devices} at epsilon ")
    wait_for_text(page, f"{here} .figure-users figcaption", r" Each sends 4 copies\.$")
    page.goto(site.url)
    wait_for_text(page, f'[data-card="{site.id_of("interests")}"] .card-meta', f"^{devices} devices · ")
    here = opened(site, page, "agree")
    assert "copies" not in page.locator(f"{here} .figure-users figcaption").inner_text()


def test_a_window_of_too_few_devices_has_no_numbers_and_the_page_says_what_it_waits_for(
    site: Served, watched: Watched
) -> None:
    page = watched.page
    page.goto(site.url)
    card = f'[data-card="{site.id_of("crowd")}"]'
    waiting = r"waiting for 1,000 devices: \d{3} so far; no estimate is published"
    wait_for_text(page, f"{card} .headline-value", "^no estimate published yet$")
    wait_for_text(page, f"{card} .card-meta", f"^{waiting}$")
    assert page.locator(f"{card} .headline strong").inner_text() == ""
    page.goto(site.page_of("crowd"))
    here = section(page, site.id_of("crowd"))
    wait_for_text(
        page, f"{here} .figure-values > .sentence:last-child", rf"^No estimate is published yet: {waiting}\.$"
    )
    wait_for_text(page, f"{here} .figure-windows figcaption", rf"^No estimate is published yet: {waiting}\.")
    assert page.locator(f"{here} table.values tbody tr").count() == 0


def test_a_withheld_window_after_published_ones_is_passed_over_until_it_is_chosen(
    site: Served, watched: Watched
) -> None:
    page = watched.page
    here = opened(site, page, "filling")
    windows = site.ask(f"/api/v1/surveys/{site.id_of('filling')}/windows")["windows"]
    held, *published = sorted(windows, key=lambda one: -int(one["window_start_ms"]))
    assert (held["withheld"]["reason"], held["withheld"]["least_devices"]) == ("crowd", 1_000)
    assert len(published) >= WINDOWS - 1
    assert {one["withheld"] for one in published} == {None}
    assert page.get_attribute(here, "data-current") == str(published[0]["window_start_ms"])
    page.goto(site.page_of("filling", f"&window={held['window_start_ms']}"))
    wait_for_text(
        page, f"{here} .figure-values > .sentence:last-child", rf"^No estimate: waiting for 1,000 devices: {FEW} so far"
    )
    assert set(page.locator(f"{here} table.values tbody td.strong").all_inner_texts()) == {"not estimable"}


def test_attributes_have_a_table_for_every_two_of_them(site: Served, watched: Watched) -> None:
    page = watched.page
    here = opened(site, page, "profile")
    window = site.ask(f"/api/v1/surveys/{site.id_of('profile')}/windows/{page.get_attribute(here, 'data-current')}")
    pairs = page.locator(f"{here} details.cross")
    assert pairs.evaluate_all("all => all.map(one => one.dataset.pair)") == ["sex, age", "sex, income", "age, income"]
    assert pairs.locator("summary").all_inner_texts() == ["age by sex", "sex by income", "age by income"]
    assert page.locator(f"{here} [data-role=derived]").is_hidden(), "every share stands in a table"
    first = pairs.first
    assert first.locator("thead th").all_inner_texts() == ["age", "sex", "all", "female", "male"]
    assert first.locator("tbody th").all_inner_texts() == ["under 30", "30 to 49", "50 or more"]
    assert first.locator("td").count() == 4 * 3
    told = {one["name"]: one for one in window["derived"]}
    assert len(told) == 7 + 6 + 4 + 6
    seen = set()
    for cell in pairs.locator("td[data-derived]").all():
        name = str(cell.get_attribute("data-derived"))
        seen.add(name)
        assert float(cell.locator(".strong").inner_text().rstrip(" %")) == pytest.approx(
            100 * told[name]["estimate"], abs=0.06
        )
        ends = [float(end) for end in re.findall(r"-?[\d.]+(?= %)", cell.locator("small").inner_text())]
        assert ends == pytest.approx([100 * told[name]["lower"], 100 * told[name]["upper"]], abs=0.06)
    assert seen == set(told)
    # On a phone a table scrolls in its box, and the page does not.
    page.set_viewport_size({"width": 360, "height": 800})
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    heights = "all => Math.max(...all.map(row => row.getBoundingClientRect().height))"
    assert 20 < pairs.locator("tbody tr").evaluate_all(heights) < 60, "names of rows have room"


def test_two_attributes_have_the_table_of_their_values_and_long_tables_are_folded(
    site: Served, watched: Watched
) -> None:
    page = watched.page
    page.goto(site.url)
    script = """async () => {
        const { CrossTables } = await import("/static/crosstables.js");
        const numbers = Array.from({ length: 40 }, (_, i) => `n${i}`);
        const attributes = { "10": ["a", "b"], "2": numbers };
        const row = (estimate) => ({ estimate, lower: estimate - 0.001, upper: estimate + 0.001 });
        const sums = (name) => attributes[name].map((value, i) => ({ name: `${name} = ${value}`, ...row(i / 100) }));
        const derived = [...sums("10"), ...sums("2")];
        const values = Array.from({ length: 80 }, (_, i) => row(i / 1000));
        const tables = new CrossTables({ attributes });
        tables.update({ values, derived });
        const [folded, ...more] = tables.node.children;
        const text = (name) => folded.querySelector(`[data-derived="${name}"] .strong`).textContent;
        const none = new CrossTables({ attributes }), [rows, summary] = ["tbody tr", "summary"];
        none.update({ values, derived: [] });
        const [lines, title] = [folded.querySelectorAll(rows).length, folded.querySelector(summary).textContent];
        return [more.length, folded.open, lines, title,
            text("10 = a, 2 = n3"), text("10 = b, 2 = n3"), text("2 = n5"), none.node.hidden];
    }"""
    assert page.evaluate(script) == [0, False, 40, "2 by 10", "0.30 %", "4.30 %", "5.00 %", True]


def test_a_mean_outside_its_range_has_the_end_that_says_something(site: Served, watched: Watched) -> None:
    page = watched.page
    page.goto(site.url)
    script = """async (rows) => {
        const { bandInRange } = await import("/static/format.js");
        const row = ([lower, estimate, upper]) => ({ lower, estimate, upper });
        const share = bandInRange(row([-0.02, -0.01, 0]), { kind: "share", low: 0, high: 1 });
        return [...rows.map((ends) => bandInRange(row(ends), { kind: "mean", unit: "", low: -1, high: 1 })), share];
    }"""
    rows = [[0.6, 3.1, 5.6], [-2.0, -1.4, -0.8], [0.2, 0.8, 1.4], [-2.0, 1.5, 5.0], [1.5, 2.0, 2.5]]
    said = ["at least 0.6", "at most -0.8", "0.2 – 1.4", "-2.0 – 5.0", "1.5 – 2.5", "-2.0 % – 0.0 %"]
    assert page.evaluate(script, rows) == said, "of a share the sentence below says it"
