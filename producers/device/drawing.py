"""Drawing a chain: all answers of a window at once, from the top rung down, with secure bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from estimators.exact.randomness import SecureBits, below
from estimators.mechanisms.registry import randomizer_of
from producers.device.continuing import sealed_inputs
from producers.device.ledger import StoredChain
from producers.device.sealing import Seal
from producers.survey.survey import Survey
from producers.wire.transport import answer_bytes


def drawn_chain(
    survey: Survey, window_ms: int, value: Any, now_ms: int, bits: SecureBits, seal: Seal | None
) -> StoredChain:
    """Return a chain for a value with nothing released; ParameterError if the survey does not know the value.

    With a seal it holds what levels that are added later need.
    """
    mechanism = survey.mechanism
    randomizer = randomizer_of(mechanism)
    inputs = randomizer.encode([value], bits)
    drawn = randomizer.draw(np.repeat(inputs, mechanism.copies, axis=0), bits)
    answers = b"".join(answer_bytes(rung, mechanism.answer.width).tobytes() for rung in drawn.answers)
    jitters = below(survey.jitter_ms + 1, mechanism.rungs * mechanism.copies, bits)
    jitters_ms = jitters.astype(np.int64).reshape(mechanism.rungs, mechanism.copies)
    return StoredChain(
        survey_id=survey.id,
        window_ms=window_ms,
        answers=answers,
        groups=tuple(drawn.groups.tolist()),
        epsilons=mechanism.epsilons,
        jitters_ms=tuple(tuple(row) for row in jitters_ms.tolist()),
        drawn_ms=now_ms,
        released=(),
        charged_units=0,
        expires_ms=survey.expiry_ms(window_ms),
        sealed=sealed_inputs(seal, survey, window_ms, inputs),
    )
