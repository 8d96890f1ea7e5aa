"""What `thaw topics migrate` says about a topic that is being drained."""

from __future__ import annotations

from streams.cli.terminal.migration import as_data, obstacles, sentences, steps
from streams.kafka.migration import Draining
from streams.kafka.topic_state import TopicState
from streams.settings import Settings

HOUR_MS = 3_600_000
NOW_MS = 1_790_000_000_000


def draining(*, waiting: int = 0, ago_ms: int | None = 2 * HOUR_MS, readers: tuple[str, ...] = ()) -> Draining:
    newest_ms = 0 if ago_ms is None else NOW_MS - ago_ms
    return Draining("old", TopicState("c", "t", 2, True, {}, {}, newest_ms, NOW_MS), waiting, readers)


def test_a_topic_is_drained_when_all_is_counted_and_nothing_came_for_a_while() -> None:
    assert obstacles(draining(), HOUR_MS, finishing=True) == []
    assert sentences(draining(), HOUR_MS) == ["old: 0 records wait, the last one came 2h ago", "no worker reads it"]
    assert "none ever came" in sentences(draining(ago_ms=None), HOUR_MS)[0]
    assert as_data(draining(ago_ms=None), HOUR_MS) == {
        "topic": "old",
        "waiting": 0,
        "newest_ms": None,
        "readers": [],
        "drained": True,
    }


def test_what_stands_against_the_end_is_named_with_the_remedy() -> None:
    busy = draining(waiting=1_234, ago_ms=1_000, readers=("worker-0", "worker-1"))
    assert obstacles(busy, HOUR_MS, finishing=True) == [
        "1,234 records are not counted yet: workers with THAW_DRAINING must run",
        "something still sends to it: a record came within the last 1h (--quiet)",
        "worker-0, worker-1 still read it: restart them without THAW_DRAINING",
    ]
    assert obstacles(draining(readers=("worker-0",)), HOUR_MS, finishing=False) == [], "workers must read it until then"


def test_the_steps_name_the_variables() -> None:
    text = "\n".join(steps(Settings(), 16))
    assert "THAW_REPORTS=thaw.reports.v1.p16 THAW_PARTITIONS=16 THAW_DRAINING=thaw.reports.v1" in text
