"""What the handler tells beside counting: lag in seconds, records that were deleted unread, a clock that is off."""

import math
from collections.abc import Mapping, Sequence

import pytest

from streams.kafka import messages
from streams.kafka.messages import FetchBatch
from streams.kafka.topic_state import TopicState
from streams.windows.latency import Latencies
from streams.windows.settled import counted_until_ms, released_ms, settles_ms, window_state
from streams.worker.applier import Applied, Applier
from streams.worker.handler import BatchHandler, DeletedUnread
from streams.worker.heartbeat import heartbeat_of
from streams.worker.lag_age import UNWATCHED_MS
from streams.worker_metrics import worker_metrics
from tests.support.applier import Bench, batches_of, report
from tests.support.clock import ManualClock
from tests.support.exporter import record_of
from tests.support.reports import CATEGORICAL, NOW_MS, TOPIC
from tests.support.surveys import survey


class Lag:
    """A handler on a store in memory, and the lag that its metrics show for partition 0."""

    def __init__(self) -> None:
        self.metrics, self.clock = worker_metrics(), ManualClock(NOW_MS)
        self.bench = Bench()
        self.handler = BatchHandler(TOPIC, self.bench.applier, self.metrics, Latencies(), clock=self.clock)
        self.handler.start_at({0: 0})

    def after(self, lag: int, now_ms: int) -> float | None:
        self.clock.advance(now_ms - self.clock())
        self.handler.watch_lag({0: messages.Lag(lag, 0)}, now_ms)
        return self.shown()

    def shown(self) -> float | None:
        value = self.metrics.registry.get_sample_value("thaw_worker_lag_seconds", {"partition": "0"})
        return None if value is None or math.isnan(value) else value


def test_nothing_is_said_before_the_end_of_the_partition_is_known() -> None:
    lag = Lag()
    assert lag.shown() is None
    assert heartbeat_of("one", lag.metrics, lag.clock()).lag_seconds is None


def test_a_partition_at_which_nobody_could_look_since_its_assignment_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store refuses the very first check, before anybody looked: the time since the assignment is what is known."""
    lag = Lag()
    seen: list[float | None] = []

    def waiting(_applier: Applier) -> None:
        for _ in range(3):
            lag.clock.advance(10_000)
            seen.append(lag.shown())
        assert heartbeat_of("one", lag.metrics, lag.clock()).lag_seconds == 30.0

    monkeypatch.setattr(Applier, "verify", waiting)
    lag.handler.verify()
    assert seen == [10.0, 20.0, 30.0]
    assert lag.after(0, lag.clock()) == 0.0


def test_a_partition_whose_start_the_store_holds_up_grows_old(monkeypatch: pytest.MonkeyPatch) -> None:
    lag = Lag()
    other = {"partition": "1"}
    seen: list[float | None] = []

    def waiting(_applier: Applier, _topic: str, committed: Mapping[int, int | None]) -> dict[int, int]:
        lag.clock.advance(20_000)
        seen.append(lag.metrics.registry.get_sample_value("thaw_worker_lag_seconds", other))
        return {partition: offset or 0 for partition, offset in committed.items()}

    monkeypatch.setattr(Applier, "assigned", waiting)
    lag.handler.start_at({0: 0, 1: 0})
    assert seen == [20.0]


def test_before_the_first_record_the_time_since_the_assignment_counts() -> None:
    lag = Lag()
    assert [lag.after(7, NOW_MS + age_ms) for age_ms in (0, 1_000, 4_000)] == [0.0, 1.0, 4.0]


def test_unread_records_are_younger_than_the_last_one_read() -> None:
    lag = Lag()
    lag.after(7, NOW_MS + 60_000)
    # The broker's time of this record is NOW_MS, a minute before the partition was assigned.
    lag.handler.handle(batches_of(CATEGORICAL, [report()]))
    assert lag.after(3, NOW_MS + 61_000) == 61.0
    assert lag.after(0, NOW_MS + 62_000) == 0.0


def test_a_record_after_a_long_silence_is_not_late() -> None:
    lag = Lag()
    lag.handler.handle(batches_of(CATEGORICAL, [report()]))
    assert lag.after(0, NOW_MS + 3_600_000) == 0.0
    assert lag.after(5, NOW_MS + 3_601_000) == 1.0


def test_records_in_hand_grow_older_while_the_store_does_not_take_them(monkeypatch: pytest.MonkeyPatch) -> None:
    lag, process = Lag(), Applier.process
    assert lag.after(0, NOW_MS + 2_000) == 0.0
    seen: list[float | None] = []

    def waiting(applier: Applier, batches: Sequence[FetchBatch]) -> Applied:
        """The thread that counts waits here; nobody watches the lag meanwhile."""
        for _ in range(3):
            lag.clock.advance(10_000)
            seen.append(lag.shown())
        return process(applier, batches)

    monkeypatch.setattr(Applier, "process", waiting)
    lag.handler.handle(batches_of(CATEGORICAL, [report()]))
    assert seen == [10.0, 20.0, 30.0], "since the last moment at which there was none"
    assert lag.shown() == 0.0


def test_unread_records_grow_older_while_the_check_of_the_store_waits_with_nothing_in_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What comes meanwhile is not read, so no window may be called settled."""
    lag, known = Lag(), survey()
    assert lag.after(0, NOW_MS + 2_000) == 0.0
    record = record_of(known, known.windows.latest(NOW_MS), [0.5, 0.3, 0.2])
    settled_ms = settles_ms(known, record.window_start_ms)
    lag.after(0, max(lag.clock(), released_ms(known, record.window_start_ms) - 20_000))
    seen: list[float | None] = []

    def waiting(_applier: Applier) -> None:
        for _ in range(3):
            lag.clock.advance(10_000)
            seen.append(lag.shown())

    def state() -> str:
        now_ms = lag.clock()
        beat = heartbeat_of("one", lag.metrics, now_ms)
        return window_state(known, record, now_ms, counted_until_ms([known], [beat], [], None, now_ms))

    monkeypatch.setattr(Applier, "verify", waiting)
    lag.handler.verify()
    assert seen == [10.0, 20.0, 30.0], "since the last look"
    assert lag.clock() > settled_ms
    assert state() == "waiting"
    assert lag.after(0, lag.clock()) == 0.0
    assert state() == "settled"


