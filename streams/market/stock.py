"""The answers of windows, and what was drawn of them: report logs are read, drawn answers are kept beside them.

What is known of the chains of a shard (`streams.market.levels`) is a small state of the window, `sold-SHARD`, packed as
the report log packs entries, and expires with it. It is replaced by compare-and-set before an answer is used, so two
processes never use two draws of one level, and a killed one leaves its draws for the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from estimators.exact.randomness import Bits
from estimators.tally import Tally
from producers.survey.survey import Survey
from streams.market.failures import ContradictionError, MarketError
from streams.market.levels import Place, Released, Sold, merged, packed, released, sold_at, unpacked
from streams.store.contract import NO_STAMP, STAMP_BYTES, Store
from streams.store.shape import KEEP_MS, Shape
from streams.windows.settled import settles_ms
from streams.windows.withdrawals import counted
from streams.windows.withheld import withheld_by

_TRIES: Final = 20
# Of replacing a state that another process changes. Fewer: a busy one refuses a purchase; more: it hangs.
_CLAIM: Final = "market"
_UNKNOWN_STAMP: Final = b"\xff" * (STAMP_BYTES + 1)
"""No log has it, so all logs are read."""


@dataclass(frozen=True)
class WindowLog:
    """What devices have released in a window, by shard."""

    window_ms: int
    shards: tuple[Released, ...]
    withheld: bool
    """The survey publishes nothing of so few devices, and nothing of it is sold."""

    @property
    def chains(self) -> int:
        """Return the number of chains that may be sold."""
        return sum(len(shard.tops) for shard in self.shards)

    @property
    def withdrawn(self) -> int:
        """Return the number of chains whose answers were taken back."""
        return sum(len(shard.withdrawn) for shard in self.shards)


class Stock:
    """The windows of surveys in the store."""

    def __init__(self, store: Store, bits: Bits) -> None:
        self._store, self._bits = store, bits

    def claim(self, survey: Survey, owner: bytes, last_ms: int) -> None:
        """Sell the survey from these books alone: what each chain has lost would be split between two.

        Raises:
            MarketError: other books sell it.
        """
        keep_ms = max(self._store.now_ms() + KEEP_MS, Shape.of(survey).expires_ms(last_ms))
        for _ in range(_TRIES):
            before = self._store.states.get(survey.id, _CLAIM)
            if before not in (b"", owner):
                raise MarketError(
                    f"{survey.id} is sold from other books ({before.decode(errors='replace')}, these are "
                    f"{owner.decode()}): what a device has lost must stand in one place; use those"
                )
            if self._store.states.swap(survey.id, _CLAIM, None, before, owner, keep_ms):
                return
        raise _busy(survey)

    def windows(self, survey: Survey, first_ms: int, end_ms: int) -> list[int]:
        """Return the windows in [first_ms, end_ms) that the store still has, oldest first."""
        return [start for start in self._store.estimates.window_starts(survey.id) if first_ms <= start < end_ms]

    def read(self, survey: Survey, window_ms: int) -> WindowLog:
        """Return what devices have released in a window.

        Raises:
            ContradictionError: a log is not that of its tally.
            MarketError: a log changes again and again while it is read.
        """
        shape = Shape.of(survey)
        logs = self._logs(survey, window_ms, shape)
        # Tiers keep the sharpest answers up to their rung, which the log of the survey may have dropped.
        tiers = [b""] * survey.shards
        for tier in survey.tier_surveys:
            tiers = [more + log for more, (log, _) in zip(tiers, self._logs(tier, window_ms, shape), strict=True)]
        try:
            shards = tuple(released(shape, log, more) for (log, _), more in zip(logs, tiers, strict=True))
        except ValueError as error:
            raise ContradictionError(f"{survey.id}, window {window_ms}: {error}") from None
        total = sum((tally for _, tally in logs), Tally.empty(shape.rungs, shape.groups, shape.size))
        settled = self._store.now_ms() >= settles_ms(survey, window_ms)
        withheld = withheld_by(survey, counted(survey, total).tally, settled=settled)
        found = WindowLog(window_ms, shards, withheld is not None)
        if total.total_users != found.chains + found.withdrawn:
            raise ContradictionError(
                f"{survey.id}, window {window_ms}: the report logs have {found.chains + found.withdrawn} devices, "
                f"their tallies {total.total_users}; wait for the worker, or run `thaw rebuild`"
            )
        return found

    def _logs(self, survey: Survey, window_ms: int, shape: Shape) -> list[tuple[bytes, Tally]]:
        stamps = [_UNKNOWN_STAMP] * survey.shards
        for _ in range(_TRIES):
            counts = self._store.estimates.counts(survey.id, window_ms, shape, topic="", partitions=1, known=stamps)
            if not any(shard.changed for shard in counts):
                return [(shard.entries or b"" if shard.stamp != NO_STAMP else b"", shard.tally) for shard in counts]
        raise MarketError(f"{survey.id}, window {window_ms}: its report logs change while they are read: try again")

    def held(self, survey: Survey, window_ms: int, shard: int) -> dict[Place, bytes]:
        """Return what is kept of a shard."""
        return self._unpacked(survey, self._store.states.get(survey.id, _name(shard), window_ms), window_ms)

    def sell(self, survey: Survey, log: WindowLog, rung: int, booked: Mapping[int, dict[Place, bytes]]) -> list[Sold]:
        """Draw and keep the answers of a level, by shard; `booked` are those in the books, which a lost second brings
        back.

        Raises:
            ContradictionError: Redis and books differ.
        """
        return [self._sell(survey, log, shard, rung, booked.get(shard, {})) for shard in range(survey.shards)]

    def _sell(self, survey: Survey, log: WindowLog, shard: int, rung: int, booked: dict[Place, bytes]) -> Sold:
        shape, states, where = Shape.of(survey), self._store.states, f"{survey.id}, window {log.window_ms}"
        found, place = log.shards[shard], (survey.id, _name(shard), log.window_ms)
        for _ in range(_TRIES):
            before = states.get(*place)
            kept = self._unpacked(survey, before, log.window_ms)
            sold = sold_at(rung, survey.mechanism, shape, found, merged(where, kept, booked), self._bits)
            now = packed(shape, sold.held)
            if now == before or states.swap(*place, before, now, shape.expires_ms(log.window_ms)):
                return sold
        raise _busy(survey)

    def _unpacked(self, survey: Survey, state: bytes, window_ms: int) -> dict[Place, bytes]:
        shape = Shape.of(survey)
        if len(state) % shape.entry_bytes:
            raise ContradictionError(f"{survey.id}, window {window_ms}: what is kept of sold answers cannot be read")
        return dict(unpacked(shape, state))


def _name(shard: int) -> str:
    return f"sold-{shard}"


def _busy(survey: Survey) -> MarketError:
    return MarketError(f"another process sells {survey.id} at this moment; nothing was sold: try again")
