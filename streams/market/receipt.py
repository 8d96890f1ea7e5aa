"""Receipts: what was sold to whom and what was delivered, signed, so that it can be checked without the market.

The envelope is JSON: `payload`, `signature` (Ed25519 over `thaw.receipt.v1`, a zero byte and the payload), both in
base64. The payload is JSON as well: `Receipt`.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable
from typing import Final

import msgspec
import numpy as np

from producers.survey.document import Verify
from producers.survey.survey import canonical_json
from producers.wire import frames as wire
from producers.wire.layout import Layout
from producers.wire.shards import shards_of
from streams.market.failures import MarketError

CONTEXT: Final = b"thaw.receipt.v1\0"
"""What is signed begins with it: a signature of anything else is none of a receipt."""


class SoldWindow(msgspec.Struct, frozen=True):
    """A window of a delivery: its start, and how many answers of it were delivered on each rung, the lowest first."""

    window_ms: int
    answers: tuple[int, ...]


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One delivery. `paid` is for this sale, `total` for all of the buyer's of these windows, in hundredths.

    bytes, sha256: of the delivered file. width and grouped say how answers lie in its frames.
    """

    books: str
    buyer: str
    sale: int
    delivery: int
    issued_ms: int
    survey: str
    digest: str
    first_ms: int
    end_ms: int
    rung: int
    epsilon: float
    paid: int
    total: int
    bytes: int
    sha256: str
    width: int
    grouped: bool
    shards: int
    windows: tuple[SoldWindow, ...]

    @property
    def layout(self) -> Layout:
        """How answers lie in the frames."""
        return Layout(self.width, self.grouped)

    @property
    def answers(self) -> int:
        """Return the number of delivered answers."""
        return sum(sum(window.answers) for window in self.windows)


class SignedReceipt(msgspec.Struct, frozen=True):
    """What a buyer gets beside the delivery."""

    payload: str
    signature: str


def sealed_receipt(receipt: Receipt, sign: Callable[[bytes], bytes]) -> bytes:
    """Return the envelope of a receipt."""
    payload = canonical_json(receipt)
    return msgspec.json.encode(SignedReceipt(_text(payload), _text(sign(CONTEXT + payload))))


def opened_receipt(raw: bytes, verify: Verify) -> Receipt:
    """Return the receipt in an envelope; `verify` checks signatures of the market's key.

    Raises:
        MarketError: it is none, or not signed by that key.
    """
    try:
        envelope = msgspec.json.decode(raw, type=SignedReceipt)
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signature, validate=True)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise MarketError(f"this is no receipt ({error}); ask the market for it again") from None
    if not verify(CONTEXT + payload, signature):
        raise MarketError("the receipt is not signed by this key; it proves nothing")
    try:
        return msgspec.json.decode(payload, type=Receipt)
    except msgspec.MsgspecError as error:
        raise MarketError(f"the receipt cannot be read ({error}); its version is another one") from None


def check_delivery(receipt: Receipt, raw: bytes) -> dict[int, wire.Reports]:
    """Return the answers of a delivered file, by window, if it is the one that the receipt is of.

    Raises:
        MarketError: another file, or frames that the receipt does not tell of.
    """
    digest = hashlib.sha256(raw).hexdigest()
    if (len(raw), digest) != (receipt.bytes, receipt.sha256):
        raise MarketError(
            f"the file has {len(raw)} bytes and SHA-256 {digest}; the receipt is of one with {receipt.bytes} bytes and "
            f"{receipt.sha256}: it is another delivery, or was changed"
        )
    told: dict[int, list[int]] = {}
    parts: dict[int, list[wire.Reports]] = {}
    for header in wire.headers(raw) if raw else ():
        if isinstance(header, wire.FrameError):
            raise MarketError(f"the file has a frame that cannot be read: {header}")
        reports = wire.columns(raw, header, receipt.layout)
        if header.digest.hex() != receipt.digest or not receipt.first_ms <= header.window_ms < receipt.end_ms:
            raise MarketError(f"the file has a frame of window {header.window_ms} that was not sold")
        if len(reports) and (reports.rungs.max() > receipt.rung or _strays(reports, header.shard, receipt.shards)):
            raise MarketError(f"a frame of window {header.window_ms} has answers that were not sold")
        counts = told.setdefault(header.window_ms, [0] * (receipt.rung + 1))
        for rung, count in enumerate(np.bincount(reports.rungs, minlength=receipt.rung + 1).tolist()):
            counts[rung] += count
        parts.setdefault(header.window_ms, []).append(reports)
    if told != {window.window_ms: list(window.answers) for window in receipt.windows if any(window.answers)}:
        raise MarketError("the receipt tells of other numbers of answers than the file has")
    found = {window_ms: _together(some, receipt.layout) for window_ms, some in parts.items()}
    if any(len(set(map(bytes, reports.tokens))) != len(reports) for reports in found.values()):
        raise MarketError("the file has two answers of one chain")
    return found


def _strays(reports: wire.Reports, shard: int, shards: int) -> bool:
    return bool((shards_of(reports.tokens, shards) != shard).any())


def _together(parts: list[wire.Reports], layout: Layout) -> wire.Reports:
    return wire.Reports(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.answers for part in parts]),
        np.concatenate([part.rungs for part in parts]),
        np.concatenate([part.groups for part in parts if part.groups is not None]) if layout.grouped else None,
    )


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
