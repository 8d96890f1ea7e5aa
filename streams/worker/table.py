"""The latest answer of every user of one (survey, window, shard), and the tally of them.

A report wins if (rung, answer and group bytes read as one little-endian number) is greater than what is held for its
token. So the table is a maximum over the *set* of reports: duplicates, replays and any order give the same tally.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from estimators.tally import Tally
from producers.wire.layout import GROUP_BYTES, TOKEN_NAME_BYTES
from streams.store.contract import Shape
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.worker import kernels
from streams.worker.kernels import Ints, Words

_SMALLEST: Final = 256
_TALLY_HEADER_BYTES: Final = len(Tally.empty(1, 1, 1).to_bytes()) - 16

PATCH_GAP: Final = 150
"""Unchanged cells between two changed ones that are written along. A command of its own costs Redis about as much as
this many cells: smaller writes more commands, larger more bytes."""


def _fresh_seed() -> Words:
    return np.frombuffer(secrets.token_bytes(32), dtype=np.uint64) | np.uint64(1)


_SEED: Final = _fresh_seed()
"""Of this process. Tokens come from strangers: without a secret in the hash they could all be aimed at one slot."""


@dataclass(frozen=True)
class Folded:
    """What a batch did to a table: the records that won, in order and packed, and how many did not."""

    accepted: Words
    duplicate: int
    stale: int
    conflict: int
    """Same token and rung, another answer: a broken device. The greater one is held, and may be among `accepted`."""


class AnyTable(ABC):
    """What both implementations offer. Not safe for use by several threads at once."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.numbers: Ints = np.zeros(shape.numbers, dtype=np.int64)
        """The flat tally: users [rung, group], then counts [rung, group, cell]."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of users."""

    @property
    @abstractmethod
    def nbytes(self) -> int:
        """Return about how much memory it takes."""

    @abstractmethod
    def fold(self, records: Words) -> Folded:
        """Fold packed records, one a row, in order.

        Raises:
            ValueError: a record cannot be of this survey; the table must not be used any more.
        """

    @abstractmethod
    def live(self) -> bytes:
        """Return the held records, packed, in no particular order: the shortest log that gives this table."""

    def fold_log(self, log: bytes) -> Folded:
        """Fold packed records that lie back to back."""
        size = self.shape.entry_bytes
        if len(log) % size:
            raise ValueError(f"a log of this survey is a multiple of {size} bytes; got {len(log)}")
        return self.fold(np.frombuffer(log, dtype=np.uint64).reshape(-1, self.shape.entry_words))

    def tally(self) -> Tally:
        """Return the tally of the held records (a copy)."""
        shape = self.shape
        cut = shape.rungs * shape.groups
        return Tally(
            self.numbers[cut:].copy().reshape(shape.rungs, shape.groups, shape.size),
            self.numbers[:cut].copy().reshape(shape.rungs, shape.groups),
        )

    def _broken(self, record: NDArray[Any]) -> ValueError:
        return ValueError(
            f"a packed record has a rung below {self.shape.rungs}, a group below {self.shape.groups} and an answer of "
            f"kind {self.shape.kind} and size {self.shape.size}; got the bytes {record.tobytes()[RUNG_AT:].hex()} "
            "after the token; another version or another survey wrote it"
        )