def test_unread_records_grow_older_while_nobody_knows_how_many_there_are() -> None:
    lag = Lag()
    assert lag.after(0, NOW_MS) == 0.0
    for age in range(20):
        lag.clock.advance(1_000)
        lag.handler.watch_lag({}, lag.clock())
        assert lag.shown() == (0.0 if (age + 1) * 1_000 <= UNWATCHED_MS else age + 1)
    assert lag.after(2, lag.clock()) == 20.0
    assert lag.after(0, lag.clock()) == 0.0


def test_a_partition_that_went_elsewhere_has_no_lag_here() -> None:
    lag = Lag()
    lag.after(5, NOW_MS)
    lag.handler.start_at({1: 0})
    assert lag.shown() is None


def state_of(first: int = 0, end: int = 10, asked_ms: int = 0) -> TopicState:
    return TopicState("cluster", "topic", 1, True, {0: first}, {0: end}, 0, asked_ms)


def test_deleted_records_are_counted_once_whoever_notices(caplog: pytest.LogCaptureFixture) -> None:
    metrics = worker_metrics()
    deleted = DeletedUnread("reports", metrics)
    deleted.assigned(set())
    for _ in range(2):
        deleted.up_to(0, 5, 9)  # by the watch
    deleted.up_to(0, 5, 11)  # by reading, later
    deleted.up_to(0, 20, 11)
    assert metrics.registry.get_sample_value("thaw_worker_deleted_unread_records_total") == 6
    assert [message.split(";")[0] for message in caplog.messages] == [
        "reports[0]: records 5 to 8 were deleted unread and are not counted",
        "reports[0]: records 9 to 10 were deleted unread and are not counted",
    ]


def test_a_partition_that_was_never_read_has_lost_nothing_until_it_is_read() -> None:
    metrics = worker_metrics()
    deleted = DeletedUnread("reports", metrics)
    deleted.assigned({0})
    deleted.up_to(0, 0, 9)
    assert metrics.registry.get_sample_value("thaw_worker_deleted_unread_records_total") == 0
    deleted.up_to(0, 12, 9)
    deleted.up_to(0, 12, 15)
    assert metrics.registry.get_sample_value("thaw_worker_deleted_unread_records_total") == 3


@pytest.mark.parametrize("days", [-3, 3])
def test_a_clock_that_is_days_off_is_reported_once(days: int, caplog: pytest.LogCaptureFixture) -> None:
    bench = Lag()
    here_ms = bench.clock()
    broker_ms = here_ms - days * 86_400_000
    bench.handler.topic_looked_at(state_of(end=0, asked_ms=here_ms))
    for offset in range(2):
        bench.handler.handle([FetchBatch(TOPIC, 0, offset, offset + 1, [messages.Record(offset, broker_ms, b"")])])
    found = bench.metrics.registry.get_sample_value("thaw_worker_clock_offset_seconds")
    assert found == pytest.approx(days * 86_400, abs=60)
    assert len([line for line in caplog.messages if "the clock of this worker" in line]) == 1
    bench.handler.handle([FetchBatch(TOPIC, 0, 2, 3, [messages.Record(2, here_ms, b"")])])
    assert "agrees with the broker's again" in caplog.text


@pytest.mark.parametrize("days", [-1, 1])
def test_lag_is_told_by_the_brokers_time_while_the_clock_here_is_a_day_off(days: int) -> None:
    lag = Lag()
    asked_ms = NOW_MS + 1_000
    broker_ms = asked_ms - days * 86_400_000
    lag.after(0, asked_ms)

    def read(offset: int, record_ms: int) -> None:
        record = messages.Record(offset, record_ms, b"")
        lag.handler.handle([FetchBatch(TOPIC, 0, offset, offset + 1, [record])])

    lag.handler.topic_looked_at(state_of(end=0, asked_ms=asked_ms))
    read(0, broker_ms)
    assert lag.after(7, asked_ms + 40_000) == pytest.approx(40.0, abs=1)
    assert lag.after(0, asked_ms + 41_000) == 0.0
    assert lag.after(1, asked_ms + 43_000) == pytest.approx(2.0, abs=1)
