"""The seam between folding and storing: what a store keeps, and the one atomic step that changes it.

Per (survey, window, shard) a store keeps a *log* of accepted reports (the truth), a *stamp* of 16 random bytes that is
new at every change, and the *tally* after exactly that log. Per (shard, topic, partition) it keeps the *offset* below
which everything for that shard is in the store. A writer names the stamp it folded on; if the store has another one,
nothing changes and the writer reloads and folds again. So a zombie, a replay or a second writer cannot corrupt a shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from estimators.tally import Tally

NO_STAMP = b""
"""The stamp of a shard that was never written."""


class Key(NamedTuple):
    """One log: a survey id, the start of a window in ms, a shard number."""

    survey_id: str
    window_ms: int
    shard: int


@dataclass(frozen=True)
class Shape:
    """What a store must know of a survey: packed record size, answer kind and size, rungs and groups of the tally."""

    kind: str
    size: int
    width: int
    rungs: int
    groups: int

    @property
    def record_bytes(self) -> int:
        """13 bytes of token, rung, answer, group if any, rounded up to a multiple of 8."""
        raw = 13 + 1 + self.width + (2 if self.groups > 1 else 0)
        return raw + -raw % 8


@dataclass(frozen=True)
class Loaded:
    """A log as it stands: its stamp and its packed records, oldest first."""

    stamp: bytes
    records: bytes


@dataclass(frozen=True)
class Change:
    """What one batch does to one log, valid only on top of `stamp`."""

    key: Key
    stamp: bytes
    records: bytes
    """Packed accepted records to append, or the whole live log if `rewrite`."""
    accepted: int
    rewrite: bool
    tally: Tally
    """The tally after the change (the store may write it whole or as `cells`)."""
    cells: Mapping[int, int]
    """Changed positions of the flat tally (users first, then counts) and their new values."""
    expires_ms: int
    counters: Mapping[str, int] = field(default_factory=dict)
    """duplicate, stale, conflict: may be repeated by a crash."""


@dataclass(frozen=True)
class ShardBatch:
    """All that one batch of messages does to one shard number, in one atomic step."""

    topic: str
    partition: int
    shard: int
    last_offset: int
    """The offset this writer stored last; a lower one in the store means that the store went back in time."""
    next_offset: int
    changes: Sequence[Change]


@dataclass(frozen=True)
class Outcome:
    """What became of a ShardBatch: all applied if there are no conflicts."""

    went_back: bool
    conflicts: frozenset[Key]


class Dirty(NamedTuple):
    """A window whose stored estimate may be old, and the mark's score (changes with every new mark)."""

    survey_id: str
    window_ms: int
    score: float


class StoreUnavailable(Exception):
    """The outcome of a call is unknown (connection lost, time-out): reload before folding again."""


class Store(Protocol):
    """What the worker, the recomputation and the exporter need. Any call may raise StoreUnavailable."""

    def load(self, keys: Sequence[Key], shape: Shape) -> dict[Key, Loaded]:
        """Return the logs of these keys; where head or tally disagree with the log, the log wins and they are rewritten."""
        ...

    def offsets(self, topic: str, partition: int, shards: Iterable[int]) -> dict[int, int]:
        """Return the stored offset of each shard, 0 if there is none."""
        ...

    def apply(self, batches: Sequence[ShardBatch]) -> list[Outcome]:
        """Run one atomic step per batch, all in one round trip."""
        ...

    def count(self, survey_id: str, window_ms: int | None, counters: Mapping[str, int], expires_ms: int) -> None:
        """Add to counters that may be repeated by a crash (rejected:REASON, expired, ...)."""
        ...

    def mark_dirty(self, windows: Iterable[tuple[str, int]]) -> None:
        """Mark windows for recomputation."""
        ...

    def dirty(self) -> list[Dirty]:
        """Return all marks, oldest first."""
        ...

    def clear_dirty(self, mark: Dirty) -> bool:
        """Remove the mark if its score has not changed."""
        ...

    def lock(self, survey_id: str, window_ms: int, ttl_ms: int) -> bytes | None:
        """Try to take the short lock of a window; the returned secret proves ownership."""
        ...

    def unlock(self, survey_id: str, window_ms: int, secret: bytes) -> None:
        """Give the lock back if it is still ours."""
        ...

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        """Return the sum of the shard tallies of a window."""
        ...

    def save_estimate(self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int) -> bool:
        """Store an estimate if the lock is still ours."""
        ...

    def estimate(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        ...

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        ...

    def counters(self, survey_id: str, window_ms: int | None = None) -> dict[str, int]:
        """Return applied (exact), duplicate, stale, conflict, expired, rejected:REASON; of all windows if None."""
        ...

    def durability_warnings(self) -> list[str]:
        """Say in plain words which promises this store's settings cannot keep."""
        ...