class Table(AnyTable):
    """Open addressing in one array of packed records; compiled. Holds about 16 / 0.45 bytes a user."""

    def __init__(self, shape: Shape, *, seed: Words = _SEED) -> None:
        super().__init__(shape)
        self._seed = seed
        self._live = 0
        self._slots: Words = np.zeros((_SMALLEST, shape.entry_words), dtype=np.uint64)

    def __len__(self) -> int:
        return self._live

    @property
    def nbytes(self) -> int:
        """Return the bytes of the slots and of the tally."""
        return self._slots.nbytes + self.numbers.nbytes

    def fold(self, records: Words) -> Folded:
        """Fold packed records, one a row, in order; the table grows as needed."""
        shape = self.shape
        accepted: Words = np.empty_like(records)
        state = np.zeros(kernels.STATE_FIELDS, dtype=np.int64)
        state[kernels.LIVE] = self._live
        position = 0
        while True:
            position = kernels.fold_entries(
                self._slots,
                _shift(self._slots),
                self._seed,
                records,
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
                raise self._broken(records[position])
            if position == len(records):
                break
            self.grow()
        self._live = int(state[kernels.LIVE])
        return Folded(
            accepted[: state[kernels.ACCEPTED]],
            int(state[kernels.DUPLICATE]),
            int(state[kernels.STALE]),
            int(state[kernels.CONFLICT]),
        )

    def grow(self) -> None:
        """Double the number of slots; `fold` does so when they are needed."""
        larger: Words = np.zeros((2 * len(self._slots), self._slots.shape[1]), dtype=np.uint64)
        kernels.rehash(self._slots, larger, _shift(larger), self._seed)
        self._slots = larger

    def live(self) -> bytes:
        """Return the held records in the order of their slots."""
        held: Words = self._slots[self._slots[:, 1] != 0]
        return held.tobytes()


def _shift(slots: Words) -> int:
    return 64 - (len(slots).bit_length() - 1)


class PlainTable(AnyTable):
    """The same with a dict and a loop: what `Table` is tested against, and usable without a compiler."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self._held: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def nbytes(self) -> int:
        """Return a rough guess: two small objects and a place in the dict for each user."""
        return len(self._held) * (180 + self.shape.entry_bytes) + self.numbers.nbytes

    def fold(self, records: Words) -> Folded:
        """Fold packed records, one a row, in order."""
        rows, stale, duplicate, conflict = [], 0, 0, 0
        for row, record in enumerate(records):
            raw = record.tobytes()
            token, rest = raw[:TOKEN_NAME_BYTES], raw[RUNG_AT:]
            held = self._held.get(token)
            if held is not None:
                rank, held_rank = _rank(rest), _rank(held)
                duplicate += rank == held_rank
                stale += rank[0] < held_rank[0]
                conflict += rank[0] == held_rank[0] and rank != held_rank
                if rank <= held_rank:
                    continue
            if not self._valid(rest):
                raise self._broken(record)
            if held is not None:
                self._add(held, -1)
            self._add(rest, 1)
            self._held[token] = rest
            rows.append(row)
        return Folded(records[rows], duplicate, stale, conflict)

    def _parts(self, rest: bytes) -> tuple[int, int, int]:
        answer, end = ANSWER_AT - RUNG_AT, ANSWER_AT - RUNG_AT + self.shape.width
        group = int.from_bytes(rest[end : end + GROUP_BYTES], "little") if self.shape.groups > 1 else 0
        return rest[0] - 1, int.from_bytes(rest[answer:end], "little"), group

    def _valid(self, rest: bytes) -> bool:
        rung, answer, group = self._parts(rest)
        highest = self.shape.size if self.shape.kind == "index" else 1 << self.shape.size
        return 0 <= rung < self.shape.rungs and group < self.shape.groups and answer < highest

    def _add(self, rest: bytes, sign: int) -> None:
        rung, answer, group = self._parts(rest)
        size, line = self.shape.size, rung * self.shape.groups + group
        base = self.shape.rungs * self.shape.groups + line * size
        cells = [answer] if self.shape.kind == "index" else [bit for bit in range(size) if answer >> bit & 1]
        self.numbers[line] += sign
        for cell in cells:
            self.numbers[base + cell] += sign

    def live(self) -> bytes:
        """Return the held records, oldest user first."""
        return b"".join(token + rest for token, rest in self._held.items())


def _rank(rest: bytes) -> tuple[int, int]:
    return rest[0], int.from_bytes(rest[1:], "little")


@dataclass(frozen=True)
class Unpacked:
    """The columns of packed records: tokens (n, 13) u1, rungs (n,), answers (n, width) u1, groups (n,)."""

    tokens: NDArray[np.uint8]
    rungs: NDArray[np.int64]
    answers: NDArray[np.uint8]
    groups: NDArray[np.int64]


def unpack(log: bytes, shape: Shape) -> Unpacked:
    """Read packed records back, for example to see which rung the store holds for a token."""
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
    changed = np.flatnonzero(before != after)
    if not len(changed):
        return []
    cuts = np.flatnonzero(np.diff(changed) > PATCH_GAP)
    firsts = changed[np.concatenate(([0], cuts + 1))]
    lasts = changed[np.concatenate((cuts, [len(changed) - 1]))]
    return [
        (_TALLY_HEADER_BYTES + 8 * int(first), after[first : last + 1].astype("<i8").tobytes())
        for first, last in zip(firsts, lasts, strict=True)
    ]


def tally_bytes(shape: Shape) -> int:
    """Return the length of `Tally.to_bytes()` for this shape."""
    return _TALLY_HEADER_BYTES + 8 * shape.numbers
