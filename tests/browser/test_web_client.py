"""The client for browsers in a real Chromium and in Node, against a real gateway, broker and worker."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from producers.survey.survey import Survey, parse_survey
from streams.store.shape import Shape
from streams.windows.record import decode_estimate
from tests.browser.pipeline import chromium
from tests.browser.site import PATIENCE_MS
from tests.integration.workers import System
from tests.support.deadline import until
from tests.support.gateways import GatewayProcess
from tests.support.services import fresh_name
from tests.support.stats import assert_normal
from tests.support.surveys import survey_text
from tests.support.web_client import FOLDER, VECTORS, run_node, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.real

PEOPLE = 3_000
BITS = 'name = "rappor"\nbits = 32\nhashes = 2\ncohorts = 4'
SURVEYS: dict[str, tuple[str, str, list[Any], list[float]]] = {
    "grr": ('values = ["a", "b", "c"]', 'name = "grr"', ["a", "a", "a", "b", "b", "c"], [1 / 2, 1 / 3, 1 / 6]),
    "urr": (
        'values = ["a", "b", "c"]',
        'name = "urr"\nsensitive = ["c", "b"]',
        ["a", "a", "b", "c"],
        [1 / 2, 1 / 4, 1 / 4],
    ),
    "sue": ('values = ["a", "b", "c", "d"]', 'name = "sue"', ["a", "b", "b", "d"], [1 / 4, 1 / 2, 0, 1 / 4]),
    "oue": ('values = ["a", "b", "c", "d"]', 'name = "oue"', ["a", "b", "b", "d"], [1 / 4, 1 / 2, 0, 1 / 4]),
    "rappor": ('values = ["home", "news", "mail"]', BITS, ["home", "home", "news"], [2 / 3, 1 / 3, 0]),
    "back": ('values = ["a", "b"]\nwithdrawable = true', 'name = "grr"', ["a", "a", "a", "b"], [3 / 4, 1 / 4]),
    "mean": ('values = ["hours"]', 'name = "mean"\nlow = -2\nhigh = 10', [-2, 0, 1.5, 9, 10], [3.7]),
}
"""By name: values, mechanism, what people have in turn, and the truth."""


def text_of(name: str) -> str:
    values, mechanism, _, _ = SURVEYS[name]
    return survey_text(
        name=f'name = "{name}"', values=values, retention='retention = "1h"', jitter='jitter = "1s"'
    ).replace('name = "grr"', mechanism)


class Place:
    """A gateway and a worker on surveys of every mechanism of the client."""

    def __init__(self, system: System, gateway: GatewayProcess) -> None:
        self.system, self.gateway = system, gateway
        self.surveys = {name: parse_survey(text_of(name)) for name in SURVEYS}

    def users(self, asked: Survey, window_ms: int) -> int:
        """Return how many answers of a window are counted."""
        return self.system.store.estimates.tally(asked.id, window_ms, asked.shards, Shape.of(asked)).total_users


@pytest.fixture(scope="module")
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("web")
    url: str = request.getfixturevalue("redis_server").url
    system = System(request.getfixturevalue("kafka"), url, fresh_name() + ".", folder, text=text_of("grr"))
    (folder / "colour.toml").unlink()
    for name in SURVEYS:
        (folder / f"{name}.toml").write_text(text_of(name))
    system.create_topics()
    gateway = GatewayProcess(system.settings, folder, gateway_origins="*")
    with system.worker():
        yield Place(system, gateway)
    gateway.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with served() as url:
        context = browser.new_context()
        context.set_default_timeout(PATIENCE_MS)
        opened = context.new_page()
        opened.goto(f"{url}/package.json")
        yield opened
        context.close()


def test_every_vector_passes_in_chromium_with_ledgers_in_indexed_db(page: Page) -> None:
    found = page.evaluate(
        """async (vectors) => {
          const { run } = await import("/test/vectors.js");
          const { IndexedDBStore } = await import("/index.js");
          let ledgers = 0;
          return run(vectors, async () => new IndexedDBStore(`vectors-${(ledgers += 1)}`));
        }""",
        json.loads(VECTORS.read_text(encoding="utf-8")),
    )
    assert found["failed"] == []
    assert found["passed"] > 100


def test_an_answer_from_chromium_is_counted_once_whatever_happens_to_the_page(page: Page, place: Place) -> None:
    """The page is loaded again between every two steps, and an answer of the gateway is lost once."""
    asked = place.surveys["grr"]
    script = """async ([url, id, step]) => {
      const { Device, Gateway, IndexedDBStore } = await import("/index.js");
      const lost = async (...given) => { await fetch(...given); throw new TypeError("the answer was lost"); };
      const good = new Gateway(url);
      const survey = await good.survey(id);
      const way = step === "lost" ? new Gateway(url, { fetch: lost }) : good;
      const device = new Device(new IndexedDBStore("once"), [survey], way);
      if (step === "observe") {
        const tabs = [device, new Device(new IndexedDBStore("once"), [survey], good)];
        await Promise.all(tabs.map((tab) => tab.observe(survey, "b")));
      }
      const done = step === "observe" ? null : await device.tick(Date.now() + 2_000);
      return [done, await device.statement()];
    }"""
    steps = {}
    for step in ("observe", "lost", "tick", "tick again"):
        page.reload()
        steps[step] = page.evaluate(script, [place.gateway.url, asked.id, step])
    chains = [statement["chains"] for _, statement in steps.values()]
    assert all(chain == chains[0] for chain in chains)
    [chain] = chains[0]
    assert [len(statement["outbox"]) for _, statement in steps.values()] == [1, 1, 0, 0]
    assert [done and done["sent"] for done, _ in steps.values()] == [None, 0, 1, 0]
    assert steps["tick"][1]["spent"] == asked.mechanism.epsilons[0]
    until(lambda: place.users(asked, chain["windowMs"]) == 1, 60, "one counted answer")
    assert place.gateway.metric("thaw_gateway_reports_total", survey=asked.id) == 2
    tally = place.system.store.estimates.tally(asked.id, chain["windowMs"], asked.shards, Shape.of(asked))
    assert tally.counts[0, 0].tolist() == [int(symbol == int(chain["answers"][0], 16)) for symbol in range(3)]


def test_an_answer_that_was_sent_from_chromium_is_taken_back(page: Page, place: Place) -> None:
    asked = place.surveys["back"]
    script = """async ([url, id]) => {
      const { Device, Gateway, IndexedDBStore } = await import("/index.js");
      const gateway = new Gateway(url);
      const survey = await gateway.survey(id);
      const device = new Device(new IndexedDBStore("back"), [survey], gateway);
      const [chain] = await device.observe(survey, "b");
      await device.tick(Date.now() + 2_000);
      await device.consent(false);
      const done = await device.tick(Date.now() + 2_000);
      return [chain.windowMs, done, await device.statement()];
    }"""
    window_ms, done, statement = page.evaluate(script, [place.gateway.url, asked.id])
    assert (done["sent"], statement["consent"], statement["chains"], statement["outbox"]) == (1, False, [], [])

    def withdrawn() -> bool:
        tally = place.system.store.estimates.tally(asked.id, window_ms, asked.shards, Shape.of(asked))
        return bool(tally.users.sum(axis=1).tolist() == [0, 0, 0, 1])

    until(withdrawn, 60, "the withdrawal in place of the answer")


@pytest.mark.parametrize("name", SURVEYS)
def test_the_estimator_finds_the_truth_of_what_the_client_draws(name: str, place: Place) -> None:
    asked, (_, _, values, truth) = place.surveys[name], SURVEYS[name]
    window_ms = place.system.window_ms - 10 * asked.windows.size_ms
    given = {
        "gateway": place.gateway.url,
        "survey": asked.id,
        "devices": PEOPLE,
        "seed": 1,
        "window_ms": window_ms,
        "values": values,
    }
    done = run_node(Path(FOLDER) / "test" / "fleet.js", given=given)
    assert done.returncode == 0, done.stderr

    def estimated() -> Any:
        payload = place.system.store.estimates.read(asked.id, window_ms)
        record = None if payload is None else decode_estimate(payload)
        return record if record is not None and record.users == PEOPLE else None

    record = until(estimated, 60, f"an estimate of {PEOPLE} people")
    assert [row.value for row in record.values] == list(asked.mechanism.labels)
    for row, true in zip(record.values, truth, strict=True):
        assert row.estimate is not None
        assert row.variance is not None
        assert_normal(row.estimate, true, math.sqrt(row.variance) + 1e-9)
