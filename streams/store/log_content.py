"""What the entries of a report log add up to, and the pieces in which a log is written and read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from estimators.tally import Tally
from streams.store.shape import Shape

PIECE_BYTES: Final = 1 << 19
"""Longest segment of a log, and the most that is read of a log at once. Shorter: more round trips for large logs;
longer: memory of the store and of workers for each of them."""


class LogContent(Protocol):
    """What the entries of a report log add up to; `streams.worker.table.Table` is one.

    The store checks stored summaries against it and never looks into entries itself.
    """

    @property
    def shape(self) -> Shape:
        """The shape of the survey."""
        ...

    def __len__(self) -> int:
        """Return the number of users."""
        ...

    def fold_log(self, log: bytes) -> object:
        """Add further entries; raises ValueError if they cannot be of this survey."""
        ...

    def live(self) -> bytes:
        """Return one packed entry per user: the shortest log with this content."""
        ...

    def tally(self) -> Tally:
        """Return the tally of the users."""
        ...


Content = TypeVar("Content", bound=LogContent)

FoldEntries = Callable[[Shape, bytes], Content]
"""Folds the entries of a log; raises ValueError if they cannot be of this survey."""


@dataclass(frozen=True)
class Loaded(Generic[Content]):
    """A report log: its stamp, how many segments and entries it has, and their content."""

    stamp: bytes
    segments: int
    log_entries: int
    content: Content
    repaired: bool = False
    """Head or tally were made again by this call: an estimate may have been computed from the wrong ones."""
    whole: bytes | None = None
    """The packed entries, if they were asked for."""

    @property
    def entries(self) -> bytes:
        """The packed entries of a log that was asked for as a whole, oldest first."""
        assert self.whole is not None, "load it with whole=True"
        return self.whole


def pieces_of(entries: bytes, entry_bytes: int) -> list[bytes]:
    """Cut packed entries into segments.

    >>> [len(piece) for piece in pieces_of(bytes(16 * 40_000), 16)]
    [524288, 115712]
    """
    if len(entries) <= PIECE_BYTES:
        return [entries]
    most = _most(entry_bytes)
    return [entries[start : start + most] for start in range(0, len(entries), most)]


def piece_count(size: int, entry_bytes: int) -> int:
    """Return how many pieces packed entries of this many bytes are cut into."""
    return 1 if size <= PIECE_BYTES else -(-size // _most(entry_bytes))


def is_piece(entries: int, entry_bytes: int) -> bool:
    """Tell whether so many entries fit into one segment."""
    return entries * entry_bytes <= PIECE_BYTES


def _most(entry_bytes: int) -> int:
    return max(PIECE_BYTES // entry_bytes, 1) * entry_bytes
