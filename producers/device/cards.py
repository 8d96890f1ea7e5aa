"""Cards from a dealer: what a device asks for before it answers a survey whose decks are dealt."""

from __future__ import annotations

import hashlib
import hmac
import http.client
import struct
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from producers.device.ledger import Ledger
from producers.survey.survey import Survey
from producers.wire.layout import TOKEN_BYTES

TIMEOUT_SECONDS = 10.0
_CLAIM_INPUT = struct.Struct("<5s8sq")


class CardError(RuntimeError):
    """There is no card, so the device does not answer; `again` tells whether asking again may help."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


class _Dealt(msgspec.Struct, frozen=True):
    block: int
    card: int


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
        if not dealer.startswith(("https://", "http://")):
            raise ValueError(f"the dealer's address must begin with https:// or http://; got {dealer!r}")
        self._url, self._timeout = f"{dealer.rstrip('/')}/deal", timeout_seconds
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
        dealt = self._ask(survey, starts[0])
        return {"value": label, "block": dealt.block, "card": dealt.card}

    def _ask(self, survey: Survey, window_ms: int) -> _Dealt:
        claim = hmac.digest(self._secret, _CLAIM_INPUT.pack(b"claim", survey.digest, window_ms), hashlib.sha256)
        asked = {"survey": survey.id, "window_ms": window_ms, "claim": claim[:TOKEN_BYTES].hex()}
        request = urllib.request.Request(self._url, msgspec.json.encode(asked), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                return msgspec.json.decode(answer.read(), type=_Dealt)
        except urllib.error.HTTPError as error:
            with error:
                said = error.read(1_000).decode(errors="replace")
            again = error.code >= 500
            raise CardError(f"{survey.id}: the dealer refuses a card ({error.code}): {said}", again=again) from None
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            raise CardError(f"{survey.id}: no card from {self._url} ({error}); ask again later", again=True) from error
