"""A whole column of true values to randomized answers, one chain per entry."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from estimators.exact.randomness import Bits, SecureBits
from estimators.mechanism import Drawn, Specification
from estimators.mechanisms.registry import randomizer_of


def perturb(specification: Specification, values: Iterable[Any], bits: Bits | None = None) -> Drawn:
    """Randomize one true value per person: a list, a numpy array or a pandas column, as the mechanism takes them.

    Shares: labels. `mean`: numbers. Key-value mechanisms: one mapping of keys to numbers per person. Every person gets
    the answers of all rungs, drawn from the top as a device does.

    Without `bits` the operating system's secure generator is used, as on a real device: the result cannot be repeated,
    and answers may be published at the cost `specification.epsilons`. `SeededBits(seed)` repeats, and protects nobody
    who is in the data: for simulations only.

    Raises:
        ParameterError: a value is outside the domain, or missing; leave such people out first.
    """
    source = SecureBits() if bits is None else bits
    column = values.tolist() if isinstance(values, np.ndarray) else list(values)
    randomizer = randomizer_of(specification)
    inputs = randomizer.encode(column, source)
    return randomizer.draw(np.repeat(inputs, specification.copies, axis=0), source)
