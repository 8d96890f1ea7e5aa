"""The handler's lag in seconds: how old the oldest unread record of a partition can be."""

from streams.kafka import messages
from streams.windows.latency import Latencies
from streams.worker.handler import BatchHandler
from streams.worker_metrics import worker_metrics
from tests.support.applier import Bench, batches_of, report
from tests.support.reports import CATEGORICAL, NOW_MS, TOPIC


class Lag:
    """A handler on a store in memory, and the lag that its metrics show for partition 0."""

    def __init__(self) -> None:
        self.metrics = worker_metrics()
        self.handler = BatchHandler(TOPIC, Bench().applier, self.metrics, Latencies())
        self.handler.start_at({0: 0})

    def after(self, lag: int, now_ms: int) -> float | None:
        self.handler.watch_lag({0: messages.Lag(lag, 0)}, now_ms)
        return self.shown()

    def shown(self) -> float | None:
        return self.metrics.registry.get_sample_value("thaw_worker_lag_seconds", {"partition": "0"})


def test_nothing_is_said_before_the_end_of_the_partition_is_known() -> None:
    assert Lag().shown() is None


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


def test_a_partition_that_went_elsewhere_has_no_lag_here() -> None:
    lag = Lag()
    lag.after(5, NOW_MS)
    lag.handler.start_at({1: 0})
    assert lag.shown() is None
