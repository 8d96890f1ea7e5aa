"""Running a simulated fleet: logical ticks, paced by the wall clock or as fast as the broker takes them.

All reports that fall due in one tick are sent together, with the tick's end as their sending time. So what is sent is a
function of the plan alone. Order of side effects in one tick: (1) wait for the wall clock, (2) take what is due,
(3) hand messages to the broker's client, (4) once the broker has acknowledged: mark the devices, (5) publish the truth
of what was delivered, (6) journal windows in which everything was delivered.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from producers.simulation.fleet import BlockWindow, Columns, Plan
from producers.survey.survey import Survey
from producers.wire.cards import Dealt
from producers.wire.transport import frames_of

log = logging.getLogger(__name__)

MAX_IN_FLIGHT_BYTES = 64 << 20
"""Unacknowledged bytes. Smaller leaves the broker idle between ticks; larger only takes memory."""
TRUTH_EVERY_SECONDS = 0.5


class Pending(Protocol):
    """A message on its way; `get` returns when the broker has it and raises if it does not."""

    def get(self, timeout: float | None = None) -> object:
        """Wait for the acknowledgement."""
        ...


class Publisher(Protocol):
    """Where a fleet sends: one message to one partition of the reports topic."""

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic."""
        ...

    def send(self, partition: int, message: bytes) -> Pending:
        """Hand over one message."""
        ...


class Truths(Protocol):
    """Where a fleet writes the true quantities, for the page and the demo only."""

    def post(self, survey_id: str, window_ms: int, part: str, truth: dict[str, Any]) -> None:
        """Replace one part of the truth of a window."""
        ...


class Watch(Protocol):
    """Who compares what arrives with what the devices have; a canary has one."""

    def opened(self, block: BlockWindow) -> None:
        """Learn of a block of devices in one window before its first report is sent."""
        ...

    def settled(self, block: BlockWindow) -> None:
        """Learn that the broker has everything of a block."""
        ...


class CardSource(Protocol):
    """Where a fleet gets its cards, for surveys whose decks are dealt."""

    def ask(self, plan: Plan, window_ms: int, block: int) -> None:
        """Begin to ask for the cards of a block of devices, unless that was begun before."""
        ...

    def ready(self, plan: Plan, window_ms: int, block: int) -> bool:
        """Tell whether every device of the block has had its answer."""
        ...

    def take(self, plan: Plan, window_ms: int, block: int) -> list[Dealt | None]:
        """Return the card of every device of the block, None for those that got none."""
        ...


@dataclass
class Progress:
    """Counters of a running fleet."""

    reports: int = 0
    messages: int = 0
    windows_settled: int = 0
    behind_ms: int = 0


@dataclass
class _Flight:
    partition: int
    message: bytes
    pending: Pending


@dataclass
class _Tick:
    flights: list[_Flight]
    parts: list[tuple[BlockWindow, slice]]
    reports: int
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.size_bytes = sum(len(flight.message) for flight in self.flights)


