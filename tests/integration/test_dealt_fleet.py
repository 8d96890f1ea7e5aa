"""A simulated fleet with a real dealer, through Kafka, a worker and Redis; some of those with a card do not show up."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from producers.clock import system_clock
from producers.simulation.dealing import claims_of
from producers.simulation.fleet import Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from streams.local.demo_report import WindowJournal, audit_window, read_journals, window_entry
from streams.local.process import Child
from streams.store.shape import Shape
from streams.windows.record import decode_estimate
from tests.integration.test_dealer import SURVEY, Dealing
from tests.integration.workers import THAW, System
from tests.support.deadline import BUSY, END_SECONDS, until
from tests.support.stats import assert_normal

pytestmark = pytest.mark.real

DECK, BLOCKS = (20, 2, 38), 4
CARDS = BLOCKS * sum(DECK)
DEVICES, WINDOWS, SEED = CARDS + 30, 3, 5
"""More devices than cards: some answer in no window."""
TEXT = SURVEY.replace('size = "3650d"', 'size = "4s"\nskew = "10m"')


def dealt(folder: Path, window_ms: int) -> dict[bytes, tuple[int, int]]:
    """Return who was dealt which card of which block; the dealer keeps it until the window is over."""
    with sqlite3.connect(f"file:{folder / 'dealer.sqlite'}?mode=ro", uri=True) as file:
        rows = file.execute("SELECT claim, block, card FROM dealt WHERE window_ms = ?", (window_ms,)).fetchall()
    return {claim: (block, card) for claim, block, card in rows}


def test_devices_ask_before_they_answer_and_kills_of_dealer_and_fleet_deal_nothing_twice(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    system = System(kafka, redis_url, topic_prefix, tmp_path, text=TEXT)
    system.create_topics()
    dealing, journal = Dealing(tmp_path), tmp_path / "journal"
    step = system.survey.windows.step_ms
    first_ms = -(-(system_clock() + 8_000) // step) * step
    starts = [first_ms + number * step for number in range(WINDOWS)]
    env = {f"THAW_{name.upper()}": str(getattr(system.settings, name)) for name in ("kafka", "redis", "prefix")}
    fleet = ["fleet", str(tmp_path / "colour.toml"), "--dealer", dealing.url, "--devices", str(DEVICES)]
    fleet += ["--scenario", "churn", "--seed", str(SEED), "--first-window-ms", str(first_ms)]
    fleet += ["--windows", str(WINDOWS), "--journal", str(journal)]

    def start_fleet() -> Child:
        return Child("fleet", [*THAW, *fleet], log=tmp_path / "fleet.log", env=env)

    def counted() -> int:
        return int(system.store.log.counters(system.survey.id).applied)

    with system.worker() as worker:
        running = start_fleet()
        try:
            until(lambda: dealt(tmp_path, starts[1]), 60, "cards of the second window")
            dealing.child.kill()
            seen = dealt(tmp_path, starts[0])
            dealing.start()
            until(counted, 60, "answers")
            os.kill(running.pid, signal.SIGKILL)
            running.wait(END_SECONDS)
            before = dealt(tmp_path, starts[0])
            running = start_fleet()
            assert running.wait(BUSY * 120)
            assert running.returncode == 0, running.tail()
            cards = [dealt(tmp_path, start_ms) for start_ms in starts]
        finally:
            running.kill()
            dealing.child.kill()
        assert {claim: card for claim, card in cards[0].items() if claim in seen} == seen, "after a kill of the dealer"
        assert cards[0] == before, "a fleet that starts again is given the cards that it had"
        journals = read_journals(journal)
        assert [found.window_ms for found in journals] == starts

        def estimated() -> bool:
            worker.check()
            users = [payload and decode_estimate(payload).users for payload in map(read, starts)]
            return users == [int((found.acked[0] >= 0).sum()) for found in journals]

        def read(start_ms: int) -> bytes | None:
            return system.store.estimates.read(system.survey.id, start_ms)

        until(estimated, 60, "estimates of all answers")
    for found, hands in zip(journals, cards, strict=True):
        check_window(system, found, hands)


def check_window(system: System, found: WindowJournal, hands: dict[bytes, tuple[int, int]]) -> None:
    """Every deck was dealt exactly, and the answers that came back were counted once and give the truth."""
    plan = Plan(system.survey, DEVICES, scenario_named("churn"), SEED, falling_shares(2), found.window_ms)
    # Everybody asks; a card that nobody is left for stays away, and so does the card of a no-show.
    assert set(hands) <= set(claims_of(plan, found.window_ms, 0))
    assert len(hands) == CARDS
    for block in range(BLOCKS):
        faces = Counter(card for where, card in hands.values() if where == block)
        assert faces == {face: count for face, count in enumerate(DECK, 1) if count}
    audit = audit_window(system.store, system.survey, found)
    assert (audit.lost, audit.double) == (0, 0)
    tally = system.store.estimates.tally(
        system.survey.id, found.window_ms, system.survey.shards, Shape.of(system.survey)
    )
    assert tally.users.shape == (1, BLOCKS)
    assert all(0 < users < sum(DECK) for users in tally.users[0]), "no-shows in every block"
    payload = system.store.estimates.read(system.survey.id, found.window_ms)
    assert payload is not None
    for row in window_entry(decode_estimate(payload), found.truth())["estimates"]:
        assert_normal(row["estimate"], row["truth"], math.sqrt(row["variance"]))
