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
    """Compile a function when it is first called; it releases the interpreter lock.

    The result is kept on disk where there is a place for it: beside the code, in the home folder, or in
    NUMBA_CACHE_DIR. On a read-only root without any it is compiled again at every start, some seconds.
    """
    try:
        return cast(_Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError as error:
        if "no locator available" not in str(error):
            raise
        return cast(_Function, numba.njit(nogil=True)(function))


@compiled
def byte_at(words: Words, row: int, at: int) -> int:
    """Return byte `at` of a row."""
    word = words[row, at >> 3]
    return np.int64((word >> np.uint64((at & 7) << 3)) & _BYTE)  # type: ignore[return-value]  # compiled: machine types
