"""What folding and storing must know of a survey: the form of its answers and how long a window is kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple

from producers.survey.survey import Survey
from producers.wire.layout import WORD_BYTES
from streams.store.entry import entry_bytes

DAY_MS: Final = 86_400_000

GRACE_MS: Final = DAY_MS
"""How much longer than its retention a window is kept. Shorter: a worker that lags loses reports that arrived in time;
longer: every user and window costs memory for longer."""

KEEP_MS: Final = 30 * DAY_MS
"""Lifetime of keys that belong to no window (offsets, totals, the recompute queue), counted from their last change.
Shorter: a topic without traffic is read again from its start; longer: keys of deleted surveys stay."""

MAX_RUNGS: Final = 255


class Key(NamedTuple):
    """One report log: a survey id, the start of a window in ms, a shard number."""

    survey_id: str
    window_ms: int
    shard: int


@dataclass(frozen=True)
class Shape:
    """The form of a survey's answers, the dimensions of its tally, its shards and the lifetime of a window.

    kind, size and width are those of `estimators.mechanism.Answer`. rungs are those of the mechanism, and where answers
    can be withdrawn one more behind them: on it are the tokens whose answers were. life_ms counts from the start of a
    window to the expiry of all its keys.
    """

    kind: Literal["index", "bits"]
    size: int
    width: int
    rungs: int
    groups: int
    shards: int = 64
    life_ms: int = 7 * DAY_MS
    withdrawable: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.rungs <= MAX_RUNGS:
            raise ValueError(f"a ladder has 1 to {MAX_RUNGS} rungs; got {self.rungs}; shorten it")

    @classmethod
    def of(cls, survey: Survey) -> Shape:
        """Return the shape of a survey."""
        answer = survey.mechanism.answer
        return cls(
            kind=answer.kind,
            size=answer.size,
            width=answer.width,
            rungs=survey.mechanism.rungs + survey.withdrawable,
            groups=survey.mechanism.groups,
            shards=survey.shards,
            life_ms=survey.windows.size_ms + survey.retention_ms + GRACE_MS,
            withdrawable=survey.withdrawable,
        )

    @property
    def withdrawal(self) -> int | None:
        """The rung of withdrawals, None if there are none."""
        return self.rungs - 1 if self.withdrawable else None

    @cached_property
    def entry_bytes(self) -> int:
        """Length of an entry, a packed report, in bytes."""
        return entry_bytes(self.width, self.groups)

    @cached_property
    def entry_words(self) -> int:
        """Length of an entry in words of 8 bytes."""
        return self.entry_bytes // WORD_BYTES

    @cached_property
    def numbers(self) -> int:
        """Length of the flat tally: users [rung, group], then counts [rung, group, cell]."""
        return self.rungs * self.groups * (1 + self.size)

    def expires_ms(self, window_ms: int) -> int:
        """Return when all keys of a window expire: window end, retention and a day."""
        return window_ms + self.life_ms