class FleetRun:
    """One process of a fleet: some blocks of some plans, tick by tick."""

    def __init__(
        self,
        plans: Sequence[Plan],
        publisher: Publisher,
        *,
        now_ms: Callable[[], int],
        tick_ms: int = 100,
        live: bool = True,
        windows: int | None = None,
        rate: float | None = None,
        process: int = 0,
        processes: int = 1,
        journal: Path | None = None,
        truths: Truths | None = None,
        watch: Watch | None = None,
        cards: CardSource | None = None,
        stopping: Callable[[], bool] = lambda: False,
        on_progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self.plans, self.publisher, self.now_ms = plans, publisher, now_ms
        self.tick_ms, self.live, self.windows, self.rate = tick_ms, live, windows, rate
        self.process, self.processes = process, processes
        self.journal, self.truths, self.watch, self.cards = journal, truths, watch, cards
        self.stopping, self.on_progress = stopping, on_progress
        self.progress = Progress()
        self._opening: list[tuple[Plan, int, int]] = []
        self._active: list[BlockWindow] = []
        self._next_window = [plan.first_window_ms for plan in plans]
        self._in_flight: deque[_Tick] = deque()
        self._in_flight_bytes = 0
        self._posted: dict[int, float] = {}
        if journal is not None:
            journal.mkdir(parents=True, exist_ok=True)

    def run(self) -> Progress:
        """Run until all windows are delivered or a stop is requested; waits for all acknowledgements."""
        tick_end = min(self._next_window) // self.tick_ms * self.tick_ms
        started, paced_reports = time.monotonic(), 0
        while not self.stopping():
            tick_end = self._next_tick(tick_end)
            if self.live and not self._wait_until(tick_end):
                break
            self._open_windows(tick_end)
            paced_reports += self._send_tick(tick_end)
            self._drain(limit_bytes=MAX_IN_FLIGHT_BYTES)
            self._settle()
            self.progress.behind_ms = max(self.now_ms() - tick_end, 0) if self.live else 0
            self.on_progress(self.progress)
            if self.rate:
                self._wait_seconds(paced_reports / self.rate - (time.monotonic() - started))
            if not self._opening and not self._active and not self._in_flight and not self._more_windows():
                break
        self._drain(limit_bytes=0)
        self._settle(final=True)
        self.on_progress(self.progress)
        return self.progress

    def _more_windows(self) -> bool:
        return any(self._window_left(i) for i in range(len(self.plans)))

    def _window_left(self, i: int) -> bool:
        plan = self.plans[i]
        done = (self._next_window[i] - plan.first_window_ms) // plan.survey.windows.step_ms
        return plan.survey.asks(self._next_window[i]) and (self.windows is None or done < self.windows)

    def _next_tick(self, tick_end: int) -> int:
        """Return the end of the next tick; without pacing, jump over ticks in which nothing happens."""
        following = tick_end + self.tick_ms
        if self.live:
            return following
        moments = [int(block.due_ms[block.sent]) for block in self._active if not block.done]
        moments += [self._next_window[i] for i in range(len(self.plans)) if self._window_left(i)]
        return max(following, -(-min(moments, default=following) // self.tick_ms) * self.tick_ms)

    def _wait_until(self, moment_ms: int) -> bool:
        while (left := moment_ms - self.now_ms()) > 0:
            if self.stopping():
                return False
            time.sleep(min(left, 50) / 1000)
        return True

    def _wait_seconds(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and not self.stopping():
            time.sleep(min(left, 0.05))

    def _open_windows(self, until_ms: int) -> None:
        for i, plan in enumerate(self.plans):
            while self._window_left(i) and self._next_window[i] < until_ms:
                self._opening += self._blocks(plan, self._next_window[i])
                self._next_window[i] += plan.survey.windows.step_ms
        opening, self._opening = self._opening, []
        for plan, window_ms, block in opening:
            cards = None
            if self.cards is not None and _is_dealt(plan):
                self.cards.ask(plan, window_ms, block)
                if not self.cards.ready(plan, window_ms, block):
                    self._opening.append((plan, window_ms, block))
                    continue
                cards = self.cards.take(plan, window_ms, block)
            self._active.append(BlockWindow(plan, window_ms, block, cards))
            if self.watch is not None:
                self.watch.opened(self._active[-1])
        self._ask_ahead()

    def _ask_ahead(self) -> None:
        """Ask for the cards of the next windows, as soon as a dealer deals them."""
        for i, plan in enumerate(self.plans):
            early_ms = self._next_window[i] - plan.survey.skew_ms
            if self.cards is not None and _is_dealt(plan) and self._window_left(i) and early_ms <= self.now_ms():
                for place in self._blocks(plan, self._next_window[i]):
                    self.cards.ask(*place)

    def _blocks(self, plan: Plan, window_ms: int) -> list[tuple[Plan, int, int]]:
        """Return the blocks of devices whose window is this process's and was not delivered by an earlier one."""
        own = range(self.process, plan.blocks, self.processes)
        return [(plan, window_ms, block) for block in own if not self._journalled(plan, window_ms, block)]

    def _send_tick(self, tick_end: int) -> int:
        grouped: dict[tuple[int, int], list[tuple[BlockWindow, slice]]] = {}
        for block in self._active:
            part = block.take(tick_end)
            if part.stop > part.start:
                grouped.setdefault((id(block.plan), block.window_ms), []).append((block, part))
        flights: list[_Flight] = []
        reports = 0
        for (_, window_ms), parts in grouped.items():
            survey = parts[0][0].plan.survey
            columns = _concatenate([block.columns(part) for block, part in parts])
            reports += len(columns.rungs)
            # Copies of one device in one frame would be linked to each other.
            for copy in range(survey.mechanism.copies):
                chosen = columns if survey.mechanism.copies == 1 else _select(columns, columns.copies == copy)
                if len(chosen.rungs):
                    flights += self._send_columns(survey, window_ms, tick_end, chosen)
        if flights:
            tick = _Tick(flights, [part for parts in grouped.values() for part in parts], reports)
            self._in_flight.append(tick)
            self._in_flight_bytes += tick.size_bytes
        return reports

    def _send_columns(self, survey: Survey, window_ms: int, sent_ms: int, columns: Columns) -> list[_Flight]:
        messages = frames_of(
            survey,
            window_ms,
            sent_ms,
            columns.tokens,
            columns.answers,
            columns.rungs,
            columns.groups,
            columns.keys if survey.withdrawable else None,
            partitions=self.publisher.partitions,
        )
        return [
            _Flight(partition, message, self.publisher.send(partition, message))
            for partition, packed in messages.items()
            for message in packed
        ]

    def _drain(self, *, limit_bytes: int) -> None:
        """Wait until at most `limit_bytes` are unacknowledged, and collect what was acknowledged meanwhile."""
        while self._in_flight and (self._in_flight_bytes > limit_bytes or _all_done(self._in_flight[0].flights)):
            tick = self._in_flight.popleft()
            for flight in tick.flights:
                self._confirm(flight)
            self._in_flight_bytes -= tick.size_bytes
            self.progress.reports += tick.reports
            self.progress.messages += len(tick.flights)
            for block, part in tick.parts:
                block.acknowledge(part)

    def _confirm(self, flight: _Flight) -> None:
        """Wait for one message; send the same bytes again until the broker acknowledges them."""
        pause_seconds = 0.2
        while True:
            try:
                flight.pending.get(timeout=60)
                return
            except Exception as error:
                log.warning("the broker did not acknowledge a message (%s); sending the same bytes again", error)
                time.sleep(pause_seconds)
                pause_seconds = min(pause_seconds * 2, 5.0)
                flight.pending = self.publisher.send(flight.partition, flight.message)

    def _settle(self, *, final: bool = False) -> None:
        """Write truth and journal, and drop the blocks in which everything was delivered."""
        waiting = {id(block) for tick in self._in_flight for block, _ in tick.parts}
        kept: list[BlockWindow] = []
        for block in self._active:
            settled = block.done and id(block) not in waiting
            if settled or final or time.monotonic() - self._posted.get(id(block), 0.0) >= TRUTH_EVERY_SECONDS:
                self._post(block, settled=settled)
            if settled or final:
                self._write_journal(block, settled=settled)
                self._posted.pop(id(block), None)
                self.progress.windows_settled += settled
                if settled and self.watch is not None:
                    self.watch.settled(block)
            if not settled:
                kept.append(block)
        self._active = kept

    def _post(self, block: BlockWindow, *, settled: bool) -> None:
        self._posted[id(block)] = time.monotonic()
        if self.truths is None:
            return
        numerators, denominators = block.truth()
        truth = {
            "numerators": numerators.tolist(),
            "denominators": denominators.tolist(),
            "devices": int(((block.acked >= 0) & (block.acked < block.plan.survey.mechanism.rungs)).sum()),
            "settled": settled,
            "blocks": block.plan.blocks,
        }
        self.truths.post(block.plan.survey.id, block.window_ms, str(block.block), truth)

    def _journalled(self, plan: Plan, window_ms: int, block: int) -> bool:
        return self.journal is not None and journal_path(self.journal, plan.survey.id, window_ms, block).exists()

    def _write_journal(self, block: BlockWindow, *, settled: bool) -> None:
        if self.journal is None:
            return
        numerators, denominators = block.truth()
        survey = block.plan.survey
        # The whole survey last: its file says that the block is done.
        of_tiers = [(tier.id, block.acked_of_tiers[tier.tier]) for tier in survey.tier_surveys if tier.tier is not None]
        for survey_id, acked in [*of_tiers, (survey.id, block.acked)]:
            path = journal_path(self.journal, survey_id, block.window_ms, block.block, settled=settled)
            draft = path.with_suffix(".draft.npz")
            np.savez(
                draft,
                survey=np.array(survey_id),
                window_ms=np.array(block.window_ms),
                tokens=block.tokens,
                acked=acked,
                numerators=numerators,
                denominators=denominators,
                settled=np.array(settled),
            )
            draft.replace(path)


def journal_path(folder: Path, survey_id: str, window_ms: int, block: int, *, settled: bool = True) -> Path:
    """Return the file of acknowledged tokens of a block; `settled` once everything of the block was delivered."""
    return folder / f"{survey_id}.{window_ms}.{block}.{'settled' if settled else 'open'}.npz"


def _is_dealt(plan: Plan) -> bool:
    """Tell whether devices answer with cards that somebody hands out."""
    return bool(plan.survey.mechanism.cards)


def _all_done(flights: Sequence[_Flight]) -> bool:
    """Tell whether all messages are finished, as far as the client knows (otherwise only their size counts)."""
    return all(getattr(flight.pending, "is_done", False) for flight in flights)


def _select(columns: Columns, chosen: NDArray[np.bool_]) -> Columns:
    parts: list[NDArray[Any]] = [column[chosen] for column in columns]
    return Columns(*parts)


def _concatenate(columns: Sequence[Columns]) -> Columns:
    if len(columns) == 1:
        return columns[0]
    return Columns(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))
