"""The seam between folding and storing: what a store keeps, and the one atomic step that changes it.

Per (survey, window, shard) a store keeps a *log* of accepted reports (the truth), a *stamp* of 16 random bytes that is
new at every change, and the *tally* after exactly that log. Per (shard, topic, partition) it keeps the *offset* below
which everything for that shard is in the store. A writer names the stamp it folded on; if the store has another one,
nothing changes and the writer reloads and folds again. So a zombie, a replay or a second writer cannot corrupt a shard.
`docs/store.md` has the layout and the promises.

StoreError
├── StoreUnavailableError    the outcome is unknown; reload before folding again
└── StoreCorruptError        what was read cannot have been written by this version
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from estimators.tally import Tally
from producers.survey.survey import Survey
from producers.wire.layout import WORD_BYTES
from streams.store.entry import entry_bytes

if TYPE_CHECKING:
    from streams.worker.table import AnyTable

NO_STAMP: Final = b""
"""The stamp of a shard that was never written."""

STAMP_BYTES: Final = 16

DAY_MS: Final = 86_400_000

GRACE_MS: Final = DAY_MS
"""How much longer than its retention a window is kept. Shorter: a worker that lags loses what came in time; longer:
every user and window costs memory for longer."""

KEEP_MS: Final = 30 * DAY_MS
"""Life of keys that belong to no window (offsets, totals, marks), counted from their last change. Shorter: a topic that
rests for a while is read again from its start; longer: names of surveys that are gone stay behind."""

UNKNOWN_SURVEY: Final = "unknown"
"""Stands for the survey id in counters of what was rejected before its survey was known; no real id looks like it."""

MAX_RUNGS: Final = 255


class Key(NamedTuple):
    """One log: a survey id, the start of a window in ms, a shard number."""

    survey_id: str
    window_ms: int
    shard: int


@dataclass(frozen=True)
class Shape:
    """What folding and storing must know of a survey: its answers, the tally's dimensions, shards and life of a window.

    kind, size and width are those of `estimators.mechanism.Answer`. life_ms counts from the start of a window to the
    moment at which all its keys go.
    """

    kind: Literal["index", "bits"]
    size: int
    width: int
    rungs: int
    groups: int
    shards: int = 64
    life_ms: int = 7 * DAY_MS

    def __post_init__(self) -> None:
        if not 1 <= self.rungs <= MAX_RUNGS:
            raise ValueError(f"a ladder has 1 to {MAX_RUNGS} rungs; got {self.rungs}; shorten it")

    @classmethod
    def of(cls, survey: Survey) -> Shape:
        """Return the shape of a survey."""
        answer = survey.mechanism.answer
        return cls(
            kind=answer.kind,
            size=answer.size,
            width=answer.width,
            rungs=survey.mechanism.rungs,
            groups=survey.mechanism.groups,
            shards=survey.shards,
            life_ms=survey.windows.size_ms + survey.retention_ms + GRACE_MS,
        )

    @property
    def entry_bytes(self) -> int:
        """Length of an entry, a packed report, in bytes."""
        return entry_bytes(self.width, self.groups)

    @property
    def entry_words(self) -> int:
        """Length of an entry in words of 8 bytes."""
        return self.entry_bytes // WORD_BYTES

    @property
    def numbers(self) -> int:
        """Length of the flat tally: users [rung, group], then counts [rung, group, cell]."""
        return self.rungs * self.groups * (1 + self.size)

    def expires_ms(self, window_ms: int) -> int:
        """Return when all keys of a window go: window end, retention and a day."""
        return window_ms + self.life_ms


@dataclass(frozen=True)
class Loaded:
    """A log as it stands: its stamp, its packed entries oldest first, the number of segments they lie in, its table."""

    stamp: bytes
    entries: bytes
    segments: int
    table: AnyTable


class Seen(NamedTuple):
    """What tells one state of a log from another: its stamp, and the number of segments it lies in."""

    stamp: bytes
    segments: int


@dataclass(frozen=True)
class Change:
    """What one batch does to one log, valid only on top of `stamp`.

    With no entries it only checks the stamp (the batch held duplicates alone) and adds to the counters.
    """

    key: Key
    stamp: bytes
    entries: bytes
    """Packed accepted entries to append, or the whole live log if `rewrite`."""
    rewrite: bool
    log_entries: int
    """Entries in the log after the change."""
    accepted: int
    patches: Sequence[tuple[int, bytes]]
    """Byte positions in `Tally.to_bytes()` and what stands there after the change; the first is the whole if new."""
    tally_bytes: int
    """Length of the stored tally."""
    shape: Shape
    counters: Mapping[str, int] = field(default_factory=dict)
    """duplicate, stale, conflict: what the batch held beside the accepted ones."""


@dataclass(frozen=True)
class ShardBatch:
    """All that one batch of messages does to one shard number, in one atomic step."""

    topic: str
    partition: int
    shard: int
    last_offset: int
    """The offset this writer stored last; a lower one in the store means that the store went back in time."""
    next_offset: int
    """Everything below it is in the store if all changes match; a stored offset is never lowered."""
    changes: Sequence[Change]


@dataclass(frozen=True)
class Outcome:
    """What became of a ShardBatch: all applied if there are no contended; nothing applied if the store went back."""

    regressed: bool
    contended: frozenset[Key]
    stamps: Mapping[Key, bytes]
    """The stamps of the logs now, for the changes that were applied."""


class QueuedWindow(NamedTuple):
    """A window whose stored estimate may be old, and the mark's score: microseconds, higher with every new mark."""

    survey_id: str
    window_ms: int
    score: float


