"""A survey as a gateway serves it: the text of its file and what a client without TOML needs, until an expiry, signed.

The envelope is JSON: `payload` in base64, `signature` (Ed25519 over `thaw.survey.v1`, a zero byte and the payload) and
`key` (the public key) in base64, both null where the gateway has no key. The payload is JSON as well: `Document`.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any, Final

import msgspec

from producers.survey.messages import SurveyError
from producers.survey.survey import Survey, canonical_json, parse_survey

CONTEXT: Final = b"thaw.survey.v1\0"
"""What is signed begins with it: a signature of anything else is none of a survey."""

Verify = Callable[[bytes, bytes], bool]
"""Tells whether a signature of a message is that of the key it was made with."""


class ForClient(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs besides what decoding depends on; what is unbounded is null."""

    digest: str
    question: str
    labels: list[str]
    answer_width: int
    grouped: bool
    copies: int
    ladder: list[float]
    epsilons: list[float | None]
    opens_ms: list[int]
    jitter_ms: int
    retention_ms: int
    skew_ms: int
    lifetime_epsilon: float | None
    unlock: str | None
    reserve_epsilon: float
    rungs_assumed: str
    on_demand: bool
    end_ms: int | None
    expires_ms: int | None
    owner: str
    purpose: str
    review: str
    stop_width: float | None = None
    """Where bulletins open levels: while a band is wider than this; null where they open by the clock or on demand."""


class Document(msgspec.Struct, frozen=True):
    """What is signed: the file, what the survey id hashes (`decoding`), and what else a client needs (`client`)."""

    id: str
    text: str
    issued_ms: int
    expires_ms: int
    decoding: dict[str, Any]
    client: ForClient


class Envelope(msgspec.Struct, frozen=True):
    """What is served."""

    payload: str
    signature: str | None
    key: str | None


class DocumentError(ValueError):
    """A served survey is not used; the message says why and what to do."""


class NotValidNowError(DocumentError):
    """An envelope is not valid yet, or no longer; the message has moments that are others at every look."""


def document_of(survey: Survey, text: str, issued_ms: int, expires_ms: int) -> Document:
    """Return what is served of a survey whose file holds `text`."""
    return Document(survey.id, text, issued_ms, expires_ms, survey.decoding, client_of(survey))


def client_of(survey: Survey) -> ForClient:
    """Return what a client needs besides what decoding depends on."""
    return ForClient(
        digest=survey.digest.hex(),
        question=survey.question,
        labels=list(survey.mechanism.labels),
        answer_width=survey.layout.width,
        grouped=survey.layout.grouped,
        copies=survey.mechanism.copies,
        ladder=list(survey.mechanism.ladder),
        epsilons=[_finite(epsilon) for epsilon in survey.mechanism.epsilons],
        opens_ms=list(survey.opens_ms),
        jitter_ms=survey.jitter_ms,
        retention_ms=survey.retention_ms,
        skew_ms=survey.skew_ms,
        lifetime_epsilon=_finite(survey.lifetime_epsilon),
        unlock=None if survey.unlock is None else str(survey.unlock),
        reserve_epsilon=survey.reserve_epsilon,
        rungs_assumed=survey.rungs,
        on_demand=survey.on_demand,
        end_ms=survey.end_ms,
        expires_ms=survey.registry.expires_ms,
        owner=survey.registry.owner,
        purpose=survey.registry.purpose,
        review=survey.registry.review,
        stop_width=None if survey.stop is None else survey.stop.width,
    )


def sealed(document: Document, sign: Callable[[bytes], bytes] | None, key: bytes | None) -> bytes:
    """Return the envelope of a document, signed if there is a key."""
    payload = canonical_json(document)
    signature = None if sign is None else sign(CONTEXT + payload)
    return msgspec.json.encode(Envelope(_text(payload), _text(signature), _text(key)))


def opened(raw: bytes, source: str, now_ms: int, verify: Verify | None = None) -> tuple[Survey, Document]:
    """Return the survey in an envelope, and the document that held it.

    Args:
        raw: the envelope.
        source: where it is from, for messages.
        now_ms: the time now.
        verify: checks a signature; without it unsigned surveys are taken.

    Raises:
        DocumentError: it is no envelope, has expired (NotValidNowError), or is not signed by the key.
        SurveyError: its survey file is refused.
    """
    try:
        envelope = msgspec.json.decode(raw, type=Envelope)
        payload = base64.b64decode(envelope.payload, validate=True)
        signature = base64.b64decode(envelope.signature or "", validate=True)
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        raise DocumentError(f"{source} is no survey of a gateway ({error}); check the address") from None
    if verify is not None and not signature:
        raise DocumentError(f"{source} is not signed, and this device was told a key; nothing is answered")
    if verify is not None and not verify(CONTEXT + payload, signature):
        raise DocumentError(f"{source} is signed by another key than the one this device was told; nothing is answered")
    try:
        document = msgspec.json.decode(payload, type=Document)
    except msgspec.MsgspecError as error:
        raise DocumentError(f"{source} holds no survey ({error}); check the address") from None
    if not document.issued_ms - _EARLY_MS <= now_ms < document.expires_ms:
        raise NotValidNowError(
            f"{source} is valid from {document.issued_ms} to {document.expires_ms} and the clock of this device says "
            f"{now_ms}; fetch it again, or set the clock"
        )
    # The candidates of strings are in a file that is not here.
    survey = parse_survey(document.text, source, candidates=document.client.labels)
    if now_ms >= survey.stops_ms:
        raise DocumentError(f"{source}: the survey {survey.id} has expired; nothing is answered; remove it")
    if survey.id != document.id or survey.digest.hex() != document.client.digest:
        raise SurveyError(source, "id", document.id, f"the text in it is that of {survey.edition}; fetch it again")
    return survey, document


_EARLY_MS: Final = 3_600_000
"""How far the clock of a device may be behind that of the gateway."""


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _text(raw: bytes | None) -> Any:
    return None if raw is None else base64.b64encode(raw).decode()
