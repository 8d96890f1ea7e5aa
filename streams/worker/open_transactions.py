"""Tells that a partition cannot be read to its end since a producer keeps a transaction open."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from streams.kafka.messages import Lag
from streams.store.heartbeats import TRANSACTION_TOLERATED_MS

logger = logging.getLogger(__name__)


class OpenTransactions:
    """Measures for how long the end of readable records has stood still in front of others. Tells it once, and its end.

    Args:
        topic: whose partitions these are.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._since: dict[int, tuple[int, int]] = {}
        self._told: set[int] = set()

    def look(self, lags: Mapping[int, Lag], now_ms: int) -> dict[int, float]:
        """Return by partition for how many seconds its first open transaction has been seen; 0 without one."""
        seconds = {}
        for partition, lag in lags.items():
            stable, since_ms = self._since.get(partition, (-1, now_ms))
            if not lag.uncommitted or lag.stable != stable:
                since_ms = now_ms
            self._since[partition] = (lag.stable, since_ms)
            seconds[partition] = max(0, now_ms - since_ms) / 1_000
        self._tell(lags, seconds)
        return seconds

    def forget(self, partition: int) -> None:
        """Take note of a partition that went elsewhere."""
        self._since.pop(partition, None)
        self._told.discard(partition)

    def _tell(self, lags: Mapping[int, Lag], seconds: Mapping[int, float]) -> None:
        held = [partition for partition, age in sorted(seconds.items()) if age * 1_000 > TRANSACTION_TOLERATED_MS]
        if not self._told.issuperset(held):
            logger.warning(
                "%s[%s]: %d records wait behind a transaction that has been open for %.0f s or longer; nothing from "
                "its first record on is counted before it ends; find its producer with `kafka-transactions.sh "
                "--bootstrap-server HOST:PORT describe-producers --topic %s --partition %d`, which shows the offset "
                "%d; the runbook ThawTransactionOpen says how to end it",
                self._topic,
                ",".join(map(str, held)),
                sum(lags[partition].uncommitted for partition in held),
                min(seconds[partition] for partition in held),
                self._topic,
                held[0],
                lags[held[0]].stable,
            )
        elif self._told and not held and self._told <= seconds.keys():
            logger.warning("%s: no record waits behind a transaction any more", self._topic)
        self._told = set(held) | (self._told - seconds.keys())
