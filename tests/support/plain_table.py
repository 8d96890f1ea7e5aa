"""A table with a dict and a loop: what the compiled `Table` is tested against."""

from __future__ import annotations

from producers.wire.layout import GROUP_BYTES, TOKEN_NAME_BYTES
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.store.shape import Shape
from streams.worker.table import Folded, Table
from streams.worker.words import Words
from tests.support.precedence import winner


class PlainTable(Table):
    """The same content by the plainest means."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self._held: dict[bytes, bytes] = {}

    def __len__(self) -> int:
        return len(self._held)

    @property
    def nbytes(self) -> int:
        """Return a rough guess: two small objects and a place in the dict for each user."""
        return len(self._held) * (180 + self.shape.entry_bytes) + self.numbers.nbytes

    def fold(self, entries: Words) -> Folded:
        """Fold packed entries, one a row, in order."""
        rows, outdated, duplicate, conflicting = [], 0, 0, 0
        for row, entry in enumerate(entries):
            raw = entry.tobytes()
            token, rest = raw[:TOKEN_NAME_BYTES], raw[RUNG_AT:]
            held = self._held.get(token)
            if held is not None:
                duplicate += rest == held
                outdated += rest[0] < held[0]
                conflicting += rest[0] == held[0] and rest != held
                if rest == held or not self._wins(token, held, rest):
                    continue
            if not self._valid(rest):
                raise self._broken(entry)
            if held is not None:
                self._add(held, -1)
            self._add(rest, 1)
            self._held[token] = rest
            rows.append(row)
        return Folded(entries[rows], duplicate, outdated, conflicting)

    def kept(self, log: bytes) -> bytes:
        """Return those of packed entries that are held."""
        size = self.shape.entry_bytes
        entries = [log[start : start + size] for start in range(0, len(log), size)]
        return b"".join(raw for raw in entries if self._held.get(raw[:TOKEN_NAME_BYTES]) == raw[RUNG_AT:])

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
        """Return the held entries, oldest user first."""
        return b"".join(token + rest for token, rest in self._held.items())

    @staticmethod
    def _wins(token: bytes, held: bytes, rest: bytes) -> bool:
        return winner(token, (held[0], held[1:]), (rest[0], rest[1:])) == (rest[0], rest[1:])
