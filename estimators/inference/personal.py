"""Spread the shares of personal tags over the values that they may stand for (Murakami & Kawamoto, Eq. 22)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from estimators.estimates import Floats


def personal_matrix(combined: Floats, sensitive: int, tags: int, backgrounds: Sequence[ArrayLike | None]) -> Floats:
    """Return the matrix that takes shares over (sensitive, tags, other) to shares over (sensitive, other)."""
    other = combined.size - sensitive - tags
    if other < 1:
        raise ValueError(f"tags need at least one value that is not sensitive for all; got {combined.size} symbols")
    matrix = np.zeros((sensitive + other, combined.size))
    matrix[:sensitive, :sensitive] = np.eye(sensitive)
    matrix[sensitive:, sensitive + tags :] = np.eye(other)
    for tag, background in enumerate(backgrounds):
        if background is None:
            # A linear estimate may be negative; a distribution may not.
            mass = np.maximum(combined[sensitive + tags :], 0)
            total = float(mass.sum())
            column = mass / total if total > 0 else np.full(other, 1 / other)
        else:
            column = np.asarray(background, dtype=np.float64)
        if column.shape != (other,):
            raise ValueError(f"a background needs one share per other value ({other}); got {column.shape}")
        matrix[sensitive:, sensitive + tag] = column
    return matrix
