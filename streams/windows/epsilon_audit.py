"""What canary devices have shown of their epsilon so far; the canary writes it to the store, the exporter reads it.

The state holds the counts that the bounds are made of, so that a canary that starts again goes on with them. Without
it the next canary would begin with all of alpha again.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from streams.store.contract import SmallStates

logger = logging.getLogger(__name__)

STATE: Final = "epsilon"
VERSION: Final = 1


class SpanCounts(msgspec.Struct, frozen=True):
    """A span of `estimators.inference.epsilon_bounds`, as plain data."""

    length: int
    number: int
    batches: int
    counts: list[list[list[list[int]]]]
    before: list[float]


class EpsilonAudit(msgspec.Struct, frozen=True):
    """The audit of one canary survey."""

    version: int
    updated_ms: int
    alpha: float
    """All bounds hold at every look together, except with this probability."""
    answers: int
    """Answers compared with the truth so far."""
    lower_bounds: list[float]
    """Per rung: the answers up to it cost at least this epsilon."""
    spans: list[SpanCounts]
    last_windows: dict[str, int]
    """The last window that was counted, by block of the fleet: none is counted twice."""


def encode_audit(audit: EpsilonAudit) -> bytes:
    """Return the stored form."""
    return msgspec.json.encode(audit)


def decode_audit(payload: bytes, survey_id: str) -> EpsilonAudit | None:
    """Return a stored audit; None if there is none, or another version wrote it."""
    if not payload:
        return None
    try:
        audit = msgspec.json.decode(payload, type=EpsilonAudit)
    except msgspec.DecodeError as error:
        logger.warning("%s: the stored audit of epsilon cannot be read: %s", survey_id, error)
        return None
    return audit if audit.version == VERSION else None


def read_audit(states: SmallStates, survey_id: str) -> EpsilonAudit | None:
    """Return the audit of a survey.

    Raises:
        StoreUnavailableError: the store did not answer.
    """
    return decode_audit(states.get(survey_id, STATE), survey_id)
