"""What the compiled loops share: arrays of 8-byte words, little-endian, and how a byte is taken out of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_BYTE: Final = np.uint64(0xFF)


def compiled(function: _Function) -> _Function:
    """Compile a function when it is first called; it releases the interpreter lock and is kept on disk."""
    return cast(_Function, numba.njit(nogil=True, cache=True)(function))


@compiled
def byte_at(words: Words, row: int, at: int) -> int:
    """Return byte `at` of a row."""
    word = words[row, at >> 3]
    return np.int64((word >> np.uint64((at & 7) << 3)) & _BYTE)  # type: ignore[return-value]  # compiled: machine types
