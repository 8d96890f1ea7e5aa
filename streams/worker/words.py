"""What the compiled loops share: arrays of 8-byte words, little-endian, and how a byte is taken out of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeVar, cast

import numba
import numpy as np
from numpy.typing import NDArray

from streams.worker.compile_cache import compile_with_kept_code, keep_apart, no_place

Words = NDArray[np.uint64]
Ints = NDArray[np.int64]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_BYTE: Final = np.uint64(0xFF)


def compiled(function: _Function) -> _Function:
    """Compile a function when it is first called; it releases the interpreter lock.

    The result is kept on disk where there is a place for it: beside the code, in the home folder, or in
    NUMBA_CACHE_DIR, which may be read-only if it was filled before. On a read-only root without any it is compiled
    again at every start, some seconds.
    """
    return _jit(function)


def inlined(function: _Function) -> _Function:
    """Compile a function as a part of those that call it; each array that is passed in a call costs ten nanoseconds."""
    return _jit(function, inline="always")


def _jit(function: _Function, inline: Literal["never", "always"] = "never") -> _Function:
    try:
        dispatcher = numba.njit(nogil=True, cache=True, inline=inline)(function)
    except RuntimeError as error:
        if not no_place(error):
            raise
        return cast(_Function, compile_with_kept_code(function, inline))
    keep_apart(dispatcher)
    return cast(_Function, dispatcher)


@inlined
def byte_at(words: Words, row: int, at: int) -> int:
    """Return byte `at` of a row."""
    word = words[row, at >> 3]
    return np.int64((word >> np.uint64((at & 7) << 3)) & _BYTE)  # type: ignore[return-value]  # compiled: machine types
