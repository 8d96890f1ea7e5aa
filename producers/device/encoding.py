"""The reports of a rung as they leave a device: each a frame of its own, with the token of its chain."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Sequence

import numpy as np

from producers.device.ledger import StoredChain
from producers.device.outbox import OutgoingReport
from producers.survey.survey import Survey
from producers.wire.frames import Reports, encode
from producers.wire.layout import TOKEN_BYTES
from producers.wire.shards import shards_of

_TOKEN_INPUT = struct.Struct("<8sqI")


def encoded(
    survey: Survey, chain: StoredChain, rung: int, now_ms: int, tokens: Sequence[bytes]
) -> list[OutgoingReport]:
    """Encode the reports of a rung, each as a frame of its own: nothing on the wire links two of them.

    `tokens` are those of the chain, one for each copy.
    """
    layout, outgoing = survey.layout, []
    # Not the time of this device: the error of its clock would identify it in every window.
    public_ms = chain.window_ms if rung == 0 else survey.opening_ms(chain.window_ms, rung)
    for copy, (group, raw) in enumerate(zip(chain.groups, tokens, strict=True)):
        token = np.frombuffer(raw, dtype=np.uint8).reshape(1, TOKEN_BYTES)
        reports = Reports(
            tokens=token,
            answers=np.frombuffer(chain.answer(rung, copy), dtype=np.uint8).reshape(1, layout.width),
            rungs=np.array([rung], dtype=np.uint8),
            groups=np.array([group], dtype=np.uint16) if layout.grouped else None,
        )
        shard = int(shards_of(token, survey.shards)[0])
        frame = encode(survey.digest, chain.window_ms, public_ms, shard, reports, layout)
        # From now, not from the opening: a late device must not send the reports of several windows together.
        ready_ms = min(now_ms + chain.jitters_ms[rung][copy], max(now_ms, chain.expires_ms))
        outgoing.append(OutgoingReport(survey.id, chain.window_ms, rung, copy, shard, ready_ms, frame))
    return outgoing


def token_of(secret: bytes, survey: Survey, window_ms: int, copy: int) -> bytes:
    """Return the token of a chain; only the device that has the secret can link it to its other chains."""
    named = _TOKEN_INPUT.pack(survey.digest, window_ms, copy)
    return hmac.digest(secret, named, hashlib.sha256)[:TOKEN_BYTES]
