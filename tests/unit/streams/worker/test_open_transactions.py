"""Records that wait behind an open transaction: from when on it is told, and what ends it."""

from __future__ import annotations

import logging

import pytest

from streams.kafka.messages import Lag
from streams.store.heartbeats import TRANSACTION_TOLERATED_MS
from streams.worker.heartbeat import heartbeat_of
from streams.worker.open_transactions import OpenTransactions
from streams.worker_metrics import worker_metrics

LATE_MS = TRANSACTION_TOLERATED_MS + 1


def waiting(stable: int, records: int = 3) -> Lag:
    return Lag(0, records, stable)


def test_one_transaction_that_stays_open_is_told_once_with_the_way_to_find_it_and_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    transactions = OpenTransactions("reports")
    assert transactions.look({0: waiting(7), 1: waiting(9), 2: Lag(4, 0, 50)}, 0) == {0: 0.0, 1: 0.0, 2: 0.0}
    assert transactions.look({0: waiting(7), 1: waiting(9), 2: Lag(4, 0, 50)}, LATE_MS)[0] == LATE_MS / 1_000
    [told] = caplog.messages
    assert told.startswith("reports[0,1]: 6 records wait behind a transaction that has been open for 5 s or longer;")
    assert "describe-producers --topic reports --partition 0`, which shows the offset 7;" in told
    transactions.look({0: waiting(7, 90), 1: waiting(9), 2: Lag(4, 0, 50)}, LATE_MS + 1_000)
    assert len(caplog.messages) == 1, "it is not said twice"
    assert transactions.look({0: Lag(3, 0, 97), 1: Lag(0, 0, 12), 2: Lag(4, 0, 50)}, LATE_MS + 2_000)[0] == 0.0
    assert caplog.messages[1:] == ["reports: no record waits behind a transaction any more"]


def test_one_transaction_after_another_is_nothing_to_tell(caplog: pytest.LogCaptureFixture) -> None:
    transactions = OpenTransactions("reports")
    for second in range(60):
        assert transactions.look({0: waiting(second)}, second * 1_000) == {0: 0.0}
    assert caplog.messages == []


def test_a_partition_that_goes_elsewhere_and_comes_back_is_measured_and_told_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transactions = OpenTransactions("reports")
    for now_ms in (0, LATE_MS):
        transactions.look({0: waiting(7)}, now_ms)
    transactions.forget(0)
    assert transactions.look({0: waiting(7)}, 2 * LATE_MS) == {0: 0.0}
    transactions.look({0: waiting(7)}, 3 * LATE_MS)
    assert len(caplog.messages) == 2


def test_a_partition_without_news_keeps_what_was_told(caplog: pytest.LogCaptureFixture) -> None:
    """Right after a rebalance the end of a partition is unknown."""
    transactions = OpenTransactions("reports")
    for now_ms in (0, LATE_MS):
        transactions.look({0: waiting(7)}, now_ms)
    transactions.look({}, LATE_MS + 1_000)
    transactions.look({0: waiting(7)}, LATE_MS + 2_000)
    assert len(caplog.messages) == 1


def test_a_heartbeat_has_the_sum_of_the_records_and_the_oldest_transaction() -> None:
    metrics = worker_metrics()
    assert heartbeat_of("a", metrics, 0).transaction_open_seconds is None
    for partition, records, seconds in (("0", 3, 1.5), ("1", 4, 9.0)):
        metrics.uncommitted.labels(partition).set(records)
        metrics.transaction_seconds.labels(partition).set(seconds)
    beat = heartbeat_of("a", metrics, 0)
    assert (beat.uncommitted_records, beat.transaction_open_seconds) == (7, 9.0)
