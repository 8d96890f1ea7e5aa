"""The metrics of one gateway process, made from the table of all metrics."""

from __future__ import annotations

import math
import ssl
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from streams.gateway.limits import Memory
from streams.metrics import TABLE

REFUSED = ("credential", "tls", "type", "large", "path", "survey", "expired", "length", "fault")
"""Reasons that are exported from the start, at 0; others appear when they happen."""
POSTPONED = ("busy", "broker", "rate", "slow", "stopping")
_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)


class Watched(Protocol):
    """What the gateway knows of the broker."""

    up: float

    def offset_ms(self) -> int | None:
        """Return how far its clock is ahead; None if unknown."""
        ...


class GatewayMetrics:
    """The metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.reports = self._counter("thaw_gateway_reports_total")
        self.requests = self._counter("thaw_gateway_requests_total")
        self.refused = self._counter("thaw_gateway_refused_total")
        self.postponed = self._counter("thaw_gateway_postponed_total")
        for reason in REFUSED:
            self.refused.labels(reason)
        for reason in POSTPONED:
            self.postponed.labels(reason)
        self.batch_requests = Histogram(
            "thaw_gateway_batch_requests",
            TABLE["thaw_gateway_batch_requests"].help,
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._held = self._gauge("thaw_gateway_held_bytes")
        self._limit = self._gauge("thaw_gateway_held_limit_bytes")
        self._up = self._gauge("thaw_gateway_kafka_up")
        self._offset = self._gauge("thaw_gateway_clock_offset_seconds")

    def watch(self, broker: Watched, memory: Memory) -> None:
        """Read these at every scrape."""

        def offset() -> float:
            offset_ms = broker.offset_ms()
            return math.nan if offset_ms is None else offset_ms / 1_000

        self._held.set_function(lambda: memory.held_bytes)
        self._limit.set(memory.limit_bytes)
        self._up.set_function(lambda: broker.up)
        self._offset.set_function(offset)

    def watch_handshakes(self, context: ssl.SSLContext) -> None:
        """Count clients with which this context does not agree: their connection is closed without an answer."""
        failed = self.refused.labels("tls")

        class Counted(ssl.SSLObject):
            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError:
                    failed.inc()
                    raise

        context.sslobject_class = Counted

    def _counter(self, name: str) -> Counter:
        row = TABLE[name]
        return Counter(name.removesuffix("_total"), row.help, row.labels, registry=self.registry)

    def _gauge(self, name: str) -> Gauge:
        return Gauge(name, TABLE[name].help, registry=self.registry)
