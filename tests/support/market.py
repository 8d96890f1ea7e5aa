"""A market in tests: devices whose answers are counted in a store, rung by rung, and the market on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from estimators.exact.randomness import Bits
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.survey import Survey
from producers.wire.transport import frames_of
from streams.market.books import Books
from streams.market.market import Market
from streams.store.contract import Store
from streams.windows.counted import ReportsTopic
from streams.windows.recompute import Recomputer
from streams.worker.applier import Applier
from streams.worker.table import Table
from tests.support.reports import TOPIC, SurveyDict, batch_of
from tests.support.signing import signer_in


class Counting:
    """Counts answers of simulated devices in a store, as a worker does."""

    def __init__(self, store: Store, asked: Survey, now_ms: int, *, seed: int = 1) -> None:
        self.asked, self._store, self._seed, self._now_ms = asked, store, seed, now_ms
        known, clock = SurveyDict(asked), lambda: now_ms
        self._applier = Applier(store, known, lambda letters: pytest.fail(str(letters)), partitions=1, clock=clock)
        self._applier.assigned(TOPIC, {0: 0})
        topic = ReportsTopic(TOPIC, 1)
        self._recomputer = Recomputer(store, known, lambda _: None, "estimates", topic, fold=Table.of_log, clock=clock)
        self._offset = 0

    def block(self, window_ms: int, devices: int) -> BlockWindow:
        """Return the devices of a window, with all their answers."""
        shares = falling_shares(len(self.asked.mechanism.labels))
        plan = Plan(self.asked, devices, scenario_named("steady"), self._seed, shares, window_ms)
        return BlockWindow(plan, window_ms, 0)

    def count(self, block: BlockWindow, window_ms: int, rung: int, rows: Sequence[int] | NDArray[np.intp]) -> None:
        """Count the answers of a rung of some devices, and estimate."""
        picked = np.asarray(rows, dtype=np.intp)
        rungs = np.full(len(picked), rung, dtype=np.uint8)
        is_withdrawal = rung == self.asked.mechanism.rungs
        answers, groups = block.answers[rung][picked], block.groups[picked] * np.uint16(not is_withdrawal)
        columns = (block.tokens[picked], answers, rungs, groups)
        keys = None if not self.asked.withdrawable else block._chains[rung + 1, picked]
        messages = frames_of(self.asked, window_ms, 0, *columns, keys, partitions=1)[0]
        batch = batch_of(*messages, start=self._offset, timestamp_ms=self._now_ms)
        self._applier.process([batch])
        self._offset = batch.next_offset
        self._recomputer.tick()


def market_in(
    folder: Path, store: Store, *surveys: Survey, clock: Callable[[], int], bits: Bits | None = None
) -> Market:
    """Return a market whose books and key are in a folder."""
    signer = signer_in(folder)
    return Market(store, surveys, Books(folder / "books.sqlite"), signer, folder / "deliveries", clock=clock, bits=bits)
