"""Recomputation without a leader: the queue, locks, crashes between any two steps."""

import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest

from estimators.estimates import Estimates
from estimators.estimation.registry import estimator_of
from estimators.exact.randomness import SeededBits
from estimators.mechanisms.registry import randomizer_of
from estimators.tally import Tally
from producers.survey.survey import Survey
from producers.wire.frames import Reports, encode
from producers.wire.shards import shards_of, shards_of_partition
from streams.kafka.messages import FetchBatch, Outgoing, PublishError, Record
from streams.store.contract import NO_STAMP, Store
from streams.store.shape import Shape
from streams.store.shard_counts import ShardCounts
from streams.windows.counted import ReportsTopic
from streams.windows.latency import Latencies
from streams.windows.published import Publish
from streams.windows.recompute import LOCK_MS, Recomputer
from streams.windows.record import decode_estimate
from streams.worker.applier import Applier
from streams.worker.fold import DeadLetter
from streams.worker.table import Table
from streams.worker_metrics import WorkerMetrics, worker_metrics
from tests.support.clock import ManualClock
from tests.support.faulty_store import FaultyStore
from tests.support.memory_store import MemoryStore
from tests.support.surveys import INDEPENDENT, WEEK, survey

PARTITIONS = 4


class Known:
    """Surveys that are simply there."""

    def __init__(self, *surveys: Survey) -> None:
        self._surveys = surveys

    def surveys(self, now_ms: int) -> Sequence[Survey]:  # noqa: ARG002
        return self._surveys

    def get(self, digest: bytes, now_ms: int) -> Survey | None:  # noqa: ARG002
        return next((found for found in self._surveys if found.digest == digest), None)


def fill(store: MemoryStore, known: Survey, clock: ManualClock, devices: int, window_ms: int, *, seed: int = 1) -> None:
    """Let devices answer on mixed rungs, through the applier."""
    rng = np.random.default_rng(seed)
    values = [
        known.mechanism.labels[i] for i in rng.choice(len(known.mechanism.labels), size=devices, p=[0.6, 0.3, 0.1])
    ]
    bits = SeededBits(seed)
    randomizer = randomizer_of(known.mechanism)
    drawn = randomizer.draw(randomizer.encode(values, bits), bits)
    tokens = rng.integers(0, 256, size=(devices, 16), dtype=np.uint8)
    rungs = rng.integers(0, known.mechanism.rungs, size=devices).astype(np.uint8)
    answers = drawn.answers[rungs, np.arange(devices)].reshape(devices, 1).view(np.uint8)
    shards = shards_of(tokens, known.shards)
    refused: list[Sequence[DeadLetter]] = []
    applier = Applier(store, Known(known), refused.append, partitions=PARTITIONS, clock=clock)
    applier.assigned("reports", dict.fromkeys(range(PARTITIONS), 0))
    batches = []
    for partition in range(PARTITIONS):
        frames = b""
        for shard in shards_of_partition(partition, known.shards, PARTITIONS):
            mine = shards == shard
            if mine.any():
                reports = Reports(tokens[mine], answers[mine], rungs[mine], None)
                frames += encode(known.digest, window_ms, clock(), shard, reports, known.layout)
        batches.append(FetchBatch("reports", partition, 0, 1, [Record(0, clock(), frames)]))
    applied = applier.process(batches)
    assert applied.counters.applied == devices


class Outbox:
    """Takes published estimates; fails while `away`."""

    def __init__(self) -> None:
        self.messages: list[Outgoing] = []
        self.away = False

    def __call__(self, messages: Sequence[Outgoing]) -> None:
        if self.away:
            raise PublishError("away")
        self.messages += messages


