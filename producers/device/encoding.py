"""The reports of a rung as they leave a device: each a frame of its own, with the token of its chain."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import SecureBits, below
from producers.device.outbox import OutgoingReport
from producers.device.stored import StoredChain, Withdrawal
from producers.survey.survey import Survey
from producers.wire.frames import Reports, encode
from producers.wire.keys import key_chain
from producers.wire.layout import TOKEN_BYTES
from producers.wire.shards import shards_of

_TOKEN_INPUT = struct.Struct("<8sqI")


def encoded(
    survey: Survey, chain: StoredChain, rung: int, now_ms: int, tokens: Sequence[bytes]
) -> list[OutgoingReport]:
    """Encode the reports of a rung, each as a frame of its own: nothing on the wire links two of them.

    `tokens` are those of the chain, one for each copy; of withdrawable surveys the secrets that tokens follow from.
    """
    outgoing = []
    for copy, (group, raw) in enumerate(zip(chain.groups, tokens, strict=True)):
        shard, frame = _frame(survey, chain.window_ms, rung, raw, chain.answer(rung, copy), group)
        # From now, not from the opening: a late device must not send the reports of several windows together.
        ready_ms = min(now_ms + chain.jitters_ms[rung][copy], max(now_ms, chain.expires_ms))
        outgoing.append(OutgoingReport(survey.id, chain.window_ms, rung, copy, shard, ready_ms, frame))
    return outgoing


def withdrawals(survey: Survey, chain: StoredChain, secrets: Sequence[bytes], bits: SecureBits) -> list[Withdrawal]:
    """Encode the reports that withdraw a chain, one for each copy, to be kept until they are wanted."""
    rung, nothing = survey.mechanism.rungs, bytes(survey.layout.width)
    jitters_ms = below(survey.jitter_ms + 1, len(secrets), bits).tolist()
    found = []
    for copy, (raw, jitter_ms) in enumerate(zip(secrets, jitters_ms, strict=True)):
        shard, frame = _frame(survey, chain.window_ms, rung, raw, nothing, 0)
        place = survey.id, chain.window_ms, rung, copy, shard
        found.append(Withdrawal(*place, jitter_ms, frame, chain.expires_ms))
    return found


def _frame(survey: Survey, window_ms: int, rung: int, raw: bytes, answer: bytes, group: int) -> tuple[int, bytes]:
    """Return the shard and the frame of one report."""
    layout = survey.layout
    keys = key_chain(raw, survey.mechanism.rungs, survey.digest, window_ms) if layout.keyed else [raw]
    token = _row(keys[0])
    reports = Reports(
        tokens=token,
        answers=_row(answer),
        rungs=np.array([rung], dtype=np.uint8),
        groups=np.array([group], dtype=np.uint16) if layout.grouped else None,
        keys=_row(keys[rung + 1]) if layout.keyed else None,
    )
    shard = int(shards_of(token, survey.shards)[0])
    # Not the time of this device: the error of its clock would identify it in every window.
    sent_ms = survey.public_ms(window_ms, rung)
    return shard, encode(survey.form(rung).digest, window_ms, sent_ms, shard, reports, layout)


def _row(raw: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(raw, dtype=np.uint8).reshape(1, -1)


def token_of(secret: bytes, survey: Survey, window_ms: int, copy: int) -> bytes:
    """Return the token of a chain, or the secret key it follows from where answers can be withdrawn.

    Only the device that has the secret can link it to its other chains.
    """
    # That of the first survey: whichever of those that continue it is answered, the chain is the same.
    named = _TOKEN_INPUT.pack(survey.digests[0], window_ms, copy)
    return hmac.digest(secret, named, hashlib.sha256)[:TOKEN_BYTES]
