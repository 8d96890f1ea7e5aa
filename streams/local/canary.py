"""The audit of a canary: its answers as they stand in the store, compared with the values that its devices have.

A thread beside the fleet reads the report logs of the canary's windows again and again, since a log keeps lower rungs
only for a while. When the last rung of a block of devices has arrived, its answers are counted as one batch and the
lower bound on epsilon is stored. What does not arrive is left out: which answers those are does not depend on them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimators.inference.epsilon_bounds import Span, add_batch, always_valid_bounds, first_spans
from estimators.inference.telling_events import TellingEvents, telling_events
from estimators.mechanism import Specification, index_of
from producers.clock import Clock, system_clock
from producers.simulation.fleet import BlockWindow
from producers.wire.layout import TOKEN_NAME_BYTES
from producers.wire.shards import shards_of
from streams.local.token_places import token_places
from streams.logs import FailureLog, StateLog
from streams.store.contract import Seen, Store, StoreCorruptError, StoreUnavailableError
from streams.store.shape import KEEP_MS, Key, Shape
from streams.windows.epsilon_audit import STATE, VERSION, EpsilonAudit, SpanCounts, decode_audit, encode_audit
from streams.worker.table import Table, unpack

logger = logging.getLogger(__name__)

LOOK_SECONDS: Final = 1.0
"""Shortest time between two looks. Longer: a log may have dropped lower rungs before they were read."""
REST: Final = 2
"""The pause after a look is at least this many times as long as the look, so that a large canary does not load Redis.
Longer: as with LOOK_SECONDS."""
GIVE_UP_SECONDS: Final = 60.0
"""How long answers that the broker has may take to the store; then the block is counted without them."""
BLOCKS: Final = 1_000
"""Blocks of windows that wait at most; beyond it the oldest are dropped."""
_ATTEMPTS: Final = 20


@dataclass(eq=False)
class _Watched:
    """A block of devices in one window: who they are, and which of their answers were seen in the store."""

    block: BlockWindow
    events: TellingEvents
    shape: Shape
    alpha: float
    settled_at: float | None = None
    logs: dict[Key, Seen] = field(default_factory=dict)

    def __post_init__(self) -> None:
        survey, rows = self.block.plan.survey, self.block.rows
        self.shards = shards_of(self.block.tokens, survey.shards)
        places = token_places(self.block.tokens[:, :TOKEN_NAME_BYTES], self.shards)
        self._order = np.argsort(places)
        self._places = places[self._order]
        self.seen = np.zeros((survey.mechanism.rungs, rows), dtype=np.bool_)
        self._answers = np.zeros((survey.mechanism.rungs, rows, self.shape.width), dtype=np.uint8)

    def read(self, store: Store) -> None:
        """Look at the logs that changed since the last look."""
        survey_id, window_ms = self.block.plan.survey.id, self.block.window_ms
        keys = [Key(survey_id, window_ms, int(shard)) for shard in np.unique(self.shards)]
        now = store.log.seen(keys)
        changed = [key for key in keys if now[key] != self.logs.get(key)]
        for key, log in store.log.load(changed, self.shape, Table.of_log, whole=True).items():
            self._note(key.shard, log.entries)
            self.logs[key] = now[key]

    def _note(self, shard: int, entries: bytes) -> None:
        # A canary withdraws nothing; nobody else can withdraw its answers.
        found = unpack(entries, self.shape)
        places = token_places(found.tokens, np.full(len(found.tokens), shard))
        at = np.minimum(np.searchsorted(self._places, places), len(self._places) - 1)
        mine = self._places[at] == places
        rows, rungs = self._order[at[mine]], found.rungs[mine]
        self.seen[rungs, rows] = True
        self._answers[rungs, rows] = found.answers[mine]

    def finished(self, now: float) -> bool:
        """Tell whether everything that the broker has was seen, or has taken too long."""
        if self.settled_at is None:
            return False
        rows = np.flatnonzero(self.block.acked >= 0)
        arrived = bool(self.seen[self.block.acked[rows], rows].all())
        return arrived or now - self.settled_at > GIVE_UP_SECONDS

    def count(self) -> NDArray[np.int64]:
        """Count the events in the answers that were seen."""
        mechanism = self.block.plan.survey.mechanism
        values = index_of(list(self.block.values), mechanism.labels)
        return self.events.count(values, _as_drawn(self._answers, mechanism), self.seen)

    def added_to(self, before: EpsilonAudit | None, batch: NDArray[np.int64], now_ms: int) -> EpsilonAudit:
        """Return the audit of the survey with the counts of this block, as one batch."""
        known = [] if before is None else [_span(span) for span in before.spans]
        same = all(span.counts.shape == batch.shape for span in known)
        spans = add_batch(known, batch, self.alpha) if known and same else first_spans(batch)
        last = {} if before is None else before.last_windows
        return EpsilonAudit(
            version=VERSION,
            updated_ms=now_ms,
            alpha=self.alpha,
            answers=int(self.seen.sum()) + (0 if before is None else before.answers),
            lower_bounds=always_valid_bounds(spans, self.alpha).tolist(),
            spans=[
                SpanCounts(span.length, span.number, span.batches, span.counts.tolist(), list(span.before))
                for span in spans
            ],
            last_windows=last | {str(self.block.block): self.block.window_ms},
        )


def _as_drawn(answers: NDArray[np.uint8], mechanism: Specification) -> NDArray[Any]:
    """Return bytes [rung, device, width] in the form of `Drawn.answers`."""
    if mechanism.answer.kind == "bits":
        return answers
    return answers.view(mechanism.symbol_dtype)[:, :, 0]


class CanaryAuditor:
    """Watches the windows of canaries in a thread of its own. Use as a context manager.

    Surveys that are no canaries, or for which there are no telling events, are not watched.
    """

    def __init__(self, store: Store, *, clock: Clock = system_clock, look_seconds: float = LOOK_SECONDS) -> None:
        self._store, self._clock, self._look_seconds = store, clock, look_seconds
        self._state = StateLog(logger, "Redis (for the canary's audit; reports are sent all the same)")
        self._failures = FailureLog(logger, "the canary's audit")
        self._lock = threading.Lock()
        self._watched: list[_Watched] = []
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="canary-audit", daemon=True)

    def __enter__(self) -> CanaryAuditor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._thread.join(3.0)

    def opened(self, block: BlockWindow) -> None:
        """Begin to watch a block of devices in one window."""
        survey = block.plan.survey
        events = telling_events(survey.mechanism)
        if events is None or survey.canary is None or not block.rows:
            return
        with self._lock:
            self._watched.append(_Watched(block, events, Shape.of(survey), survey.canary.alpha))
            del self._watched[:-BLOCKS]

    def settled(self, block: BlockWindow) -> None:
        """Note that the broker has everything of a block."""
        with self._lock:
            for watched in self._watched:
                if watched.block is block:
                    watched.settled_at = time.monotonic()

    def _run(self) -> None:
        pause = self._look_seconds
        while not self._closed.wait(pause):
            began = time.monotonic()
            self._try(self.look)
            pause = max(self._look_seconds, REST * (time.monotonic() - began))
        self._try(lambda: self.look(last=True))

    def _try(self, look: Callable[[], None]) -> None:
        try:
            look()
        except StoreUnavailableError as error:
            self._state.down(error)
        except Exception as error:
            self._failures.met(error)
        else:
            self._state.up()

    def look(self, *, last: bool = False) -> None:
        """Read what is new, and count the blocks that are finished; the last time, all that have answers.

        Blocks are counted in the order of their windows, as the store remembers only the last one.

        Raises:
            StoreUnavailableError: the store did not answer; the next look goes on.
        """
        with self._lock:
            watched = list(self._watched)
        waiting: set[tuple[str, int]] = set()
        for one in watched:
            try:
                one.read(self._store)
            except StoreCorruptError as error:
                # A worker sets the log aside and counts it again from Kafka.
                logger.warning("a report log of the canary cannot be read: %s", error)
            place = one.block.plan.survey.id, one.block.block
            if place not in waiting and (last or one.finished(time.monotonic())):
                self._count(one)
                with self._lock:
                    self._watched.remove(one)
            else:
                waiting.add(place)

    def _count(self, watched: _Watched) -> None:
        """Add a block to the audit of its survey, unless it was added before."""
        if not watched.seen.any():
            return
        batch, block = watched.count(), watched.block
        survey_id, name = block.plan.survey.id, str(block.block)
        for _ in range(_ATTEMPTS):
            raw = self._store.states.get(survey_id, STATE)
            before = decode_audit(raw, survey_id)
            if before is not None and before.last_windows.get(name, -1) >= block.window_ms:
                return
            now_ms = self._clock()
            after = encode_audit(watched.added_to(before, batch, now_ms))
            if self._store.states.swap(survey_id, STATE, None, raw, after, now_ms + KEEP_MS):
                return
        # Contended on every attempt; this block is left out.


def _span(stored: SpanCounts) -> Span:
    counts = np.array(stored.counts, dtype=np.int64)
    return Span(stored.length, stored.number, stored.batches, counts, tuple(stored.before))