def recomputing(
    store: Store,
    known: Known,
    publish: Publish,
    clock: ManualClock,
    *,
    metrics: WorkerMetrics | None = None,
    latencies: Latencies | None = None,
) -> Recomputer:
    """Return what recomputes the windows of a store."""
    return Recomputer(
        store,
        known,
        publish,
        "estimates",
        ReportsTopic("reports", PARTITIONS),
        fold=Table.of_log,
        clock=clock,
        metrics=metrics,
        latencies=latencies,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(WEEK + 100_000)  # all rungs of the window are open


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


def test_a_marked_window_is_estimated_stored_and_published(store: MemoryStore, clock: ManualClock) -> None:
    colour, outbox = survey(lifetime=INDEPENDENT), Outbox()
    fill(store, colour, clock, 3_000, WEEK)
    assert recomputing(store, Known(colour), outbox, clock).tick() == 1
    payload = store.estimates.read(colour.id, WEEK)
    assert payload is not None
    record = decode_estimate(payload)
    assert (record.survey, record.window_start_ms, record.window_end_ms) == (colour.id, WEEK, WEEK + 60_000)
    assert record.users == sum(record.users_per_rung) == 3_000
    assert [row.value for row in record.values] == ["red", "green", "blue"]
    expected = estimator_of(colour.mechanism).estimate(
        store.estimates.tally(colour.id, WEEK, colour.shards, Shape.of(colour))
    )
    assert [row.estimate for row in record.values] == list(expected.value)
    assert [row.upper for row in record.values] == list(expected.upper)
    for row in record.values:
        assert row.always_valid_lower is not None
        assert row.always_valid_upper is not None
        assert row.lower is not None
        assert row.upper is not None
        assert row.always_valid_lower < row.lower, "bounds for every look are wider than for one"
        assert row.always_valid_upper > row.upper
    assert store.queue.entries() == []
    [message] = outbox.messages
    assert (message.topic, message.key, message.value) == ("estimates", f"{colour.id}:{WEEK}".encode(), payload)
    assert recomputing(store, Known(colour), outbox, clock).tick() == 0


def test_a_window_that_another_worker_holds_is_left_to_it(store: MemoryStore, clock: ManualClock) -> None:
    colour, outbox = survey(), Outbox()
    fill(store, colour, clock, 10, WEEK)
    assert store.queue.lock(colour.id, WEEK, LOCK_MS) is not None
    mine = recomputing(store, Known(colour), outbox, clock)
    assert mine.tick() == 0
    clock.advance(LOCK_MS + 1)
    assert mine.tick() == 1, "a lock of a worker that died runs out"


def test_reports_that_come_during_the_estimate_keep_the_mark(store: MemoryStore, clock: ManualClock) -> None:
    colour = survey()
    fill(store, colour, clock, 10, WEEK)

    def publish(messages: Sequence[Outgoing]) -> None:
        if messages:
            clock.advance(1)
            fill(store, colour, clock, 10, WEEK, seed=2)

    recomputer = recomputing(store, Known(colour), publish, clock)
    assert recomputer.tick() == 1
    assert [queued.window_ms for queued in store.queue.entries()] == [WEEK]


def test_a_broker_that_is_away_leaves_the_mark_and_frees_the_lock(store: MemoryStore, clock: ManualClock) -> None:
    colour, outbox = survey(), Outbox()
    fill(store, colour, clock, 10, WEEK)
    recomputer = recomputing(store, Known(colour), outbox, clock)
    outbox.away = True
    with pytest.raises(PublishError):
        recomputer.tick()
    assert store.estimates.read(colour.id, WEEK) is not None, "stored although not published"
    assert len(store.queue.entries()) == 1
    outbox.away = False
    assert recomputer.tick() == 1
    assert len(outbox.messages) == 1


def test_a_broker_that_is_away_for_many_ticks_is_logged_once_and_so_is_its_return(
    store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    colour, stop, calls = survey(), threading.Event(), count()
    locks: list[bytes] = []

    def publish(messages: Sequence[Outgoing]) -> None:
        if messages and next(calls) < 5:
            raise PublishError("away")
        if messages:
            stop.set()

    def another_worker(method: str, when: str) -> bool:
        """Have the lock of the window at every second tick, which then has nothing to publish."""
        if (method, when) == ("queue.lock", "before"):
            if locks:
                store.queue.unlock(colour.id, WEEK, locks.pop())
            else:
                locks.append(store.queue.lock(colour.id, WEEK, LOCK_MS) or b"")
        return False

    fill(store, colour, clock, 10, WEEK)
    recomputing(FaultyStore(store, another_worker), Known(colour), publish, clock).run(stop, 0.001)
    about = [record.getMessage() for record in caplog.records if "not published" in record.getMessage()]
    subject = "Kafka (estimates are stored but not published)"
    assert about == [f"{subject} is down: away; retrying", f"{subject} is up again"]


def test_an_estimate_whose_lock_ran_out_is_thrown_away(store: MemoryStore, clock: ManualClock) -> None:
    colour, outbox = survey(), Outbox()
    fill(store, colour, clock, 10, WEEK)

    def slow(method: str, when: str) -> bool:
        if (method, when) == ("estimates.counts", "after"):
            clock.advance(LOCK_MS + 1)
        return False

    recomputer = recomputing(FaultyStore(store, slow), Known(colour), outbox, clock)
    assert recomputer.tick() == 0
    assert store.estimates.read(colour.id, WEEK) is None
    assert outbox.messages == []
    assert len(store.queue.entries()) == 1


def test_one_window_that_cannot_be_estimated_does_not_stop_the_others(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    colour, outbox, metrics = survey(), Outbox(), worker_metrics()
    fill(store, colour, clock, 10, WEEK)
    fill(store, colour, clock, 20, WEEK - 60_000, seed=2)
    right = estimator_of(colour.mechanism).estimate

    def sometimes(tally: Tally, **options: Any) -> Estimates:
        if tally.total_users == 10:
            raise ArithmeticError("ten is too many")
        return right(tally, **options)

    monkeypatch.setattr(estimator_of(colour.mechanism), "estimate", sometimes)
    recomputer = recomputing(store, Known(colour), outbox, clock, metrics=metrics)
    assert recomputer.tick() == 1
    assert [queued.window_ms for queued in store.queue.entries()] == [WEEK]
    assert metrics.registry.get_sample_value("thaw_worker_recompute_failures_total") == 1


def test_the_window_of_an_unknown_survey_waits(store: MemoryStore, clock: ManualClock) -> None:
    colour = survey()
    fill(store, colour, clock, 10, WEEK)
    assert recomputing(store, Known(), Outbox(), clock).tick() == 0
    assert len(store.queue.entries()) == 1


def test_a_window_whose_counts_expired_leaves_the_queue(store: MemoryStore, clock: ManualClock) -> None:
    colour = survey()
    fill(store, colour, clock, 10, WEEK)
    clock.advance(Shape.of(colour).life_ms)
    assert recomputing(store, Known(colour), Outbox(), clock).tick() == 0
    assert store.queue.entries() == []
    assert store.estimates.read(colour.id, WEEK) is None


@pytest.mark.parametrize("method", ["pooled", "mle"])
def test_rungs_that_disagree_make_the_estimate_stratified(
    store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    colour = survey(lifetime=f'{INDEPENDENT}\nmethod = "{method}"')
    tally = Tally.empty(3, 1, 3)
    tally.users[:, 0] = 3_000
    tally.counts[0, 0] = [1_000, 1_000, 1_000]
    tally.counts[1, 0] = [1_600, 700, 700]
    tally.counts[2, 0] = [700, 700, 1_600]

    nothing = ShardCounts(Tally.empty(3, 1, 3), NO_STAMP, 0, None)
    found = [replace(nothing, tally=tally), *[nothing] * (colour.shards - 1)]
    monkeypatch.setattr(store.estimates, "counts", lambda *_place, **_options: found)
    store.queue.put([(colour.id, WEEK)])
    assert recomputing(store, Known(colour), Outbox(), clock).tick() == 1
    record = decode_estimate(store.estimates.read(colour.id, WEEK) or b"")
    assert record.method == "stratified"
    assert record.homogeneity_p is not None
    assert record.homogeneity_p < 0.001
    assert (record.assumption, record.contradicted) == ("independent", True)
    assert any(f"stratified, not {method}" in note for note in record.notes)
    assert all(row.always_valid_lower is None for row in record.values), "they need rungs that ignore the values"


def test_latency_runs_from_emission_to_the_stored_estimate(store: MemoryStore, clock: ManualClock) -> None:
    colour, metrics, latencies = survey(), worker_metrics(), Latencies()
    sent_ms = clock()
    clock.advance(300)
    fill(store, colour, clock, 10, WEEK)
    latencies.applied((colour.id, WEEK), [(sent_ms, 2)], clock())
    clock.advance(700)
    recomputer = recomputing(
        store,
        Known(colour),
        Outbox(),
        clock,
        metrics=metrics,
        latencies=latencies,
    )
    recomputer.tick()
    assert metrics.registry.get_sample_value("thaw_worker_latency_seconds_count") == 2
    assert metrics.registry.get_sample_value("thaw_worker_latency_seconds_sum") == pytest.approx(2.0)
    assert latencies.windows() == []


def test_frames_from_here_are_settled_by_estimates_of_another_worker(store: MemoryStore, clock: ManualClock) -> None:
    colour, metrics, latencies = survey(), worker_metrics(), Latencies()
    fill(store, colour, clock, 10, WEEK)
    latencies.applied((colour.id, WEEK), [(clock() - 1_000, 1)], clock())
    clock.advance(500)
    recomputing(store, Known(colour), Outbox(), clock).tick()
    recomputing(
        store,
        Known(colour),
        Outbox(),
        clock,
        metrics=metrics,
        latencies=latencies,
    ).tick()
    assert metrics.registry.get_sample_value("thaw_worker_latency_seconds_sum") == pytest.approx(1.5)


def test_frames_noted_after_the_counts_were_read_are_settled_when_nothing_is_queued(
    store: MemoryStore, clock: ManualClock
) -> None:
    colour, metrics, latencies = survey(), worker_metrics(), Latencies()
    fill(store, colour, clock, 10, WEEK)
    recomputing(store, Known(colour), Outbox(), clock).tick()
    clock.advance(1)
    latencies.applied((colour.id, WEEK), [(clock() - 1_001, 1)], clock())
    recomputer = recomputing(
        store,
        Known(colour),
        Outbox(),
        clock,
        metrics=metrics,
        latencies=latencies,
    )
    recomputer.tick()
    assert metrics.registry.get_sample_value("thaw_worker_latency_seconds_count") == 1
    assert latencies.windows() == []


def test_frames_waiting_for_an_estimate_take_bounded_memory() -> None:
    latencies = Latencies(limit=10)
    for window_ms in range(100):
        latencies.applied(("s", window_ms), [(0, 1), (1, 1)], 5)
    assert len(latencies.windows()) == 5
    assert len(latencies.settle(("s", 99), 5)) == 2
    assert latencies.settle(("s", 0), 5) == []


def test_the_thread_goes_on_when_the_store_was_away(store: MemoryStore, clock: ManualClock) -> None:
    colour, outbox, metrics = survey(), Outbox(), worker_metrics()
    fill(store, colour, clock, 10, WEEK)
    stop, failures = threading.Event(), iter([True, True])

    def shaky(method: str, when: str) -> bool:
        return (method, when) == ("queue.lock", "before") and next(failures, False)

    def publish(messages: Sequence[Outgoing]) -> None:
        outbox(messages)
        if messages:
            stop.set()

    recomputing(FaultyStore(store, shaky), Known(colour), publish, clock, metrics=metrics).run(stop, 0.001)
    assert len(outbox.messages) == 1
    assert metrics.registry.get_sample_value("thaw_worker_store_up") == 1


def test_a_window_whose_mark_was_lost_in_a_power_cut_is_estimated_all_the_same(
    store: MemoryStore, clock: ManualClock
) -> None:
    colour, outbox = survey(), Outbox()
    fill(store, colour, clock, 100, WEEK)
    for queued in store.queue.entries():
        store.queue.remove(queued)
    recomputer = recomputing(store, Known(colour), outbox, clock)
    assert recomputer.tick() == 0
    store.restore(store.snapshot())
    assert recomputer.tick() == 1
    assert store.estimates.read(colour.id, WEEK) is not None
    assert recomputer.tick() == 0
