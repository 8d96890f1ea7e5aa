"""The metrics of the gateway: a part of the table in `streams.metrics`, and what a row of that table is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["gauge", "counter", "histogram"]
Process = Literal["exporter", "worker", "dealer", "gateway"]


@dataclass(frozen=True)
class Metric:
    """One row: full name, kind, labels, help; `process` is the one that exports it."""

    process: Process
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


def _row(name: str, kind: Kind, labels: tuple[str, ...], text: str) -> Metric:
    return Metric("gateway", f"thaw_gateway_{name}", kind, labels, text)


GATEWAY: tuple[Metric, ...] = (
    _row("reports_total", "counter", ("survey",), "Reports that a broker has acknowledged and the gateway confirmed."),
    _row("requests_total", "counter", (), "Requests with frames that were confirmed."),
    _row(
        "refused_total",
        "counter",
        ("reason",),
        "Requests that were refused, by reason; of frames the answer says which must not be sent again, and which may "
        "be taken later. tls: a client without a certificate that the gateway asks for, or with a wrong one.",
    ),
    _row(
        "postponed_total",
        "counter",
        ("reason",),
        "Requests with frames that were told to come again: busy (memory), broker, rate, slow (the body), stopping.",
    ),
    _row("held_bytes", "gauge", (), "Bytes of requests in memory: being read, held to be mixed, or on their way."),
    _row("held_limit_bytes", "gauge", (), "Bytes at which further requests are told to come again."),
    _row(
        "batch_requests",
        "histogram",
        (),
        "Requests whose reports were mixed into one batch. A batch of one request hides nobody among others.",
    ),
    _row("kafka_up", "gauge", (), "1 if a broker acknowledged, or answered, when it was last used; NaN before that."),
    _row("clock_offset_seconds", "gauge", (), "How far the broker's clock is ahead of the gateway's; NaN if unknown."),
)
