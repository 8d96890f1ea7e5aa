"""The audit of a canary: it reads what a worker stored, counts every window once, and survives restarts and outages."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import scenario_named
from producers.survey.survey import Survey, load_survey
from producers.wire.transport import frames_of
from streams.folders import deploy_folder
from streams.local import canary
from streams.local.canary import CanaryAuditor
from streams.store.contract import StoreUnavailableError
from streams.store.shape import Key
from streams.windows.epsilon_audit import STATE, EpsilonAudit, read_audit
from tests.support.applier import PARTITIONS, Bench, faults
from tests.support.cheating import cheating
from tests.support.clock import ManualClock
from tests.support.deadline import END_SECONDS
from tests.support.faulty_store import FaultyStore
from tests.support.reports import batch_of

CANARY = load_survey(deploy_folder("surveys") / "canary.toml")
STEP_MS = CANARY.windows.step_ms
WINDOW = 1_800_000_000_000 // STEP_MS * STEP_MS
DEVICES, RUNGS = 2_000, 3


class Parts:
    """A worker on a store in memory, and the devices of a canary; broken: the survey as they know it."""

    def __init__(self, broken: Survey = CANARY) -> None:
        self.known = broken
        self.clock = ManualClock(WINDOW)
        self.bench = Bench(clock=self.clock, surveys=[CANARY])
        self.store = self.bench.store
        self.auditor = CanaryAuditor(self.store, clock=self.clock)
        self._offsets = dict.fromkeys(range(PARTITIONS), 0)

    def block(self, number: int = 0) -> BlockWindow:
        table = CANARY.canary
        assert table is not None
        plan = Plan(self.known, table.devices, scenario_named("steady"), table.seed, np.array(table.shares), WINDOW)
        return BlockWindow(plan, WINDOW + number * STEP_MS, 0)

    def deliver(self, block: BlockWindow, until_ms: int) -> None:
        """Let the devices send what is due, the broker take it and the worker count it."""
        self.clock.advance(max(until_ms - self.clock(), 0))
        part = block.take(until_ms)
        columns = block.columns(part)[:4]
        messages = frames_of(CANARY, block.window_ms, until_ms, *columns, partitions=PARTITIONS)
        for partition, packed in messages.items():
            start = self._offsets[partition]
            self.bench.process(batch_of(*packed, partition=partition, start=start, timestamp_ms=until_ms))
            self._offsets[partition] += len(packed)
        block.acknowledge(part)

    def live(self, block: BlockWindow) -> None:
        """Go through all rungs of a window, with a look before the next one opens."""
        self.auditor.opened(block)
        for opens_ms in CANARY.opens_ms:
            self.deliver(block, CANARY.windows.end(block.window_ms) + opens_ms + 5_000)
            self.auditor.look()
        assert block.done
        self.auditor.settled(block)
        self.auditor.look()

    def audit(self) -> EpsilonAudit:
        found = read_audit(self.store.states, CANARY.id)
        assert found is not None
        return found


def test_a_canary_that_keeps_its_promise_proves_less_and_every_answer_is_compared() -> None:
    parts = Parts()
    for number in range(3):
        parts.live(parts.block(number))
    audit = parts.audit()
    assert audit.answers == 3 * DEVICES * RUNGS
    assert all(0.5 < found < level for found, level in zip(audit.lower_bounds, CANARY.mechanism.epsilons, strict=True))
    assert audit.last_windows == {"0": WINDOW + 2 * STEP_MS}
    assert audit.updated_ms == parts.clock()


@pytest.mark.parametrize(
    ("ladder", "windows"), [((18.0, 19.0, 20.0), 1), ((1.0, 2.0, 4.0), 4)], ids=["never flip", "too sharp at the top"]
)
def test_a_canary_whose_devices_flip_less_than_declared_proves_more(ladder: tuple[float, ...], windows: int) -> None:
    parts = Parts(cheating(CANARY, ladder))
    for number in range(windows):
        parts.live(parts.block(number))
    found = parts.audit().lower_bounds
    assert found[-1] > CANARY.mechanism.epsilons[-1]
    if ladder[0] == 1.0:
        assert found[0] < 1.0


def test_what_the_store_holds_is_compared_not_what_was_drawn() -> None:
    # The canary believes in honest answers; on their way to the worker they are replaced by those that never flip.
    parts, honest = Parts(cheating(CANARY, (18.0, 19.0, 20.0))), Parts()
    block, sent = honest.block(), parts.block()
    parts.auditor.opened(block)
    for opens_ms in CANARY.opens_ms:
        parts.deliver(sent, CANARY.windows.end(WINDOW) + opens_ms + 5_000)
        parts.auditor.look()
    assert not np.array_equal(block.answers, sent.answers)
    assert np.array_equal(block.tokens, sent.tokens)
    block.acked[:] = sent.acked
    parts.auditor.settled(block)
    parts.auditor.look()
    assert parts.audit().lower_bounds[-1] > CANARY.mechanism.epsilons[-1]


def test_a_canary_that_starts_again_goes_on_and_counts_no_window_twice() -> None:
    parts = Parts()
    first = parts.block(0)
    parts.live(first)
    once = parts.audit()
    parts.auditor = CanaryAuditor(parts.store, clock=parts.clock)
    parts.auditor.opened(first)
    parts.auditor.settled(first)
    parts.auditor.look()
    assert parts.audit() == once, "the window was counted before the restart"
    parts.live(parts.block(1))
    twice = parts.audit()
    assert twice.answers == 2 * once.answers
    assert [(span.number, span.batches) for span in twice.spans] == [(1, 2), (1, 2)]
    assert sum(np.array(twice.spans[0].counts)[0, 0, :, 0]) == 2 * DEVICES


def test_a_store_that_is_away_delays_the_audit_and_loses_nothing() -> None:
    parts = Parts()
    planned = faults(("log.seen", "before"), ("log.load", "after"), ("states.get", "before"), ("states.swap", "after"))
    parts.auditor = CanaryAuditor(FaultyStore(parts.store, planned), clock=parts.clock)
    block = parts.block()
    parts.auditor.opened(block)
    for opens_ms in CANARY.opens_ms:
        parts.deliver(block, CANARY.windows.end(WINDOW) + opens_ms + 5_000)
        if opens_ms < CANARY.opens_ms[-1]:
            with pytest.raises(StoreUnavailableError):
                parts.auditor.look()
            continue
    parts.auditor.look()
    parts.auditor.settled(block)
    for _ in range(2):
        with pytest.raises(StoreUnavailableError):
            parts.auditor.look()
    parts.auditor.look()
    audit = parts.audit()
    assert audit.spans[0].batches == 1, "the write before the lost connection counts, and counts once"
    assert np.array(audit.spans[0].counts)[2, 0, 0, 0] + np.array(audit.spans[0].counts)[2, 0, 0, 2] == DEVICES


def test_an_error_that_nobody_expected_does_not_end_the_audit(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parts, looks = Parts(), threading.Semaphore(0)

    def look(_auditor: CanaryAuditor, *, last: bool = False) -> None:
        looks.release()
        raise ValueError(f"nobody knows why, {last}")

    monkeypatch.setattr(CanaryAuditor, "look", look)
    with CanaryAuditor(parts.store, clock=parts.clock, look_seconds=0.0):
        assert all(looks.acquire(timeout=END_SECONDS) for _ in range(3))
    assert len([record for record in caplog.records if "goes on" in record.message]) == 1, "one kind is told once"


def test_windows_are_counted_in_order_and_answers_that_never_arrive_are_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    lost, later = parts.block(0), parts.block(1)
    parts.auditor.opened(lost)
    lost.take(WINDOW + 10**6)
    lost.acked[:] = RUNGS - 1
    parts.auditor.settled(lost)
    parts.live(later)
    assert parts.store.states.get(CANARY.id, STATE) == b"", "the earlier window is waited for"
    monkeypatch.setattr(canary, "GIVE_UP_SECONDS", -1.0)
    parts.auditor.look()
    audit = parts.audit()
    assert audit.last_windows == {"0": later.window_ms}
    assert audit.answers == DEVICES * RUNGS


def test_a_state_of_another_version_is_begun_anew() -> None:
    parts = Parts()
    assert parts.store.states.swap(CANARY.id, STATE, None, b"", b'{"version": 0}', WINDOW + 10**9)
    parts.live(parts.block())
    assert parts.audit().spans[0].batches == 1


def test_a_log_that_cannot_be_read_does_not_stop_the_audit_of_other_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    damaged, later = parts.block(0), parts.block(1)
    parts.auditor.opened(damaged)
    parts.deliver(damaged, WINDOW + 10**6)
    for shard in range(CANARY.shards):
        segments = parts.store.segments(Key(CANARY.id, WINDOW, shard))
        if segments:
            segments[0] = b"\xff" * len(segments[0])
    parts.auditor.settled(damaged)
    monkeypatch.setattr(canary, "GIVE_UP_SECONDS", -1.0)
    parts.live(later)
    audit = parts.audit()
    assert audit.last_windows == {"0": later.window_ms}
    assert audit.answers == DEVICES * RUNGS
