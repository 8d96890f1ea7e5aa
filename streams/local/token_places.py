"""What names a token in the store, in a form that can be sorted and searched."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from producers.wire.layout import TOKEN_BYTES, TOKEN_NAME_BYTES


def token_places(tokens: NDArray[np.uint8], shards: NDArray[np.int64]) -> NDArray[np.bytes_]:
    """Return what names a token in the store: its first bytes and its shard, which stands for the rest.

    A closing 1 keeps numpy from dropping zeros at the end of a byte string.
    """
    rows = np.ones((len(tokens), TOKEN_BYTES), dtype=np.uint8)
    rows[:, :TOKEN_NAME_BYTES] = tokens
    rows[:, TOKEN_NAME_BYTES], rows[:, TOKEN_NAME_BYTES + 1] = shards & 0xFF, shards >> 8
    return rows.view(f"S{TOKEN_BYTES}").ravel()
