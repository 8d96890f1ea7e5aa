"""Chains of simulated devices as an audit sees them, drawn with a seed."""

from __future__ import annotations

import numpy as np

from estimators.auditing.declared import DeclaredLaw
from estimators.auditing.transcripts import Transcripts
from estimators.exact.randomness import SeededBits
from estimators.mechanism import Specification
from estimators.mechanisms.registry import randomizer_of
from producers.wire.transport import answer_bytes

DEVICES = 16


def sound_chains(specification: Specification, law: DeclaredLaw, rows: int, seed: int = 1) -> Transcripts:
    """Return chains as devices draw them: four processes of four devices, in pairs of equal values."""
    number = np.arange(rows, dtype=np.int64)
    processes, slots, windows = number % 4, number // 4 % 4, number // DEVICES
    truths = np.array(
        [
            SeededBits(seed, slot // 2, window).words(1)[0] % len(law.values)
            for slot, window in zip(slots.tolist(), windows.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
    randomizer = randomizer_of(specification)
    inputs = randomizer.encode([law.values[truth] for truth in truths], SeededBits(seed, "encode"))
    drawn = randomizer.draw(inputs, SeededBits(seed, "draw"))
    tokens = SeededBits(seed, "tokens").words(2 * rows).view(np.uint8).reshape(rows, 16)
    return Transcripts(
        truths=truths,
        answers=np.stack([answer_bytes(answers, specification.answer.width) for answers in drawn.answers]),
        groups=drawn.groups.astype(np.int64),
        tokens=tokens,
        processes=processes,
        slots=slots,
        windows=windows,
        copies=np.zeros(rows, dtype=np.int64),
    )
