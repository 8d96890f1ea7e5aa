"""In which order queued windows are recomputed: what people look at never waits behind thousands of old windows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from producers.survey.survey import Survey
from streams.kafka.messages import Outgoing
from streams.windows.recompute import Recomputer
from streams.windows.settled import CURRENT_STEPS
from streams.worker.table import Table
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.reports import SurveyDict
from tests.support.surveys import WEEK, WINDOW_MS, survey

COLOUR = survey(retention='retention = "30d"')
ESTIMATE_MS = 37


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(WEEK + 1_000)


class Fixture:
    """A recomputer for which every estimate takes ESTIMATE_MS; notes what was published, in order."""

    def __init__(self, clock: ManualClock, *surveys: Survey) -> None:
        self.clock, self.store = clock, MemoryStore(clock)
        self.messages: list[str] = []
        self.during: Callable[[], None] = lambda: None
        self.recomputer = Recomputer(
            FaultyStore(self.store, self._look),
            SurveyDict(*surveys),
            self._publish,
            "estimates",
            fold=Table.of_log,
            clock=clock,
        )

    def _look(self, method: str, when: str) -> bool:
        if (method, when) == ("estimates.tally", "before"):
            self.clock.advance(ESTIMATE_MS)
            self.during()
        return False

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        self.messages += [(message.key or b"").decode().rpartition(":")[2] for message in messages]

    def taken(self) -> list[int]:
        """Return how many windows ago those published since the last call started."""
        steps = [(WEEK - int(start)) // WINDOW_MS for start in self.messages]
        self.messages = []
        return steps


def old_windows(count: int) -> list[tuple[str, int]]:
    return [(COLOUR.id, WEEK - (CURRENT_STEPS + 2 + step) * WINDOW_MS) for step in range(count)]


def test_current_windows_come_first_and_newest_first(clock: ManualClock) -> None:
    fixture = Fixture(clock, COLOUR)
    fixture.store.queue.put(old_windows(3_000))
    clock.advance(1)
    fixture.store.queue.put([(COLOUR.id, WEEK - 2 * WINDOW_MS), (COLOUR.id, WEEK), (COLOUR.id, WEEK - WINDOW_MS)])
    before_ms = clock()
    fixture.recomputer.tick(old_ms=500)
    assert fixture.taken()[:5] == [0, 1, 2, 8, 9]
    assert clock() - before_ms <= 3 * ESTIMATE_MS + 500 + ESTIMATE_MS, "old ones have a bounded share"


def test_a_window_that_changes_while_old_ones_are_done_waits_for_one_tick_only(clock: ManualClock) -> None:
    fixture = Fixture(clock, COLOUR)
    fixture.store.queue.put(old_windows(3_000))
    for _ in range(5):
        fixture.store.queue.put([(COLOUR.id, WEEK)])
        fixture.recomputer.tick(old_ms=500)
        taken = fixture.taken()
        assert taken[0] == 0
        assert 500 // ESTIMATE_MS <= len(taken) - 1 <= 500 // ESTIMATE_MS + 1


def test_every_old_window_has_its_turn_although_newer_ones_are_queued_again_and_again(clock: ManualClock) -> None:
    fixture = Fixture(clock, COLOUR)
    fixture.store.queue.put(old_windows(40))
    seen: set[int] = set()
    for _ in range(20):
        # More than a tick can do, newer than all the others.
        clock.advance(60_000)
        fixture.store.queue.put(old_windows(20))
        fixture.recomputer.tick(old_ms=500)
        seen.update(fixture.taken())
    assert {CURRENT_STEPS + 2 + step for step in range(40)} <= seen


def test_a_tick_does_at_least_one_old_window(clock: ManualClock) -> None:
    fixture = Fixture(clock, COLOUR)
    fixture.store.queue.put(old_windows(3))
    fixture.recomputer.tick(old_ms=0)
    assert len(fixture.taken()) == 1


def test_what_is_current_is_counted_in_the_surveys_own_steps(clock: ManualClock) -> None:
    """A day that began ten hours ago is open, a minute that ended ten minutes ago is old."""
    days = survey(name='name = "days"', size='size = "1d"', retention='retention = "30d"')
    fixture = Fixture(clock, COLOUR, days)
    today = days.windows.latest(clock())
    fixture.store.queue.put([*old_windows(1), (days.id, today)])
    order: list[int] = []
    fixture.recomputer = Recomputer(
        fixture.store,
        SurveyDict(COLOUR, days),
        lambda messages: order.extend(int((m.key or b"").decode().rpartition(":")[2]) for m in messages),
        "estimates",
        fold=Table.of_log,
        clock=clock,
    )
    fixture.recomputer.tick()
    assert order == [today, old_windows(1)[0][1]]


def test_the_thread_gives_old_windows_half_of_each_tick(clock: ManualClock) -> None:
    fixture = Fixture(clock, COLOUR)
    fixture.store.queue.put(old_windows(200))
    stop = threading.Event()
    fixture.during = lambda: stop.set() if len(fixture.messages) > 40 else None
    fixture.recomputer.run(stop, 0.2)
    # 100 ms of the manual clock are three estimates; a thread without a bound would do all 200 in its first tick.
    assert 40 < len(fixture.messages) < 60
