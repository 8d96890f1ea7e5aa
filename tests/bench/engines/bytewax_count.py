"""python -m tests.bench.engines.bytewax_count KAFKA TOPIC MESSAGES FOLDER: the counting job in bytewax."""

from __future__ import annotations

import sys
from typing import Any

import bytewax.operators as op
from bytewax.connectors.kafka import KafkaSource
from bytewax.dataflow import Dataflow
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.testing import run_main

from tests.bench.engines.job import Counted, reports_of

_Answer = tuple[int, int]


class _Tally(StatelessSinkPartition):  # type: ignore[misc]  # untyped here
    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    def write_batch(self, items: list[Any]) -> None:
        for _, (old, new) in items:
            self._counted.replace(old, new)


class _Sink(DynamicSink):  # type: ignore[misc]  # untyped here
    def __init__(self, counted: Counted) -> None:
        self._counted = counted

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> _Tally:
        return _Tally(self._counted)


def main(kafka: str, topic: str, _messages: str, _folder: str) -> None:
    """Count the topic to its end."""
    counted = Counted()

    def expand(message: Any) -> list[tuple[str, _Answer]]:
        counted.begin()
        return [(token.hex(), (rung, answer)) for token, rung, answer in reports_of(message.value)]

    def highest(held: _Answer | None, report: _Answer) -> tuple[_Answer, tuple[_Answer | None, _Answer]]:
        return (report if held is None else max(held, report)), (held, report)

    flow = Dataflow("count")
    messages = op.input("messages", flow, KafkaSource([kafka], [topic], tail=False, batch_size=100))
    reports = op.flat_map("reports", messages, expand)
    changes = op.stateful_map("highest", reports, highest)
    op.output("tally", changes, _Sink(counted))
    run_main(flow)
    counted.print()


if __name__ == "__main__":
    main(*sys.argv[1:])
