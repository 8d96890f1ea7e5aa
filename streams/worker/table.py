"""The latest answer of every user of one (survey, window, shard), and the tally of them.

A report wins if its rung is higher than what is held for its token, or its rung is the same and its hash is greater
(`streams.worker.precedence`). So the table is a maximum over the *set* of reports: duplicates, replays and any order
give the same tally.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from estimators.tally import Tally
from producers.wire.layout import TOKEN_NAME_BYTES
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.store.shape import Shape
from streams.worker import kernels
from streams.worker.spans import changed_spans
from streams.worker.words import Ints, Words

_SMALLEST: Final = 256
_TALLY_HEADER_BYTES: Final = len(Tally.empty(1, 1, 1).to_bytes()) - 16

PATCH_GAP: Final = 150
"""Unchanged cells between two changed ones that are written along. A command of its own costs Redis about as much as
this many cells: smaller writes more commands, larger more bytes."""


def _fresh_seed() -> Words:
    return np.frombuffer(secrets.token_bytes(32), dtype=np.uint64) | np.uint64(1)


_SEED: Final = _fresh_seed()
"""Of this process. Devices choose their tokens: without a secret in the hash they could all be aimed at one slot."""


@dataclass(frozen=True)
class Folded:
    """What a batch did to a table: the entries that won, in order and packed, and how many did not."""

    accepted: Words
    duplicate: int
    outdated: int
    conflicting: int
    """Same token and rung, another answer: a broken device. The greater hash is held, and may be among `accepted`."""


class Table:
    """Open addressing in one array of packed entries; compiled. Holds about 16 / 0.45 bytes a user.

    Not safe for use by several threads at once. `tests.support.plain_table` has the same with a dict and a loop.
    """

    def __init__(self, shape: Shape, *, seed: Words = _SEED) -> None:
        self.shape = shape
        self.numbers: Ints = np.zeros(shape.numbers, dtype=np.int64)
        """The flat tally: users [rung, group], then counts [rung, group, cell]."""
        self._seed = seed
        self._live = 0
        self._slots: Words = np.zeros((_SMALLEST, shape.entry_words), dtype=np.uint64)

    @classmethod
    def of_log(cls, shape: Shape, log: bytes) -> Self:
        """Return the table of packed entries that lie back to back.

        Raises:
            ValueError: they cannot be of this survey.
        """
        table = cls(shape)
        table.fold_log(log)
        return table

    def __len__(self) -> int:
        """Return the number of users."""
        return self._live

    @property
    def nbytes(self) -> int:
        """Return the bytes of the slots and of the tally."""
        return self._slots.nbytes + self.numbers.nbytes

    def fold(self, entries: Words) -> Folded:
        """Fold packed entries, one a row, in order; the table grows as needed.

        Raises:
            ValueError: an entry cannot be of this survey; the table must not be used any more.
        """
        shape = self.shape
        # Read from Kafka or from a log, they have one type: the loop is compiled for one.
        if entries.flags.writeable:
            entries = entries.view()
            entries.flags.writeable = False
        accepted = np.empty(len(entries), dtype=np.int64)
        state = np.zeros(kernels.STATE_FIELDS, dtype=np.int64)
        state[kernels.LIVE] = self._live
        position = 0
        while True:
            position = kernels.fold_entries(
                self._slots,
                _shift(self._slots),
                self._seed,
                entries,
                position,
                self.numbers,
                shape.kind == "bits",
                shape.size,
                shape.width,
                shape.rungs,
                shape.groups,
                accepted,
                state,
            )
            if state[kernels.BROKEN]:
                raise self._broken(entries[position])
            if position == len(entries):
                break
            self.grow()
        self._live = int(state[kernels.LIVE])
        count = int(state[kernels.ACCEPTED])
        return Folded(
            entries if count == len(entries) else entries[accepted[:count]],
            int(state[kernels.DUPLICATE]),
            int(state[kernels.OUTDATED]),
            int(state[kernels.CONFLICTING]),
        )

    def grow(self) -> None:
        """Double the number of slots; `fold` does so when they are needed."""
        larger: Words = np.zeros((2 * len(self._slots), self._slots.shape[1]), dtype=np.uint64)
        kernels.rehash(self._slots, larger, _shift(larger), self._seed)
        self._slots = larger

    def live(self) -> bytes:
        """Return one packed entry per user, in the order of the slots: the shortest log that gives this table."""
        held: Words = self._slots[self._slots[:, 1] != 0]
        return held.tobytes()

    def fold_log(self, log: bytes) -> Folded:
        """Fold packed entries that lie back to back."""
        size = self.shape.entry_bytes
        if len(log) % size:
            raise ValueError(f"a log of this survey is a multiple of {size} bytes; got {len(log)}")
        return self.fold(np.frombuffer(log, dtype=np.uint64).reshape(-1, self.shape.entry_words))

    def kept(self, log: bytes) -> bytes:
        """Return those of packed entries that are held, in order: what a part of a log must not lose."""
        entries = np.frombuffer(log, dtype=np.uint64).reshape(-1, self.shape.entry_words)
        found = np.empty(len(entries), dtype=np.int64)
        count = kernels.held_entries(self._slots, _shift(self._slots), self._seed, entries, found)
        return log if count == len(entries) else entries[found[:count]].tobytes()

    def tally(self) -> Tally:
        """Return the tally of the held entries (a copy)."""
        shape = self.shape
        cut = shape.rungs * shape.groups
        return Tally(
            self.numbers[cut:].copy().reshape(shape.rungs, shape.groups, shape.size),
            self.numbers[:cut].copy().reshape(shape.rungs, shape.groups),
        )

    def _broken(self, entry: NDArray[Any]) -> ValueError:
        return ValueError(
            f"a packed entry has a rung below {self.shape.rungs}, a group below {self.shape.groups} and an answer of "
            f"kind {self.shape.kind} and size {self.shape.size}; got the bytes {entry.tobytes()[RUNG_AT:].hex()} "
            "after the token; another version or another survey wrote it"
        )


def _shift(slots: Words) -> int:
    return 64 - (len(slots).bit_length() - 1)


@dataclass(frozen=True)
class Unpacked:
    """The columns of packed entries: tokens (n, 13) u1, rungs (n,), answers (n, width) u1, groups (n,)."""

    tokens: NDArray[np.uint8]
    rungs: NDArray[np.int64]
    answers: NDArray[np.uint8]
    groups: NDArray[np.int64]


def unpack(log: bytes, shape: Shape) -> Unpacked:
    """Read packed entries back, for example to see which rung the store holds for a token."""
    rows = np.frombuffer(log, dtype=np.uint8).reshape(-1, shape.entry_bytes)
    groups = np.zeros(len(rows), dtype=np.int64)
    end = ANSWER_AT + shape.width
    if shape.groups > 1:
        groups += rows[:, end] + (rows[:, end + 1].astype(np.int64) << 8)
    names, answers = rows[:, :TOKEN_NAME_BYTES], rows[:, ANSWER_AT:end]
    return Unpacked(names, rows[:, RUNG_AT].astype(np.int64) - 1, answers, groups)


def patches(before: Ints, after: Ints) -> Sequence[tuple[int, bytes]]:
    """Return what must be written over `Tally.to_bytes()` of `before` to get that of `after`.

    Cells that lie close together share a patch, so a small tally is written whole and a large one in pieces.
    """
    spans = np.empty((len(after) // PATCH_GAP + 1, 2), dtype=np.int64)
    count = changed_spans(before, after, PATCH_GAP, spans)
    return [(_TALLY_HEADER_BYTES + 8 * first, after[first:last].tobytes()) for first, last in spans[:count].tolist()]


def tally_bytes(shape: Shape) -> int:
    """Return the length of `Tally.to_bytes()` for this shape."""
    return _TALLY_HEADER_BYTES + 8 * shape.numbers
