"""Asking a dealer for a card: what is sent, and what is answered."""

from __future__ import annotations

import http.client
from typing import Final

import msgspec

from producers.wire.connection import Connection, Reply

TIMEOUT_SECONDS: Final = 10.0
CLAIM_BYTES: Final = 16
_MOST_ANSWER_BYTES: Final = 1_000
_SERVER_ERROR: Final = 500


class CardError(RuntimeError):
    """There is no card, so the device does not answer; `again` tells whether asking again may help."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again


class Dealt(msgspec.Struct, frozen=True):
    """A card: its block, and its face from 1 to L."""

    block: int
    card: int


class DealerConnection:
    """Asks one dealer. The connection stays open between requests. For one thread.

    Args:
        dealer: its address, such as https://dealer.example.
        timeout_seconds: how long one answer may take.
    """

    def __init__(self, dealer: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.dealer = dealer
        self._connection = Connection(
            dealer,
            "/deal",
            what="dealer",
            headers={"Content-Type": "application/json", "User-Agent": "thaw"},
            timeout_seconds=timeout_seconds,
            most_bytes=_MOST_ANSWER_BYTES,
        )

    def ask(self, survey_id: str, window_ms: int, claim: bytes) -> Dealt:
        """Return the card of a claim; the same claim gets the same card.

        Raises:
            CardError: the dealer has none for it, or does not answer.
        """
        asked = {"survey": survey_id, "window_ms": window_ms, "claim": claim.hex()}
        try:
            reply = self._connection.post(msgspec.json.encode(asked))
            if reply.status == http.client.OK:
                return msgspec.json.decode(reply.body, type=Dealt)
        except (OSError, http.client.HTTPException, msgspec.MsgspecError) as error:
            message = f"{survey_id}: no card from {self.dealer} ({error}); ask again later"
            raise CardError(message, again=True) from error
        raise _refused(survey_id, reply)

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


def _refused(survey_id: str, reply: Reply) -> CardError:
    said = reply.body.decode(errors="replace")
    message = f"{survey_id}: the dealer refuses a card ({reply.status}): {said}"
    return CardError(message, again=reply.status >= _SERVER_ERROR)
