"""The only state of an estimate: how many users sit on each rung and what they answered."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Counts = NDArray[np.int64]

_HEADER = struct.Struct("<4sIII")
_MAGIC = b"TLY1"

_PAIRS_FROM = 200_000
"""Below so many answers, summing the table of pairs costs more than it saves."""


@dataclass(frozen=True, eq=False)
class Tally:
    """Counts [rung, group, cell] and users [rung, group]; add, take back, merge.

    A cell is an answer (kind `index`) or a bit position whose ones are counted (kind `bits`). Only the last answer of
    each user is in it.

    >>> a = Tally.empty(2, 1, 3)
    >>> a.counts[1, 0, 2] += 1
    >>> a.users[1, 0] += 1
    >>> (a + a) - a == a
    True
    """

    counts: Counts
    users: Counts

    def __post_init__(self) -> None:
        if self.counts.ndim != 3 or self.users.shape != self.counts.shape[:2]:
            raise ValueError(
                f"counts must be [rung, group, cell] and users [rung, group]; got {self.counts.shape} and "
                f"{self.users.shape}"
            )

    @classmethod
    def empty(cls, rungs: int, groups: int, cells: int) -> Tally:
        """Return a tally without users."""
        return cls(np.zeros((rungs, groups, cells), dtype=np.int64), np.zeros((rungs, groups), dtype=np.int64))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rungs, groups, cells."""
        rungs, groups, cells = self.counts.shape
        return rungs, groups, cells

    @property
    def total_users(self) -> int:
        """Users on all rungs and groups."""
        return int(self.users.sum())

    @property
    def by_rung(self) -> tuple[Counts, Counts]:
        """Counts [rung, cell] and users [rung], all groups together."""
        return self.counts.sum(axis=1), self.users.sum(axis=1)

    def with_rungs(self, rungs: int) -> Tally:
        """Return the same counts with further rungs above, as of a ladder that has grown."""
        further = rungs - len(self.users)
        if further == 0:
            return self
        counts = np.pad(self.counts, ((0, further), (0, 0), (0, 0)))
        return Tally(counts, np.pad(self.users, ((0, further), (0, 0))))

    def __add__(self, other: Tally) -> Tally:
        self._check_shape(other)
        return Tally(self.counts + other.counts, self.users + other.users)

    def __sub__(self, other: Tally) -> Tally:
        self._check_shape(other)
        return Tally(self.counts - other.counts, self.users - other.users)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tally):
            return NotImplemented
        return bool(np.array_equal(self.counts, other.counts) and np.array_equal(self.users, other.users))

    __hash__ = None  # type: ignore[assignment]  # arrays inside may change

    def _check_shape(self, other: Tally) -> None:
        if self.shape != other.shape:
            raise ValueError(f"tallies of different surveys cannot be combined: {self.shape} and {other.shape}")

    def to_bytes(self) -> bytes:
        """Return a self-describing little-endian form: users first, then counts."""
        return (
            _HEADER.pack(_MAGIC, *self.shape) + self.users.astype("<i8").tobytes() + self.counts.astype("<i8").tobytes()
        )

    @classmethod
    def from_bytes(cls, raw: bytes) -> Tally:
        """Read what to_bytes wrote; anything else is refused."""
        if len(raw) < _HEADER.size or raw[:4] != _MAGIC:
            raise ValueError("not a tally: the first four bytes must be TLY1")
        _, rungs, groups, cells = _HEADER.unpack_from(raw)
        cut = rungs * groups
        if len(raw) != _HEADER.size + 8 * (cut + cut * cells):
            raise ValueError(f"a tally of shape {(rungs, groups, cells)} cannot have {len(raw)} bytes")
        numbers = np.frombuffer(raw, dtype="<i8", offset=_HEADER.size).astype(np.int64)
        return cls(numbers[cut:].reshape(rungs, groups, cells), numbers[:cut].reshape(rungs, groups))


def count_symbols(answers: NDArray[np.unsignedinteger], size: int) -> Counts:
    """Count how often each of `size` symbols occurs among answers of kind `index`, shape (n,), all below `size`.

    One-byte symbols are counted in pairs, as two-byte numbers: half as many steps, and the table of pairs still fits
    the cache.

    >>> count_symbols(np.array([2, 0, 2], dtype=np.uint8), 3).tolist()
    [1, 0, 2]
    """
    if answers.dtype != np.uint8 or not answers.flags.c_contiguous or len(answers) < _PAIRS_FROM:
        return np.bincount(answers, minlength=size)
    even = len(answers) & ~1
    pairs = np.bincount(answers[:even].view(np.uint16), minlength=1 << 16).reshape(256, 256)
    counts = pairs.sum(axis=0) + pairs.sum(axis=1)
    if even < len(answers):
        counts[answers[-1]] += 1
    # A symbol out of range must not vanish: the result is then longer than `size`, as bincount's would be.
    return np.asarray(counts[: max(size, int(np.flatnonzero(counts)[-1]) + 1)], dtype=np.int64)
