"""Bulletins: which rungs a collector opens, by a rule on what is estimated. Signed, numbered, the same for everybody.

The envelope is JSON: `payload`, `signature` (Ed25519 over `thaw.bulletin.v1`, a zero byte and the payload), both in
base64. The payload is JSON as well: `Bulletin`. A device takes it only with the signature of the key in the survey
file, and only with a higher number than the last one: an older bulletin changes nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from producers.survey.document import Verify
from producers.survey.survey import Survey, canonical_json

CONTEXT: Final = b"thaw.bulletin.v1\0"
"""What is signed begins with it: a signature of anything else is none of a bulletin."""
_START: Final = re.compile("-?[0-9]{1,16}")


class Bulletin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is open: of each window, by its start in ms, the highest rung; windows that are not named have rung 0."""

    survey: str
    number: int
    issued_ms: int
    open: dict[str, int]

    def rung(self, window_ms: int) -> int:
        """Return the highest rung that is open for a window."""
        return self.open.get(str(window_ms), 0)


class SignedBulletin(msgspec.Struct, frozen=True):
    """What is served."""

    payload: str
    signature: str


class BulletinError(ValueError):
    """A bulletin is not taken, and nothing was changed; the message says why."""


def bulletin_of(survey: Survey, number: int, issued_ms: int, opened: Mapping[int, int]) -> Bulletin:
    """Return a bulletin that opens rungs of windows."""
    return Bulletin(survey.id, number, issued_ms, {str(start): rung for start, rung in sorted(opened.items()) if rung})


def sealed_bulletin(bulletin: Bulletin, sign: Callable[[bytes], bytes]) -> bytes:
    """Return the envelope of a bulletin."""
    payload = canonical_json(bulletin)
    return msgspec.json.encode(SignedBulletin(_text(payload), _text(sign(CONTEXT + payload))))


def opened_bulletin(raw: bytes, survey: Survey, verify: Verify) -> Bulletin:
    """Return the bulletin in an envelope; `verify` checks signatures of the survey's key.

    Raises:
        BulletinError: it is none, of another survey, or not signed by that key.
    """
    try:
        envelope = msgspec.json.decode(raw, type=SignedBulletin)
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signature, validate=True)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise BulletinError(f"this is no bulletin ({error}); fetch it again") from None
    if not verify(CONTEXT + payload, signature):
        raise BulletinError(f"the bulletin is not signed by the key in the file of {survey.id}; nothing is released")
    try:
        bulletin = msgspec.json.decode(payload, type=Bulletin)
    except msgspec.MsgspecError as error:
        raise BulletinError(f"the bulletin cannot be read ({error}); fetch it again") from None
    if bulletin.survey != survey.id:
        raise BulletinError(f"the bulletin is of {bulletin.survey}, not of {survey.id}; fetch the right one")
    rungs = survey.mechanism.rungs
    if any(not 0 < rung < rungs or not _START.fullmatch(start) for start, rung in bulletin.open.items()):
        raise BulletinError(f"the bulletin opens what {survey.id} does not have: {bulletin.open}; nothing is released")
    return bulletin


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
