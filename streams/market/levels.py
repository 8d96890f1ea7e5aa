"""What is known of the chains of one shard of a window, and how the answers of a level come from it.

Known are answers that the device released, and answers that were drawn for a buyer. The rule that keeps all of them one
chain: what a device released is taken over only above everything that is known already, all of it at once; everything
else is drawn from its nearest known neighbours. So no answer is ever drawn in ignorance of one that is used later, and
it does not matter which answers the report log still has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from estimators.channels.downgrade import Downgrade, Known
from estimators.exact.randomness import Bits
from estimators.mechanism import Specification
from producers.wire.layout import GROUP_BYTES, TOKEN_NAME_BYTES
from streams.market.failures import ContradictionError
from streams.store.entry import ANSWER_AT, RUNG_AT
from streams.store.shape import Shape
from streams.worker.table import Table

Rows = NDArray[np.uint8]
"""Entries as the report log packs them (`streams.store.entry`), one a row."""


class Place(NamedTuple):
    """An answer: the name of its chain in the shard, and its rung."""

    name: bytes
    rung: int


@dataclass(frozen=True)
class Released:
    """What the devices of a shard have released, as far as the report log has it.

    answers: of each place, the answer with its group. tops: the highest rung of every chain that may be sold.
    withdrawn: chains whose answers were taken back.
    """

    answers: dict[Place, bytes]
    tops: dict[bytes, int]
    withdrawn: frozenset[bytes]


def cell_bytes(shape: Shape) -> int:
    """Return the length of an answer with its group."""
    return shape.width + (GROUP_BYTES if shape.groups > 1 else 0)


def released(shape: Shape, log: bytes, tiers: bytes = b"") -> Released:
    """Return what the entries of a report log tell, and of lower rungs those of the survey's tiers.

    Of conflicting answers of a chain's highest rung the one that is counted is taken, of a lower rung none.

    Raises:
        ValueError: they cannot be of this survey.
    """
    counted = Table.of_log(shape, log).live()
    tops, answers, withdrawn = dict[bytes, int](), dict[Place, bytes](), set[bytes]()
    for place, cell in unpacked(shape, counted):
        if place.rung == shape.withdrawal:
            withdrawn.add(place.name)
        else:
            tops[place.name] = place.rung
            answers[place] = cell
    several: set[Place] = set()
    for place, cell in unpacked(shape, log + tiers):
        if place.rung < tops.get(place.name, -1) and answers.setdefault(place, cell) != cell:
            several.add(place)
    for place in several:
        del answers[place]
    return Released(answers, tops, frozenset(withdrawn))


def unpacked(shape: Shape, entries: bytes) -> Iterator[tuple[Place, bytes]]:
    """Read packed entries."""
    size, end = shape.entry_bytes, ANSWER_AT + cell_bytes(shape)
    for start in range(0, len(entries), size):
        entry = entries[start : start + size]
        yield Place(entry[:TOKEN_NAME_BYTES], entry[RUNG_AT] - 1), entry[ANSWER_AT:end]


def packed(shape: Shape, answers: dict[Place, bytes]) -> bytes:
    """Return answers as packed entries, in the order of their places."""
    rows = (place.name + bytes([place.rung + 1]) + cell for place, cell in sorted(answers.items()))
    return b"".join(row.ljust(shape.entry_bytes, b"\0") for row in rows)


def merged(where: str, stored: dict[Place, bytes], booked: dict[Place, bytes]) -> dict[Place, bytes]:
    """Return the answers of Redis and of the books together.

    Raises:
        ContradictionError: they have different answers of one chain and rung.
    """
    wrong = sum(stored.get(place, cell) != cell for place, cell in booked.items())
    if wrong:
        raise ContradictionError(
            f"{where}: Redis and the books have {wrong} answers of one chain and level that differ; nothing is sold. "
            "One of the two is not what this market wrote: find out which, and restore the other's copy of it"
        )
    return stored | booked


@dataclass(frozen=True)
class Sold:
    """Answers of a level for one shard: `rungs` by chain, and `held`, all that is known of the shard's chains now.

    broken: chains whose answers no chain has, so that their level could not be drawn; they stay where they are.
    """

    rungs: dict[bytes, int]
    held: dict[Place, bytes]
    drawn: int
    broken: int


def sold_at(
    rung: int, mechanism: Specification, shape: Shape, found: Released, held: dict[Place, bytes], bits: Bits
) -> Sold:
    """Return the answer of each chain at `rung`, or at the highest one below it that its device has released."""
    known = {place: cell for place, cell in held.items() if place.name not in found.withdrawn}
    rungs_of: dict[bytes, list[int]] = {}
    for place in known:
        rungs_of.setdefault(place.name, []).append(place.rung)
    for name, top in found.tops.items():
        own = rungs_of.setdefault(name, [])
        highest = max(own, default=-1)
        for above in range(highest + 1, top + 1):
            cell = found.answers.get(Place(name, above))
            if cell is not None:
                known[Place(name, above)] = cell
                own.append(above)
    rungs: dict[bytes, int] = {}
    missing: dict[tuple[int, int, int], list[bytes]] = {}
    for name in found.tops:
        own = rungs_of[name]
        wanted = min(rung, max(own))
        rungs[name] = wanted
        if wanted not in own:
            above = min(one for one in own if one > wanted)
            under = max((one for one in own if one < wanted), default=-1)
            missing.setdefault((wanted, above, under), []).append(name)
    drawn = broken = 0
    for (wanted, above, under), names in missing.items():
        made = _drawn(mechanism, shape, known, names, (wanted, above, under), bits)
        for name, cell in zip(names, made, strict=True):
            if cell is not None:
                known[Place(name, wanted)] = cell
                drawn += 1
            else:
                broken += 1
                del rungs[name]
                if under >= 0:
                    rungs[name] = under
    return Sold(rungs, known, drawn, broken)


def _drawn(
    mechanism: Specification,
    shape: Shape,
    known: dict[Place, bytes],
    names: Sequence[bytes],
    places: tuple[int, int, int],
    bits: Bits,
) -> list[bytes | None]:
    """Draw the answers of chains that know the same rungs; None where no chain has what is known."""
    downgrade, (wanted, above, under) = mechanism.downgrade, places
    assert downgrade is not None
    sharp = np.frombuffer(b"".join(known[Place(name, above)] for name in names), dtype=np.uint8)
    sharp = sharp.reshape(len(names), -1)
    coarse = None
    if under >= 0:
        coarse = np.frombuffer(b"".join(known[Place(name, under)] for name in names), dtype=np.uint8)
        coarse = coarse.reshape(len(names), -1)
    answers, possible = _draw(downgrade, mechanism, shape.width, (wanted, above, under), sharp, coarse, bits)
    if coarse is not None:
        possible &= (sharp[:, shape.width :] == coarse[:, shape.width :]).all(axis=1)
    cells = np.concatenate([answers, sharp[:, shape.width :]], axis=1)
    return [cell.tobytes() if sound else None for cell, sound in zip(cells, possible.tolist(), strict=True)]


def _draw(
    downgrade: Downgrade,
    mechanism: Specification,
    width: int,
    places: tuple[int, int, int],
    sharp: Rows,
    coarse: Rows | None,
    bits: Bits,
) -> tuple[Rows, NDArray[np.bool_]]:
    wanted, above, under = places
    is_index = mechanism.answer.kind == "index"

    def read(rows: Rows) -> NDArray[np.generic]:
        answers = np.ascontiguousarray(rows[:, :width])
        return answers.view(mechanism.symbol_dtype).reshape(-1) if is_index else answers

    low = None if coarse is None else Known(under, read(coarse))
    drawn, possible = downgrade.draw(wanted, Known(above, read(sharp)), low, bits)
    return np.ascontiguousarray(drawn).view(np.uint8).reshape(len(sharp), width), possible
