"""Whether a report log contradicts its head or its tally in a way that no crash explains.

`apply_batch.lua` writes the log first, then the tally, then the head. A crash keeps the first of these writes, so a log
may be ahead of what head and tally claim, by what was appended or by a rewrite that leaves one segment. A log that is
shortened or replaced was announced in its head before. It never lacks anything, and with a head that agrees the tally
agrees too. Whatever else is found was changed by somebody else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from estimators.tally import Tally


def contradiction(
    head: Sequence[bytes | None],
    segments: int,
    entries: int,
    stored: bytes | None,
    tally: Tally,
    coming: bytes | None = None,
) -> str | None:
    """Return what contradicts, None if a crash explains it.

    Args:
        head: numbers of segments and entries of the log as its head claims.
        segments: the number there is.
        entries: the number there is.
        stored: the stored tally, None if there is none.
        tally: the tally of the entries.
        coming: both numbers of the log that was about to take its place, or to be what is left of it.
    """
    if coming == b"%d %d" % (segments, entries):
        return None
    claimed = _readable(stored, tally)
    if head == [b"%d" % segments, b"%d" % entries]:
        # A tally that is gone or is none is made again. One with other numbers shows that it or the log was changed.
        return None if claimed is None or claimed == tally else "its tally is that of other entries"
    chunks, records = (int(raw) if raw is not None and raw.isdigit() else None for raw in head)
    if chunks is not None and segments <= chunks and (segments != 1 or claimed is None):
        return f"its head has {chunks} segments with {records} entries; there are {segments} with {entries}"
    if claimed is not None and np.any(_up_to(claimed) > _up_to(tally)):
        return f"its tally has {claimed.total_users} users on their rungs; its entries have {tally.total_users}"
    return None


def _readable(stored: bytes | None, tally: Tally) -> Tally | None:
    try:
        found = None if stored is None else Tally.from_bytes(stored)
    except ValueError:
        return None
    if found is not None and found.shape[1:] == tally.shape[1:] and len(found.users) < len(tally.users):
        return found.with_rungs(len(tally.users))  # the ladder has grown since
    return found if found is not None and found.shape == tally.shape else None


def _up_to(tally: Tally) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return how many users have reached each rung: it never sinks, whatever is counted."""
    return np.cumsum(tally.users.sum(axis=1)[::-1])[::-1]
