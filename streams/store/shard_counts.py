"""What was counted for one shard of a window, and from where."""

from __future__ import annotations

from dataclasses import dataclass

from estimators.tally import Tally


@dataclass(frozen=True)
class ShardCounts:
    """The counts of one shard of a window, and where they come from, all at one moment."""

    tally: Tally
    stamp: bytes
    """That of the log; NO_STAMP if nothing was counted."""
    offset: int
    """Everything of the shard below it is counted."""
    limit: int | None
    """Nothing from this offset on is counted; None: not known."""
    entries: bytes | None = None
    """The log, if it was asked for."""
    changed: bool = False
    """It was asked for and is missing: it is long, and changed while it was read."""

    @property
    def exact(self) -> bool:
        """Tell whether the counts are those of everything below the offset, and of nothing else."""
        return not self.stamp or (self.limit is not None and self.limit <= self.offset)
