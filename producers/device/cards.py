"""Cards from a dealer: what a device asks for before it answers a survey whose decks are dealt."""

from __future__ import annotations

import hashlib
import hmac
import struct
from pathlib import Path
from typing import Any

from producers.device.ledger import Ledger
from producers.survey.survey import Survey
from producers.wire.cards import CLAIM_BYTES, TIMEOUT_SECONDS, CardError, DealerConnection

__all__ = ["CardError", "Cards"]

_CLAIM_INPUT = struct.Struct("<5s8sq")


class Cards:
    """Asks a dealer for the cards of one device.

    The claim that it shows is an HMAC under the secret of the device's ledger, and not the token of its reports: a
    dealer who reads the topic of reports cannot tell which answer belongs to a card. The same window gives the same
    claim, and so the same card, after a crash or a lost answer.

    Args:
        dealer: address of the dealer, such as https://dealer.example.
        ledger: path of the device's SQLite file.
    """

    def __init__(self, dealer: str, ledger: str | Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._dealer = DealerConnection(dealer, timeout_seconds=timeout_seconds)
        file = Ledger(ledger)
        self._secret = file.secret
        file.close()

    def value(self, survey: Survey, label: str, now_ms: int) -> dict[str, Any]:
        """Return what `Device.observe` takes at the same moment: the label, and the card for the window of now_ms.

        Raises:
            CardError: the dealer has no card for this device, or does not answer.
        """
        starts = survey.windows.starts(now_ms)
        if len(starts) != 1:
            raise ValueError(f"{survey.id}: a card is for one window, and windows overlap here; use step = size")
        claim = hmac.digest(self._secret, _CLAIM_INPUT.pack(b"claim", survey.digest, starts[0]), hashlib.sha256)
        try:
            dealt = self._dealer.ask(survey.id, starts[0], claim[:CLAIM_BYTES])
        finally:
            self._dealer.close()
        return {"value": label, "block": dealt.block, "card": dealt.card}
