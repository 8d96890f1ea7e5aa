"""Tallies of a ladder that has grown: a survey that continues another one is counted where that one is.

Rungs of the shorter ladder are the first of the longer one, so a tally of the shorter one only lacks rungs that nobody
is on. The other way round a process does not know the survey of today and must leave its counts alone.
"""

from __future__ import annotations

from estimators.tally import Tally
from streams.failures import OutsideError
from streams.store.contract import StoreError
from streams.store.shape import Shape


class LongerLadderError(StoreError, OutsideError):
    """Counts have rungs of a survey file that this process does not have. Nothing is wrong with them."""


def fitted(raw: bytes, shape: Shape, place: str) -> Tally:
    """Return a stored tally with all rungs of the survey.

    Args:
        raw: as it is stored.
        shape: that of the survey.
        place: names it in messages.

    Raises:
        ValueError: this is no tally of the survey.
        LongerLadderError: it has more rungs than the survey.
    """
    found = Tally.from_bytes(raw)
    rungs, groups, cells = found.shape
    if (groups, cells) == (shape.groups, shape.size):
        if rungs > shape.rungs:
            raise LongerLadderError(
                f"{place} has {rungs} rungs and the survey here {shape.rungs}: another survey continues it; put its "
                "file into the folder of surveys of every worker, and keep it there until these windows have expired"
            )
        return found.with_rungs(shape.rungs)
    wanted = shape.rungs, shape.groups, shape.size
    raise ValueError(f"the tally of this survey has the shape {wanted}; got {found.shape}")


def refuse_longer(raw: bytes | None, shape: Shape, place: str) -> None:
    """Raise LongerLadderError if a stored tally, readable or not, has more rungs than the survey."""
    try:
        if raw is not None:
            fitted(raw, shape, place)
    except ValueError:
        return
