"""Asking from outside of the device for one level more: a wish in its ledger, which its next ticks grant or refuse.

Whoever calls this may be another process than the device, which alone knows the person's bounds: nothing is released
here. The wish names the rung that it is for, and goes in the transaction that releases it: until then the same wish is
the same rung, whatever is killed meanwhile.
"""

from __future__ import annotations

from typing import NamedTuple

from producers.device.ledger import Ledger, LedgerError
from producers.device.refusal import by_clock
from producers.device.taking_back import still_counting


class Wish(NamedTuple):
    """One level more of one window, and what all of its answers together cost then."""

    survey_id: str
    window_ms: int
    rung: int
    epsilon: float


def wish_next(ledger: Ledger, asked: str, window_ms: int | None, now_ms: int) -> Wish:
    """Ask for one level more of a survey, by name or id: of its newest window with a level left, or of the given one.

    Raises:
        LedgerError: no such level can be asked for; nothing was changed.
    """
    with ledger.transaction():
        row = ledger.connection.execute(
            "SELECT survey_id, on_demand FROM surveys WHERE ? IN (name, survey_id)", (asked,)
        ).fetchone()
        if row is None:
            raise LedgerError(f"{asked!r}: this device does not know it; `thaw device show` says what there is")
        survey_id, on_demand = row
        if not on_demand:
            raise LedgerError(by_clock(survey_id))
        about, chains = still_counting(ledger, survey_id, window_ms, now_ms)
        left = [chain for chain in chains if chain.highest + 1 < len(chain.epsilons)]
        if not left:
            raise LedgerError(f"{about}: no level is left, the sharpest answer was released")
        # What the device releases by itself needs no wish.
        begun = [chain for chain in left if chain.released]
        if not begun:
            raise LedgerError(f"{about}: its first answer was not released yet; ask for more when it was")
        chain = begun[-1]
        rung = chain.highest + 1
        ledger.wish(chain, rung)
    return Wish(chain.survey_id, chain.window_ms, rung, chain.epsilons[rung])
