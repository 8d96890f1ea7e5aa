"""`thaw dealer` as a process: devices that ask at the same time, kills at any moment, every card exactly once."""

from __future__ import annotations

import json
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from producers.clock import system_clock
from producers.device.agent import Device
from producers.device.cards import CardError, Cards
from producers.survey.survey import load_survey
from streams.local.process import Child, free_ports
from tests.support.deadline import END_SECONDS, until
from tests.support.exporter_process import until_healthy
from tests.support.transports import MemoryTransport

pytestmark = pytest.mark.real

DECK = (20, 2, 38)
BLOCKS = 4
PEOPLE = BLOCKS * sum(DECK)
KILLS = 3
SURVEY = f"""
name = "aids"
question = "Did you use forbidden aids in this exam?"
values = ["no", "yes"]
accept_risk = "The dealer is independent of the collector."
[mechanism]
name = "improved_christofides"
cards = {list(DECK)}
blocks = {BLOCKS}
[release]
kind = "listed"
ladder = [1.0]
jitter = "0s"
[window]
size = "3650d"
retention = "1d"
[budget]
lifetime = inf
"""


class Dealing:
    """A dealer that can be killed and started again on the same file and port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        [self.port] = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        env = {
            "THAW_SURVEYS": str(self.folder),
            "THAW_DEALER_PORT": str(self.port),
            "THAW_DEALER_FILE": str(self.folder / "dealer.sqlite"),
        }
        command = [sys.executable, "-m", "streams.cli", "dealer"]
        self.child = Child("dealer", command, log=self.folder / "dealer.log", env=env)
        until_healthy(self.child, self.url)


@pytest.fixture
def dealing(tmp_path: Path) -> Iterator[Dealing]:
    (tmp_path / "aids.toml").write_text(SURVEY)
    found = Dealing(tmp_path)
    yield found
    found.child.kill()


def test_kills_deal_no_card_twice_and_nobody_two_cards(dealing: Dealing, tmp_path: Path) -> None:
    survey = load_survey(tmp_path / "aids.toml")
    [window_ms] = survey.windows.starts(system_clock())
    answered = threading.Semaphore(0)

    def asks(person: int) -> tuple[int, int]:
        """Ask until the dealer answers, as a device does; the second answer must be the first one."""
        asked = {"survey": survey.id, "window_ms": window_ms, "claim": person.to_bytes(16, "big").hex()}
        request = urllib.request.Request(f"{dealing.url}/deal", json.dumps(asked).encode())

        def answer() -> dict[str, int] | None:
            try:
                with urllib.request.urlopen(request, timeout=END_SECONDS) as found:
                    return dict(json.loads(found.read()))
            except OSError:
                return None

        first, second = (until(answer, 120, "a card") for _ in range(2))
        assert first == second
        answered.release()
        return first["block"], first["card"]

    with ThreadPoolExecutor(8) as people:
        asking = [people.submit(asks, person) for person in range(PEOPLE)]
        for _ in range(KILLS):
            for _ in range(PEOPLE // (KILLS + 1)):
                assert answered.acquire(timeout=END_SECONDS)
            dealing.child.kill()
            dealing.start()
        dealt = [one.result() for one in asking]
    for block in range(BLOCKS):
        assert Counter(card for where, card in dealt if where == block) == {1: 20, 2: 2, 3: 38}

    # A real device: the deck is used up for everybody else, and a device without a card does not answer.
    sent = MemoryTransport()
    with Device(tmp_path / "ledger.sqlite", [survey], sent, lifetime_epsilon=float("inf")) as device:
        cards = Cards(dealing.url, tmp_path / "ledger.sqlite")
        with pytest.raises(CardError, match="all cards of this window are dealt") as refused:
            device.observe(survey, cards.value(survey, "yes", system_clock()))
        assert not refused.value.again
        device.tick()
    assert sent.messages == []


def test_a_device_answers_with_the_card_of_the_dealer(dealing: Dealing, tmp_path: Path) -> None:
    survey = load_survey(tmp_path / "aids.toml")
    sent, now_ms = MemoryTransport(), system_clock()
    with Device(tmp_path / "ledger.sqlite", [survey], sent, lifetime_epsilon=float("inf")) as device:
        cards = Cards(dealing.url, tmp_path / "ledger.sqlite")
        value = cards.value(survey, "yes", now_ms)
        assert value == cards.value(survey, "yes", now_ms), "the same card after a lost answer"
        [chain] = device.observe(survey, value, now_ms)
        assert chain.groups == (value["block"],)
        assert chain.answer(0, 0)[0] == 3 - value["card"], "mirrored: face 4 - card, as symbol"
        device.tick(now_ms)
    assert len(sent.messages) == 1
    dealing.child.kill()
    with pytest.raises(CardError, match="no card from") as away:
        cards.value(survey, "yes", now_ms)
    assert away.value.again
