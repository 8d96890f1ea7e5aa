"""The seam between counting and storing: a few small protocols, and the one atomic step that changes a report log.

Per (survey, window, shard) a store keeps a *report log* of accepted reports (the truth), a *stamp* of 16 random bytes
that is new at every change, and the *tally* after exactly that log. Per (shard, topic, partition) it keeps the *offset*
below which everything for that shard is in the store. A writer names the stamp it folded on; if the store has another
one, the log is contended: nothing changes, and the writer reloads and folds again. So a zombie, a replay or a second
writer cannot corrupt a shard. A log may hold reports from behind the offset (of a zombie, of a rebuild, or where
another log of the batch was contended), so each log has its *limit*, the offset before which all its reports lie.
`docs/store.md` has the layout and the guarantees.

StoreError
├── StoreUnavailableError    the outcome is unknown; reload before folding again
│   ├── StoreRepairedError   the same, and something in the way was removed: call again at once
│   └── StoreDeniedError     the store refuses this user; a worker waits for the right
└── StoreCorruptError        what was read cannot have been written by this version
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from estimators.tally import Tally
from streams.failures import UnavailableError
from streams.store.counters import Counters
from streams.store.log_content import Content, FoldEntries, Loaded, LogContent
from streams.store.shape import Key, Shape
from streams.store.shard_counts import ShardCounts

NO_STAMP: Final = b""
"""The stamp of a report log that was never written."""

STAMP_BYTES: Final = 16

HISTORY_POINTS: Final = 160
"""Points kept per estimate history. Fewer: a chart with corners; more: memory and bytes to send for every window."""


class StoreError(Exception):
    """Something is wrong with the store."""


class StoreUnavailableError(StoreError, UnavailableError):
    """The outcome of a call is unknown (connection lost, time-out): reload before folding again."""

    def sentence(self) -> str:
        """Return it for a person, with the remedy."""
        return f"Redis does not answer: {self}; check THAW_REDIS"


class StoreRepairedError(StoreUnavailableError):
    """The call met something in the store that can only be removed, and removed it: call again."""


class StoreDeniedError(StoreUnavailableError):
    """The store refuses this user: a wrong password or a missing right. The message names it."""

    exit_status = 1

    def sentence(self) -> str:
        """Return it for a person: the message has the remedy."""
        return str(self)


class StoreCorruptError(StoreError):
    """A log or tally cannot have been written by this version; the message says which and what to do.

    `logs` are the logs concerned, each as it was seen. `readable` are those among them whose entries can be read, with
    what they add up to: they lack entries that head or tally claim, or the tally is not that of the entries.
    """

    def __init__(
        self, message: str, logs: Mapping[Key, Seen], readable: Mapping[Key, LogContent] | None = None
    ) -> None:
        super().__init__(message)
        self.logs, self.readable = dict(logs), dict(readable or {})


class Seen(NamedTuple):
    """What tells one state of a report log from another: its stamp and its number of segments."""

    stamp: bytes
    segments: int


class Shortened(NamedTuple):
    """What a report log is seen as after entries were dropped that others have replaced, and how many they were."""

    stamp: bytes
    segments: int
    dropped: int


@dataclass(frozen=True)
class Change:
    """What one batch does to one report log, valid only on top of `stamp`.

    With no entries it only checks the stamp (the batch held duplicates alone) and adds to the counters.
    """

    key: Key
    stamp: bytes
    entries: bytes
    """Packed accepted entries to append, or the whole live log if `rewrite`."""
    rewrite: bool
    log_entries: int
    """Entries in the log after the change."""
    patches: Sequence[tuple[int, bytes]]
    """Byte positions in `Tally.to_bytes()` and the bytes there after the change; the first is the whole if new."""
    tally_bytes: int
    """Length of the stored tally."""
    shape: Shape
    counters: Counters
    """applied, duplicate, outdated and conflicting reports of the batch."""


@dataclass(frozen=True)
class ShardBatch:
    """All that one batch of messages does to one shard number, in one atomic step."""

    topic: str
    partition: int
    shard: int
    last_offset: int
    """The offset this writer stored last; a lower one in the store means that acknowledged writes were lost."""
    next_offset: int
    """Everything below it is in the store if all changes match; a stored offset is never lowered."""
    changes: Sequence[Change]
    limit: int | None = 0
    """All reports of the changes lie below this offset; a writer that may not raise the offset gives it too. None:
    the writer counts another topic too, whose offsets mean other records; the limits of the logs are not known then."""


@dataclass(frozen=True)
class Outcome:
    """The result of a ShardBatch: all applied if no log is contended; nothing applied if the offset regressed."""

    contended: frozenset[Key]
    stamps: Mapping[Key, bytes]
    """The stamps of the logs now, for the changes that were applied."""
    regressed_to: int | None = None
    """The stored offset, if it is lower than the one the writer stored last."""

    @property
    def regressed(self) -> bool:
        """Tell whether the store lost acknowledged writes."""
        return self.regressed_to is not None


class QueuedWindow(NamedTuple):
    """An entry of the recompute queue. The score is a time in microseconds, higher every time the window is put."""

    survey_id: str
    window_ms: int
    score: float


class ReportLog(Protocol):
    """Report logs, offsets, and counters of reports. Any call may raise StoreUnavailableError."""

    def load(
        self, keys: Sequence[Key], shape: Shape, fold: FoldEntries[Content], *, whole: bool = False
    ) -> dict[Key, Loaded[Content]]:
        """Return the logs of these keys, with their entries if they are to be `whole`.

        A head or tally that lags behind its log is rewritten: the log wins.

        Raises:
            StoreCorruptError: with all logs among them that cannot be read, or that contradict their head or tally as
                no crash explains it; the others were repaired where necessary.
        """
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

    def replace(self, key: Key, seen: Seen, content: LogContent, *, limit: int | None = None) -> bool:
        """Replace a log, readable or not, unless it changed since it was seen; return whether it was replaced.

        All reports of the new content lie below the offset `limit`; None: not known.
        """
        ...

    def shorten(self, key: Key, seen: Seen, keep: Callable[[bytes], bytes], shape: Shape) -> Shortened | None:
        """Take a piece of the oldest entries out and append what `keep` returns of them, in one atomic step.

        Returns None, and changes nothing, if the log changed since it was seen.
        """
        ...

    def set_aside(self, key: Key, seen: Seen) -> bool:
        """Move a log that cannot be read out of the way, unless it changed since it was seen; return whether it was.

        The log is empty afterwards, and what is left of the old one is kept beside it. The window must be in
        `Store.unreadable` before, so that it is rebuilt.
        """
        ...

    def distrust(self, key: Key, seen: Seen) -> bool:
        """Forget what head and tally claim about a log, unless it changed since seen; return whether that was done.

        The next `load` makes both again from what is left of the log. The window must be in `Store.unreadable` before,
        so that it is rebuilt.
        """
        ...

    def count(self, survey_id: str, window_ms: int | None, counters: Counters, expires_ms: int) -> None:
        """Add expired and rejected reports of a survey, and of a window if given; a crash may repeat it."""
        ...

    def counters(self, survey_id: str, window_ms: int | None = None) -> Counters:
        """Return the counters of a window, or of the survey since its first report; zeros if it is unknown."""
        ...

    def shard_reports(self, survey_id: str) -> list[int]:
        """Return `Counters.counted` of each shard since the first report; empty if the survey is unknown."""
        ...


class WindowQueue(Protocol):
    """Windows for which something is to be done, and one short lock per window. No leader is needed.

    Any call may raise StoreUnavailableError.
    """

    def put(self, windows: Iterable[tuple[str, int]]) -> None:
        """Put windows (survey id, start) into the queue; one that is there gets a higher score."""
        ...

    def entries(self) -> list[QueuedWindow]:
        """Return all queued windows, oldest first."""
        ...

    def remove(self, window: QueuedWindow) -> bool:
        """Remove a window unless it was put again since it was read; return whether it was removed."""
        ...

    def lock(self, survey_id: str, window_ms: int, ttl_ms: int) -> bytes | None:
        """Try to take the short lock of a window; the returned secret proves ownership."""
        ...

    def unlock(self, survey_id: str, window_ms: int, secret: bytes) -> None:
        """Release the lock if the secret still holds it."""
        ...


class RecomputeQueue(WindowQueue, Protocol):
    """Windows whose tally changed since their estimate."""

    def put_after_restart(self, for_ms: int | None = None) -> int:
        """Put every window with counts, once after each restart of the store; return how many this call put.

        A call that took `for_ms` stops looking for windows; the next one goes on where it stopped.

        A power cut can take a queued window and leave the counts that it was queued for. Those reports are not read
        again, so without this the estimate would stay behind its counts until the window's next report.
        """
        ...


class EstimateStore(Protocol):
    """Tallies to estimate from, estimates and their histories. Any call may raise StoreUnavailableError."""

    def tally(self, survey_id: str, window_ms: int, shards: int, shape: Shape) -> Tally:
        """Return the sum of the shard tallies of a window.

        Raises:
            StoreCorruptError: with the logs whose tallies cannot be read or are missing; `ReportLog.load` repairs them.
        """
        ...

    def counts(
        self,
        survey_id: str,
        window_ms: int,
        shape: Shape,
        *,
        topic: str,
        partitions: int,
        known: Sequence[bytes] | None = None,
    ) -> list[ShardCounts]:
        """Return the counts of every shard of a window, each shard at one moment, with the offset of its partition.

        Args:
            survey_id: the survey.
            window_ms: the start of the window.
            shape: the survey's shape, with its number of shards.
            topic: the topic of reports.
            partitions: number of its partitions.
            known: a stamp for each shard: the logs that have another one are returned too, except those that
                changed while they were read. None: no logs.

        Raises:
            StoreCorruptError: with the logs whose tallies cannot be read; `ReportLog.load` repairs them.
        """
        ...

    def save(
        self, survey_id: str, window_ms: int, secret: bytes, payload: bytes, expires_ms: int, *, point: bytes = b""
    ) -> bool:
        """Store an estimate if the secret still holds the window's lock; add the point to the estimate history.

        A point is `streams.windows.history.encode_point` of the estimate. Beyond HISTORY_POINTS, each new point
        replaces the one whose neighbours are closest to each other in time.
        """
        ...

    def read(self, survey_id: str, window_ms: int) -> bytes | None:
        """Return the stored estimate of a window."""
        ...

    def read_many(self, windows: Sequence[tuple[str, int]]) -> list[bytes | None]:
        """Return the stored estimates of windows (survey id, start), in their order, in one round trip."""
        ...

    def history(self, survey_id: str, window_ms: int) -> list[bytes]:
        """Return the points of a window's estimate history, oldest first."""
        ...

    def window_starts(self, survey_id: str) -> list[int]:
        """Return the starts of the windows that have an estimate, oldest first."""
        ...


class SmallStates(Protocol):
    """A few bytes by name, replaced by compare-and-set. Any call may raise StoreUnavailableError."""

    def get(self, survey_id: str, name: str, window_ms: int | None = None) -> bytes:
        """Return a state of a survey, or of one of its windows; empty if there is none."""
        ...

    def swap(
        self, survey_id: str, name: str, window_ms: int | None, expected: bytes, new: bytes, expires_ms: int
    ) -> bool:
        """Replace a state if it still is `expected` (empty: none); return whether it was replaced."""
        ...


class Store(Protocol):
    """All together. Code that needs one of them takes that one."""

    @property
    def log(self) -> ReportLog:
        """Report logs, offsets and counters."""
        ...

    @property
    def queue(self) -> RecomputeQueue:
        """Windows to estimate again."""
        ...

    @property
    def unreadable(self) -> WindowQueue:
        """Windows with a report log that cannot be read, to be rebuilt from Kafka."""
        ...

    @property
    def estimates(self) -> EstimateStore:
        """Tallies, estimates and histories."""
        ...

    @property
    def states(self) -> SmallStates:
        """Small states."""
        ...

    def now_ms(self) -> int:
        """Return the time by which the store lets windows expire: what is gone is gone by no other clock."""
        ...
