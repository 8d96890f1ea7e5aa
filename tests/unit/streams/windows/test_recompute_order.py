"""In which order queued windows are recomputed: what people look at never waits behind thousands of old windows."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from producers.survey.survey import Survey
from producers.survey.windows import Windows
from streams.kafka.messages import Outgoing
from streams.windows import recompute
from streams.windows.counted import ReportsTopic
from streams.windows.latency import Latencies
from streams.windows.recompute import IDLE_SHARE, OLD_SHARE, Recomputer
from streams.windows.settled import CURRENT_STEPS
from streams.worker.applier import Applier
from streams.worker.table import Table
from streams.worker_metrics import worker_metrics
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.reports import TOPIC, Report, SurveyDict, batch_of, frame_of, token_in
from tests.support.surveys import WEEK, WINDOW_MS, survey

COLOUR = survey(retention='retention = "30d"')
ESTIMATE_MS = 37


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(WEEK + 1_000)


class Fixture:
    """A recomputer for which every estimate takes ESTIMATE_MS; notes what was published, in order."""

    def __init__(
        self,
        clock: ManualClock,
        *surveys: Survey,
        latencies: Latencies | None = None,
        store: MemoryStore | None = None,
    ) -> None:
        self.clock, self.store, self.metrics = clock, store or MemoryStore(clock), worker_metrics()
        self.messages: list[str] = []
        self.ticks: list[int] = []
        """How many windows were published at once, by tick."""
        self.during: Callable[[], None] = lambda: None
        self.recomputer = Recomputer(
            FaultyStore(self.store, self._look),
            SurveyDict(*surveys),
            self._publish,
            "estimates",
            ReportsTopic(TOPIC, 8),
            fold=Table.of_log,
            clock=clock,
            metrics=self.metrics,
            latencies=latencies,
        )

    def _look(self, method: str, when: str) -> bool:
        if (method, when) == ("estimates.save", "before"):
            self.clock.advance(ESTIMATE_MS)
            self.during()
        return False

    def _publish(self, messages: Sequence[Outgoing]) -> None:
        self.ticks += [len(messages)] if messages else []
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


def test_a_tick_ends_in_time_and_those_that_have_waited_longest_come_first_in_the_next(clock: ManualClock) -> None:
    survey = replace(COLOUR, windows=Windows(40 * WINDOW_MS, WINDOW_MS))
    fixture = Fixture(clock, survey)
    many = [(survey.id, WEEK - step * WINDOW_MS) for step in range(40)]
    taken = []
    for _ in range(5):
        # All of them change all the time.
        fixture.store.queue.put(many)
        before_ms = clock()
        fixture.recomputer.tick(old_ms=500, current_ms=8 * ESTIMATE_MS)
        assert clock() - before_ms == 8 * ESTIMATE_MS
        clock.advance(1)
        taken.append(fixture.taken())
    assert taken == [list(range(first, first + 8)) for first in range(0, 40, 8)]
    delay = fixture.metrics.registry.get_sample_value("thaw_worker_recompute_delay_seconds")
    assert delay == pytest.approx((4 * (8 * ESTIMATE_MS + 1) + 7 * ESTIMATE_MS) / 1_000)


def test_two_workers_share_what_is_overdue(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recompute, "REREAD_MS", 0)
    survey = replace(COLOUR, windows=Windows(40 * WINDOW_MS, WINDOW_MS))
    mine = Fixture(clock, survey)
    other = Fixture(clock, survey, store=mine.store)
    mine.store.queue.put([(survey.id, WEEK - step * WINDOW_MS) for step in range(40)])

    def tick_beside() -> None:
        other.recomputer.tick(current_ms=0)

    # The other one ticks while each of these estimates is computed: what is locked is passed over.
    mine.during = tick_beside
    mine.recomputer.tick(current_ms=10_000)
    done = mine.taken(), other.taken()
    assert sorted(done[0] + done[1]) == list(range(40))
    assert len(done[0]) == len(done[1]) == 20


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
        ReportsTopic(TOPIC, 8),
        fold=Table.of_log,
        clock=clock,
    )
    fixture.recomputer.tick()
    assert order == [today, old_windows(1)[0][1]]


@pytest.mark.parametrize(("busy", "share"), [(True, OLD_SHARE), (False, IDLE_SHARE)])
def test_the_thread_gives_old_windows_half_of_each_tick_and_more_while_nothing_is_counted(
    clock: ManualClock, busy: bool, share: float
) -> None:
    latencies, stop = Latencies(), threading.Event()
    fixture = Fixture(clock, COLOUR, latencies=latencies)
    fixture.store.queue.put(old_windows(200))

    def during() -> None:
        if busy:
            latencies.applied((COLOUR.id, WEEK), [(clock(), 1)], clock())
        if len(fixture.messages) > 40:
            stop.set()

    fixture.during = during
    fixture.recomputer.run(stop, 0.2)
    # The first tick does not know yet, the last one is stopped. A thread without a bound would do all 200 at once.
    assert set(fixture.ticks[1:-1]) == {-(-round(200 * share) // ESTIMATE_MS)}


def test_old_windows_whose_estimate_is_that_of_their_counts_cost_no_estimate_after_a_restart(
    clock: ManualClock,
) -> None:
    fixture = Fixture(clock, COLOUR)
    windows = old_windows(30)
    for survey_id, window_ms in windows:
        count_one(fixture.store, survey_id, window_ms, user=1)
    while fixture.store.queue.entries():
        fixture.recomputer.tick()
    before = fixture.store.estimates.read_many(windows)
    estimates = []
    fixture.during = lambda: estimates.append(clock())
    fixture.messages.clear()
    fixture.store.restore(fixture.store.snapshot())
    for survey_id, window_ms in (windows[11], windows[29]):
        count_one(fixture.store, survey_id, window_ms, user=2)

    # Thirty estimates would take two ticks and more; what is left to compute fits into one.
    fixture.recomputer.tick(old_ms=3 * ESTIMATE_MS)
    assert len(estimates) == 2
    assert len(fixture.messages) == 30, "all are published: the worker that stored one may not have done that"
    after = fixture.store.estimates.read_many(windows)
    assert [place for place in range(30) if before[place] != after[place]] == [11, 29]
    assert fixture.store.queue.entries() == []


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"lifetime": "lifetime = 100\n[estimate]\nalpha = 0.1"}, id="alpha"),
        pytest.param({"lifetime": 'lifetime = 100\n[[alert]]\nvalue = "red"\nabove = 0.5'}, id="a new alert"),
    ],
)
def test_an_old_window_is_computed_again_if_its_survey_says_something_else(
    clock: ManualClock, change: dict[str, str]
) -> None:
    fixture = Fixture(clock, COLOUR)
    [window] = old_windows(1)
    count_one(fixture.store, *window, user=1)
    fixture.recomputer.tick()
    other = survey(retention='retention = "30d"', **change)
    assert other.id == COLOUR.id
    before = fixture.store.estimates.read(*window)
    for surveys, is_kept in ((COLOUR, True), (other, False)):
        fixture.store.queue.put([window])
        clock.advance(1)
        recomputer = Recomputer(
            fixture.store,
            SurveyDict(surveys),
            lambda _: None,
            "estimates",
            ReportsTopic(TOPIC, 8),
            fold=Table.of_log,
            clock=clock,
        )
        assert recomputer.tick() == 1
        assert (fixture.store.estimates.read(*window) == before) is is_kept


def count_one(store: MemoryStore, survey_id: str, window_ms: int, *, user: int) -> None:
    """Count one report of a user in shard 1, which is in partition 1."""
    assert survey_id == COLOUR.id
    applier = Applier(store, SurveyDict(COLOUR), lambda _: None, partitions=8, clock=store.now_ms)
    start = store.log.offsets(TOPIC, 1, [1])[1]
    applier.assigned(TOPIC, {1: start})
    frame = frame_of(COLOUR, [Report(token_in(1, user, COLOUR), 0, b"\1")], window_ms=window_ms)
    applied = applier.process([batch_of(frame, partition=1, start=start, timestamp_ms=window_ms + WINDOW_MS)])
    assert applied.counters.applied == 1
