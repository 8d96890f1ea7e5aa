"""Continuing stored chains: answers for levels above the top of a chain are drawn from its last one.

The forward step needs the true value once more. A device that was given a key keeps what the chain was drawn from,
sealed with it, until the window expires (`producers.device.sealing`); without a key chains end where they ended.

All new answers of a chain are stored in one transaction before anything of them is released. A crash before it commits
leaves the chain as it was: what was drawn is gone and nobody has seen it. After it nothing is drawn again.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from estimators.exact.randomness import Bits, below
from estimators.mechanism import Specification
from estimators.mechanisms.registry import randomizer_of
from producers.device.ledger import Ledger, StoredChain
from producers.device.sealing import Seal
from producers.survey.continuing import obstacle
from producers.survey.survey import Survey
from producers.wire.transport import answer_bytes


def sealed_inputs(seal: Seal | None, survey: Survey, window_ms: int, inputs: NDArray[Any]) -> bytes | None:
    """Return what a chain was drawn from, sealed; None where nothing can continue it."""
    if seal is None or survey.mechanism.copies > 1 or obstacle(survey):
        return None
    # The fields of an array, all of fixed length for a survey: the length of what is sealed tells nothing.
    plain = inputs.dtype.str.encode() + bytes([inputs.ndim]) + inputs.tobytes()
    return seal.closed(plain, _about(survey, window_ms))


def continued_chain(ledger: Ledger, seal: Seal | None, survey: Survey, chain: StoredChain, bits: Bits) -> StoredChain:
    """Return a chain with answers for all rungs of its survey, drawing those it lacks; as it is where that cannot be.

    Inside the caller's transaction, which read the chain.
    """
    earlier = _edition(survey, chain)
    if earlier is None or chain.answers is None or seal is None or chain.sealed is None:
        return chain
    plain = seal.opened(chain.sealed, _about(survey, chain.window_ms))
    if plain is None:
        return chain
    mechanism, top = survey.mechanism, earlier.rungs - 1
    inputs = np.frombuffer(plain[4:], dtype=plain[:3].decode())
    inputs = inputs if plain[3] == 1 else inputs.reshape(1, -1)
    kind = mechanism.symbol_dtype if mechanism.answer.kind == "index" else "u1"
    sharpest = np.frombuffer(chain.answer(top, 0), dtype=kind)
    sharpest = sharpest if mechanism.answer.kind == "index" else sharpest.reshape(1, -1)
    drawn = randomizer_of(mechanism).draw_more(earlier, inputs, sharpest, bits)
    jitters = below(survey.jitter_ms + 1, len(drawn), bits).tolist()
    longer = replace(
        chain,
        answers=chain.answers + b"".join(answer_bytes(rung, mechanism.answer.width).tobytes() for rung in drawn),
        epsilons=(*chain.epsilons, *mechanism.epsilons[earlier.rungs :]),
        jitters_ms=(*chain.jitters_ms, *((jitter,) for jitter in jitters)),
    )
    ledger.connection.execute(
        "UPDATE chains SET answers = ?, epsilons = ?, jitters_ms = ? WHERE survey_id = ? AND window_ms = ?",
        (
            longer.answers,
            msgspec.json.encode(longer.epsilons),
            msgspec.json.encode(longer.jitters_ms),
            chain.survey_id,
            chain.window_ms,
        ),
    )
    return longer


def ends_early(survey: Survey, chain: StoredChain) -> str:
    """Say why a chain has no answers for the upper rungs of its survey; empty if it has them all."""
    if len(chain.epsilons) >= survey.mechanism.rungs:
        return ""
    why = (
        "it was drawn for another survey than those that its file continues"
        if _edition(survey, chain) is None
        else "nothing was kept to draw them from: pass value_key, the same one at every start"
    )
    return (
        f"{survey.id}, window {chain.window_ms}: levels were added to the survey after this window was answered, and "
        f"this device does not release them: {why}"
    )


def _edition(survey: Survey, chain: StoredChain) -> Specification | None:
    """Return the mechanism that a chain was drawn with, if the survey continues it."""
    for edition in survey.continued:
        costs = edition.mechanism.epsilons
        if len(costs) == len(chain.epsilons) and all(map(math.isclose, costs, chain.epsilons)):
            return edition.mechanism
    return None


def _about(survey: Survey, window_ms: int) -> bytes:
    return f"{survey.id}:{window_ms}".encode()
