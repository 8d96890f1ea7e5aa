"""Taking answers back from outside of the device: in its ledger alone, by the reports that were made with each chain.

Whoever calls this may be another process than the device, which sends the withdrawals at its next ticks.
"""

from __future__ import annotations

from typing import NamedTuple

from producers.device.ledger import Ledger, LedgerError, StoredChain
from producers.device.schema import name_of


class TakenBack(NamedTuple):
    """How many windows are withdrawn, and how many were erased before anything of them was released."""

    withdrawn: int
    erased: int


def still_counting(
    ledger: Ledger, asked: str | None, window_ms: int | None, now_ms: int
) -> tuple[str, list[StoredChain]]:
    """Return what is asked about, in words, and its chains that still count, the oldest first.

    Raises:
        LedgerError: there are none.
    """
    chains = [chain for chain in ledger.kept() if now_ms <= chain.expires_ms]
    if asked is not None:
        chains = [chain for chain in chains if asked in (chain.survey_id, name_of(chain.survey_id))]
    about = "the ledger" if asked is None else f"{asked!r}"
    if window_ms is not None:
        chains = [chain for chain in chains if chain.window_ms == window_ms]
        about = f"{about}, window {window_ms}"
    if not chains:
        raise LedgerError(f"{about}: there are no answers that still count; `thaw device show` says what there is")
    return about, chains


def take_back(ledger: Ledger, asked: str | None, window_ms: int | None, now_ms: int) -> TakenBack:
    """Take answers back: of one survey, by name or id, or of all; of the window that starts at window_ms, or all open.

    Each window is one transaction; a call that was interrupted is made again.

    Raises:
        LedgerError: there is no such window, or its answers cannot be withdrawn; nothing was changed.
    """
    about, chains = still_counting(ledger, asked, window_ms, now_ms)
    places = set(ledger.connection.execute("SELECT survey_id, window_ms FROM withdrawals"))
    chosen = [chain for chain in chains if (chain.survey_id, chain.window_ms) in places]
    if not chosen:
        raise LedgerError(f"{about}: its answers cannot be withdrawn; only withdrawable = true allows it")
    withdrawn = sum(ledger.withdraw(chain.survey_id, chain.window_ms, now_ms) for chain in chosen)
    return TakenBack(withdrawn, len(chosen) - withdrawn)