class StoreError(Exception):
    """Something is wrong with the store."""


class StoreUnavailableError(StoreError):
    """The outcome of a call is unknown (connection lost, time-out): reload before folding again."""


class StoreCorruptError(StoreError):
    """A log or tally cannot have been written by this version; the message says which and what to do."""


class Store(Protocol):
    """What the worker, the recomputation and the exporter need. Any call may raise StoreUnavailableError."""

    def load(self, keys: Sequence[Key], shape: Shape) -> dict[Key, Loaded]:
        """Return the logs of these keys; a head or tally that disagrees with its log is rewritten: the log wins."""
        ...

    def offsets(self, topic: str, partition: int, shards: Iterable[int]) -> dict[int, int]:
        """Return the stored offset of each shard, 0 if there is none."""
        ...

    def apply(self, batches: Sequence[ShardBatch]) -> list[Outcome]:
        """Run one atomic step per batch, all in one round trip."""
        ...

    def seen(self, keys: Sequence[Key]) -> dict[Key, Seen]:
        """Return what tells one state of these logs from another, without reading them."""
        ...

    def replace(self, key: Key, seen: Seen, table: AnyTable) -> bool:
        """Put the entries of a table in the place of a log, readable or not, if nobody changed it since it was seen."""
        ...

    def count(self, survey_id: str, window_ms: int | None, counters: Mapping[str, int], expires_ms: int) -> None:
        """Add to counters of a survey, and of a window if given (rejected:REASON, expired); a crash may repeat it."""
        ...

    def mark_dirty(self, windows: Iterable[tuple[str, int]]) -> None:
        """Mark windows for recomputation."""
        ...

    def mark_after_restart(self) -> int:
        """Mark every window with counts if the store was started anew since somebody did this; return how many.

        A power cut can take a mark and leave the counts that it was for. Nobody reads those reports again, so without
        this the estimate would stay behind its counts until the window's next report.
        """
        ...

    def dirty(self) -> list[QueuedWindow]:
        """Return all marks, oldest first."""
        ...

    def clear_dirty(self, mark: QueuedWindow) -> bool:
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

    def save_estimate(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        """Store an estimate if the lock is still ours; a point (`streams.windows.history`) is added to its life."""
        ...

    def life(self, survey_id: str, window_ms: int) -> list[bytes]:
        """Return the points of a window's life, oldest first."""
        ...

    def estimate(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        ...

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        ...

    def counters(self, survey_id: str, window_ms: int | None = None) -> dict[str, int]:
        """Return applied, duplicate, stale, conflict, expired, rejected:REASON of a window, or of all ever if None.

        The first four are counted in the atomic step: no crash repeats them. They stand at 0 for a survey never seen.
        """
        ...

    def shard_reports(self, survey_id: str) -> list[int]:
        """Return the reports ever counted for each shard: applied, duplicate, stale and conflict; empty if unknown."""
        ...

    def state(self, survey_id: str, name: str, window_ms: int | None = None) -> bytes:
        """Return a small state of a survey, or of one of its windows; empty if there is none."""
        ...

    def swap_state(
        self, survey_id: str, name: str, window_ms: int | None, expected: bytes, new: bytes, expires_ms: int
    ) -> bool:
        """Replace a state if it still is `expected` (empty: none); says whether it did."""
        ...

    def durability_warnings(self) -> list[str]:
        """Say in plain words which promises this store's settings cannot keep."""
        ...
