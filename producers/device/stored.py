"""What a ledger holds of each window: chains, the answers of standing values, and withdrawals kept for later."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec

COLUMNS = "survey_id, window_ms, answers, groups, epsilons, jitters_ms, drawn_ms, released, "
COLUMNS += "charged_units, expires_ms, standing, sealed, wished"
"""Of the table `chains`, in the order in which `chain_of` takes them."""


class LedgerError(RuntimeError):
    """The ledger file cannot be used; the message says what to do."""


class Withdrawal(NamedTuple):
    """A report that withdraws an answer, kept until it is wanted; `jitter_ms` is how much later it is sent."""

    survey_id: str
    window_ms: int
    rung: int
    copy: int
    shard: int
    jitter_ms: int
    frame: bytes
    expires_ms: int


class StandingAnswers(NamedTuple):
    """The answers of a value that windows repeat, and what was charged for them."""

    answers: bytes
    groups: tuple[int, ...]
    charged_units: int


@dataclass(frozen=True)
class StoredChain:
    """One device's answers for one survey and window, exactly as they were drawn.

    answers holds the bytes of [rung, copy, width], None once the window has expired and they were erased. epsilons[i]
    is the exact cost of the first i + 1 answers, jitters_ms[i][copy] how much later than its release a report is sent.
    released lists the rungs that may be sent, in the order of their release; charged_units is what the odometer was
    charged for them.
    """

    survey_id: str
    window_ms: int
    # Not in repr: a chain that is logged must not show what was not released yet.
    answers: bytes | None = field(repr=False)
    groups: tuple[int, ...]
    epsilons: tuple[float, ...]
    jitters_ms: tuple[tuple[int, ...], ...]
    drawn_ms: int
    released: tuple[int, ...]
    charged_units: int
    expires_ms: int
    standing: bytes | None = field(default=None, repr=False)
    """Of a survey with standing values: which value the answers belong to."""
    sealed: bytes | None = field(default=None, repr=False)
    """What the chain was drawn from, sealed with a key that is not in the ledger."""
    wished: int | None = None
    """The rung up to which the person asked for answers from outside; gone with a release, or when it is refused."""

    @property
    def copies(self) -> int:
        """Number of answers per rung."""
        return len(self.groups)

    @property
    def highest(self) -> int:
        """The highest released rung, -1 before the first."""
        return max(self.released, default=-1)

    def answer(self, rung: int, copy: int) -> bytes:
        """Return the stored answer; it never changes."""
        if self.answers is None:
            raise LedgerError(
                f"the answers of {self.survey_id} at {self.window_ms} were erased when the window expired"
            )
        width = len(self.answers) // (len(self.epsilons) * self.copies)
        start = (rung * self.copies + copy) * width
        return self.answers[start : start + width]


def drawn_together(chains: Iterable[StoredChain]) -> list[list[StoredChain]]:
    """Put chains together that are released all or none: of one survey, drawn for one value, nothing released yet."""
    groups: dict[tuple[str, int, int | None], list[StoredChain]] = {}
    for chain in chains:
        alone = chain.window_ms if chain.released else None
        groups.setdefault((chain.survey_id, chain.drawn_ms, alone), []).append(chain)
    return list(groups.values())


def chain_of(row: tuple[Any, ...]) -> StoredChain:
    """Return the chain of a row of COLUMNS."""
    survey_id, window_ms, answers, groups, epsilons, jitters, drawn_ms, released, charged, expires, *kept = row
    json = msgspec.json.decode
    return StoredChain(
        survey_id=survey_id,
        window_ms=window_ms,
        answers=answers,
        groups=tuple(json(groups)),
        # JSON has no infinity: it is written as null.
        epsilons=tuple(float("inf") if epsilon is None else float(epsilon) for epsilon in json(epsilons)),
        jitters_ms=tuple(tuple(jitter) for jitter in json(jitters)),
        drawn_ms=drawn_ms,
        released=tuple(json(released)),
        charged_units=charged,
        expires_ms=expires,
        standing=kept[0],
        sealed=kept[1],
        wished=kept[2],
    )
