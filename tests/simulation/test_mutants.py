"""The simulation sees what it is for: each part, broken on purpose in one way, makes a short script fail."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from producers.device.agent import Device
from producers.device.encoding import token_of
from producers.device.ledger import StoredChain
from producers.survey.survey import Survey
from producers.wire.shards import partition_of
from producers.wire.transport import Message
from streams.kafka.messages import FetchBatch
from streams.store.contract import ShardBatch
from streams.store.counters import Counters
from streams.worker import fold, tiers
from streams.worker.applier import Applied, Applier
from streams.worker.retry import RestartRequired
from streams.worker.table import Folded
from tests.simulation.bus import CONTINUING, PARTITIONS, SHORTER, STANDING, TIERED, WITHDRAWABLE
from tests.simulation.operations import Advance, CloseWindow, Emit, Late, Op, Work, play
from tests.simulation.test_reproductions import LEVELS_ADDED, SCRIPTS
from tests.simulation.withdrawals import Forge
from tests.simulation.world import World
from tests.support.memory_store import MemoryReportLog, MemoryStore
from tests.support.plain_table import PlainTable


class TrustsKafkaAlone(Applier):
    def assigned(self, topic: str, committed: Mapping[int, int | None]) -> dict[int, int]:
        super().assigned(topic, committed)
        return {partition: offset or 0 for partition, offset in committed.items()}


class AcknowledgesAnyway(TrustsKafkaAlone):
    # With stored offsets it would read the batch again at the next rebalance, and the mutant would pass.
    def process(self, batches: Sequence[FetchBatch]) -> Applied:
        try:
            return super().process(batches)
        except RestartRequired:
            return Applied({}, {}, 0, Counters())


class TakesEarlyRungs(Applier):
    def process(self, batches: Sequence[FetchBatch]) -> Applied:
        # As if every record had come when the rungs of its window were open.
        late = [
            replace(
                batch, records=[record._replace(timestamp_ms=record.timestamp_ms + 150_000) for record in batch.records]
            )
            for batch in batches
        ]
        return super().process(late)


class DoesNotQueue(Applier):
    def process(self, batches: Sequence[FetchBatch]) -> Applied:
        put = self._queue.put

        def only_what_is_new(windows: Any) -> None:
            if self._changed:
                put(windows)

        self._changed = False
        self._queue.put = only_what_is_new  # type: ignore[method-assign]
        return super().process(batches)

    def _attempt(self, progress: Any) -> None:
        super()._attempt(progress)
        self._changed = self._changed or progress.counted.applied > 0


class IgnoresStamps(MemoryReportLog):
    def _apply(self, batch: ShardBatch) -> Any:
        for change in batch.changes:
            if change.key in self._shared.state.logs:
                self._shared.state.logs[change.key].stamp = change.stamp
        return super()._apply(batch)


class ForgetsTokens(PlainTable):
    def fold(self, entries: Any) -> Folded:
        self._held.clear()
        return super().fold(entries)


class RemovesBeforeItSends(Device):
    def _flush(self, now_ms: int) -> int:
        ready = self._outbox.ready(now_ms, 500)
        with self._ledger.transaction():
            self._outbox.remove((number for number, _ in ready), now_ms)
        if ready:
            partitions = self._transport.partitions
            self._transport.send([Message(partition_of(report.shard, partitions), report.frame) for _, report in ready])
        return len(ready)


class DrawsAgain(Device):
    def _chain_for(self, *arguments: Any) -> StoredChain:
        for table in ("chains", "outbox"):
            self._ledger.connection.execute(f"DELETE FROM {table} WHERE window_ms = ?", (arguments[1],))
        return super()._chain_for(*arguments)


class ForgetsValues(Device):
    def _chain_for(self, *arguments: Any) -> StoredChain:
        # As if every window had a value of its own.
        self._ledger.connection.execute("DELETE FROM standing")
        return super()._chain_for(*arguments)


class NamesEachSurveyAnew(Device):
    def _token(self, survey: Survey, window_ms: int, copy: int) -> bytes:
        return token_of(self._ledger.secret, replace(survey, continued=()), window_ms, copy)


CONTRADICTION = "is unreadable: not a tally"
"""A worker has noticed that a log contradicts its tally, and has set it aside: a correct system never gets there."""

VALUE_REPEATED: list[Op] = [
    Emit(0, 3),
    CloseWindow(),
    Emit(0, 3),
    CloseWindow(),
    Advance(31_000),
    Work(0, 9),
    Work(1, 9),
]
"""Two windows of one value."""
FORGED: list[Op] = [
    Emit(0, 3),
    CloseWindow(),
    Advance(10_000),
    *(Forge(partition, 0, rung) for partition in range(PARTITIONS) for rung in (0, 2)),
    Work(0, 9),
    Work(1, 9),
]
"""A sharper answer and a withdrawal under a token that was read from the topic."""

MUTANTS: list[tuple[str, dict[str, Any], str]] = [
    ("acknowledged too early", {"applier": AcknowledgesAnyway}, "1 users expected, 0 found"),
    ("power cut", {"applier": TrustsKafkaAlone}, "2 users expected, 0 found"),
    ("rung before it opens", {"applier": TakesEarlyRungs}, "dead letters: expected"),
    ("unqueued window", {"applier": DoesNotQueue}, "has no estimate"),
    ("zombie", {"store": lambda clock: MemoryStore(clock, log=IgnoresStamps)}, CONTRADICTION),
    ("between apply and acknowledgement", {"applier": partial(Applier, table=ForgetsTokens)}, CONTRADICTION),
    ("device dies while sending", {"device": RemovesBeforeItSends}, "device 0, window"),
    ("device dies before it has stored its answers", {"device": DrawsAgain}, "drew rung 0 twice"),
]


@pytest.mark.parametrize(("name", "parts", "complaint"), MUTANTS, ids=[mutant[0] for mutant in MUTANTS])
def test_a_broken_part_is_found_out(name: str, parts: dict[str, Any], complaint: str) -> None:
    with World(**parts) as world, pytest.raises(AssertionError, match=complaint):
        play(world, SCRIPTS[name])


def test_a_tier_that_is_told_too_much_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "known", lambda _survey, reports: reports)
    script: list[Op] = [Late(((0, 0, 1), (0, 2, 5)), windows=2), Work(0, 9), Work(1, 9)]
    with World(asked=TIERED) as world, pytest.raises(AssertionError, match=r"colour\.p.*, window .* users expected"):
        play(world, script)


def test_a_standing_value_that_is_drawn_again_is_found_out() -> None:
    with World(asked=STANDING) as world:
        play(world, VALUE_REPEATED)
    with World(asked=STANDING, device=ForgetsValues) as world, pytest.raises(AssertionError, match="0 paid wrongly"):
        play(world, VALUE_REPEATED)


def test_a_worker_that_ignores_keys_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with World(asked=WITHDRAWABLE) as world:
        play(world, FORGED)
        assert {reason for _, reason, _ in world.expected_dead} == {"key"}
    monkeypatch.setattr(
        fold, "without_key", lambda _survey, _words, _frames, packed, _shape: np.zeros(len(packed), bool)
    )
    with World(asked=WITHDRAWABLE) as world, pytest.raises(AssertionError, match=r"users expected|dead letters"):
        play(world, FORGED)


def test_a_chain_that_goes_on_under_another_token_is_found_out() -> None:
    broken = World(asked=SHORTER, later=CONTINUING, device=NamesEachSurveyAnew)
    with broken as world, pytest.raises(AssertionError, match="device 0, window"):
        play(world, LEVELS_ADDED)
