"""A device as a program: what it fetches and refuses, when it asks for values, and what it does when things fail."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from producers.device.budget import cost_units
from producers.device.ledger import Ledger
from producers.device.program import AGAIN_MS, Program, Source
from producers.device.troubles import (
    DOCUMENTS,
    FINE,
    MANY_WAITED,
    REFUSED,
    SOME_WAITED,
    VALUES,
    Troubles,
    WatchedTransport,
)
from producers.survey.bulletin import bulletin_of, sealed_bulletin
from producers.survey.document import document_of, sealed
from producers.survey.signing import verifier
from producers.survey.survey import Survey, load_survey, parse_survey
from producers.wire.transport import Message, RefusedError, TransportError
from tests.support.continuing import text_with_rungs
from tests.support.paths import ROOT
from tests.support.signing import signer_in, while_wide, while_wide_text
from tests.support.surveys import WEEK, WINDOW_MS, survey, survey_text
from tests.support.transports import MemoryTransport, reports, rungs

KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
DAY_MS = 86_400_000


def is_signed(message: bytes, signature: bytes) -> bool:
    return signature == KEY.sign(message)


class World:
    """What is outside of the program: the time, a gateway's surveys, a command, a way to send."""

    def __init__(self, folder: Path, *, key: bool = False) -> None:
        self.now_ms, self.folder = WEEK, folder
        self.clock_off_ms = 0
        self.text, self.signed, self.online = survey_text(), False, True
        self.value: str | Exception = "red"
        self.wishes: dict[str, Any] = {}
        self.asked = self.fetched = 0
        self.transport = MemoryTransport()
        self.verify = is_signed if key else None
        self.bulletin: bytes | None = None
        self.troubles = Troubles()
        self.program = self.born()

    def born(self, *sources: Source) -> Program:
        return Program(
            sources or [Source("https://g/v1/surveys/colour", self.ask)],
            folder=self.folder / "surveys",
            ledger=self.folder / "ledger.sqlite",
            transport=self.transport,
            troubles=self.troubles,
            fetch=self.fetch,
            verify=self.verify,
            verifier=verifier,
            wishes=self.wishes,
            clock=lambda: self.now_ms,
        )

    def ask(self, _: Survey) -> str:
        self.asked += 1
        if isinstance(self.value, Exception):
            raise self.value
        return f"{self.value}\n"

    def fetch(self, url: str) -> bytes:
        self.fetched += 1
        if not self.online or (url.endswith("/bulletin") and self.bulletin is None):
            raise OSError("no network")
        if url.endswith("/bulletin"):
            assert self.bulletin is not None
            return self.bulletin
        asked = parse_survey(self.text, url)
        right_ms = self.now_ms - self.clock_off_ms
        document = document_of(asked, self.text, right_ms, right_ms + DAY_MS)
        return sealed(document, KEY.sign if self.signed else None, bytes(32) if self.signed else None)

    def live(self, for_ms: int) -> None:
        """Let the program do what it wants for a while, sleeping as long as it says."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            self.now_ms = min(self.now_ms + max(self.program.step(), 50), end_ms)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.program.close()


def test_every_window_is_answered_once_and_every_level_leaves(world: World) -> None:
    world.live(3 * WINDOW_MS + 40_000)
    assert world.asked == 4
    assert sorted(rungs(world.transport, survey())) == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert world.fetched == 1


def test_a_restart_draws_nothing_again(world: World) -> None:
    world.live(1_000)
    world.program.close()
    world.program = world.born()
    world.value = "blue"
    world.live(2_000)
    assert len(reports(world.transport, survey())) == 1


def test_a_survey_that_is_continued_at_the_same_address_goes_on_with_its_chains(world: World) -> None:
    lasts = {"size": 'size = "1d"', "retention": 'retention = "3d"'}
    world.text, world.wishes = text_with_rungs(2, **lasts), {"value_key": bytes(32)}
    short, world.program = parse_survey(world.text), world.born()
    world.live(2 * DAY_MS)
    world.text = text_with_rungs(3, short.id, **lasts)
    longer = parse_survey(world.text)
    world.live(DAY_MS // 2)  # fetched again, within nine hours
    world.program.close()
    ledger = Ledger(world.folder / "ledger.sqlite")
    chains = ledger.kept()
    ledger.close()
    assert len(chains) >= 2
    assert {len(chain.epsilons) for chain in chains} == {3}
    ended = [chain for chain in chains if longer.windows.end(chain.window_ms) + 30_000 < world.now_ms]
    assert {chain.highest for chain in ended} == {2}
    assert {chain.charged_units for chain in ended} == {cost_units(longer.mechanism.epsilons[-1])}


@pytest.mark.parametrize("failure", [OSError("ended with status 1"), "purple"])
def test_a_command_that_fails_is_asked_again_and_its_value_is_not_logged(
    world: World, failure: Any, caplog: pytest.LogCaptureFixture
) -> None:
    world.value = failure
    with caplog.at_level(logging.INFO):
        world.live(1_000)
        assert world.asked == 1
        world.value = "green"
        world.live(AGAIN_MS)
    assert "is not answered now" in caplog.text
    assert not any(value in caplog.text for value in ("purple", "green"))
    assert len(reports(world.transport, survey())) >= 1


def test_no_output_means_no_answer_in_this_window(world: World) -> None:
    world.value = ""
    world.live(WINDOW_MS - 1_000)
    assert (world.asked, world.transport.messages) == (1, [])
    world.value = "red"
    world.live(2_000)
    assert len(world.transport.messages) == 1


def test_a_device_with_a_key_answers_what_is_signed_and_nothing_else(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, key=True)
    with caplog.at_level(logging.INFO):
        world.live(2_000)
    assert "is not signed" in caplog.text
    assert (world.asked, world.troubles.value()) == (0, DOCUMENTS)
    world.signed = True
    world.live(AGAIN_MS)
    assert world.asked >= 1
    world.program.close()


def test_a_device_whose_clock_is_off_says_so_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.clock_off_ms = 365 * DAY_MS
    with caplog.at_level(logging.INFO):
        world.live(10 * AGAIN_MS)
    assert world.fetched >= 10
    assert caplog.text.count("set the clock") == 1
    world.clock_off_ms = 0
    world.live(AGAIN_MS)
    assert len(world.transport.messages) >= 1


def test_a_survey_that_needs_cards_of_a_dealer_is_refused_once_and_nobody_is_asked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.text = (ROOT / "deploy" / "surveys" / "improved_christofides.toml").read_text()
    with caplog.at_level(logging.INFO):
        world.live(10 * AGAIN_MS)
    assert world.asked == 0
    assert caplog.text.count("needs a card of a dealer") == 1
    assert "not answered now" not in caplog.text
    assert "is answered" not in caplog.text


def test_levels_that_bulletins_open_are_released_and_a_wrong_bulletin_is_refused_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signer, other = signer_in(tmp_path), signer_in(tmp_path, "other.pem")
    asked = while_wide(signer)
    world = World(tmp_path)
    world.program.close()
    world.text = while_wide_text(signer)
    world.program = world.born()
    with caplog.at_level(logging.INFO):
        world.live(WINDOW_MS + 40_000)
        assert sorted(rungs(world.transport, asked)) == [0, 0], "without a bulletin nothing else opens"
        assert world.troubles.value() == FINE
        opened = bulletin_of(asked, 1, world.now_ms, {WEEK: 1})
        world.bulletin = sealed_bulletin(opened, other.sign)
        world.live(2 * WINDOW_MS)
        assert world.troubles.value() == DOCUMENTS
        assert "is not signed by the key" in caplog.text
        world.bulletin = sealed_bulletin(opened, signer.sign)
        world.live(2 * WINDOW_MS)
    assert "bulletin 1 of" in caplog.text
    left = sorted(rungs(world.transport, asked))
    assert (left.count(1), left.count(2)) == (1, 0), "one level of one window"
    world.program.close()


def test_without_a_network_it_goes_on_with_what_it_has_until_that_expires(world: World) -> None:
    world.live(1_000)
    world.program.close()
    world.online = False
    world.program = world.born()
    world.live(3 * WINDOW_MS)
    asked = world.asked
    assert asked == 5, "once more after the restart, whose answer is the stored one"
    world.now_ms += 2 * DAY_MS
    world.live(2 * WINDOW_MS)
    assert world.asked == asked


def test_after_a_long_time_offline_reports_leave_a_few_a_minute(tmp_path: Path) -> None:
    inner, now_ms = MemoryTransport(), WEEK
    throttled = WatchedTransport(inner, Troubles(), per_minute=3, clock=lambda: now_ms)
    messages = [Message(0, bytes([number])) for number in range(8)]
    with pytest.raises(RefusedError) as error:
        throttled.send(messages)
    assert (error.value.refused, error.value.postponed) == ({}, frozenset(range(3, 8)))
    assert inner.messages == []
    throttled.send(messages[:3])
    with pytest.raises(RefusedError) as error:
        throttled.send(messages[3:4])
    assert error.value.postponed == {0}
    now_ms += 60_000
    throttled.send(messages[3:6])
    assert inner.messages == messages[:6]


def test_many_waiting_reports_all_leave_in_the_end_and_never_many_at_once(world: World) -> None:
    world.text = survey_text(retention='retention = "10d"')
    world.program.close()
    world.transport.away = True
    inner = world.transport
    counted: dict[int, int] = {}

    class Counting:
        partitions = 8

        def send(self, messages: Sequence[Message]) -> None:
            inner.send(messages)
            minute = world.now_ms // 60_000
            counted[minute] = counted.get(minute, 0) + len(messages)

    watched: Any = WatchedTransport(Counting(), Troubles(), per_minute=20, clock=lambda: world.now_ms)
    world.transport = watched
    world.program = world.born()
    world.live(100 * WINDOW_MS)
    inner.away = False
    ledger = Ledger(world.folder / "ledger.sqlite")
    waiting = len(ledger.connection.execute("SELECT id FROM outbox").fetchall())
    ledger.close()
    assert waiting > 100, "as many as the budget pays for"
    world.live(60 * 60_000)
    assert max(counted.values()) <= 40, "two minutes of the throttle may meet in one of the clock"
    assert len(inner.messages) >= waiting


class Failing:
    """A transport with a fault."""

    partitions = 8

    def __init__(self, error: TransportError) -> None:
        self.error = error

    def send(self, messages: Sequence[Message]) -> None:
        assert messages
        raise self.error


@pytest.mark.parametrize(
    ("count", "error", "value"),
    [
        (0, TransportError("away"), FINE),
        (1, TransportError("away"), SOME_WAITED),
        (9, TransportError("away"), SOME_WAITED),
        (10, TransportError("away"), MANY_WAITED),
        (10, RefusedError("no", {3: "expired"}), REFUSED),
        (10, RefusedError("later", {}, frozenset({3})), SOME_WAITED),
        (10, RefusedError("later", {}, frozenset(range(10))), MANY_WAITED),
        (10, RefusedError("both", {3: "expired"}, frozenset({4})), REFUSED),
    ],
)
def test_troubles_become_a_value_of_a_survey(count: int, error: TransportError, value: str) -> None:
    troubles = Troubles()
    inner: Any = Failing(error)
    transport = WatchedTransport(inner, troubles, per_minute=100)
    if count:
        with pytest.raises(TransportError):
            transport.send([Message(0, b"")] * count)
    assert troubles.value() == value
    troubles.forget()
    assert troubles.value() == FINE


def test_client_reports_are_answered_without_a_command_and_other_surveys_are_refused_for_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = ROOT / "deploy" / "device" / "client_reports.toml"
    assert load_survey(path).mechanism.labels == VALUES
    world = World(tmp_path)
    world.text = path.read_text()
    world.program.close()
    world.program = world.born(Source("https://g/v1/surveys/client-reports", None))
    world.live(1_000)
    ledger = Ledger(tmp_path / "ledger.sqlite")
    assert len(ledger.kept()) == 1
    ledger.close()
    world.program.close()
    world.text = survey_text()
    world.program = world.born(Source("https://g/v1/surveys/colour", None))
    with caplog.at_level(logging.INFO):
        world.live(1_000)
    assert "is no survey of client reports" in caplog.text
    world.program.close()
