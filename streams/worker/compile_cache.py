"""Compiled code on disk: of these sources and no others, and read where it cannot be written.

Numba's cache notices that the file of a function changed, but not the files of what is compiled into it.

A cache that is made when an image is built is used on its read-only root. Numba asks of every folder for its cache that
it can be written, also where all code is in it; on a read-only root it finds none and would compile at every start.

Names of `numba.core.caching` are used that its manual does not promise: the version is pinned, and
tests/unit/streams/worker/test_compile_cache.py notices a change.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal

import numba
import numba.core.caching

logger = logging.getLogger(__name__)

caching: Any = numba.core.caching  # its types are not those of its code
config: Any = numba.core.config

SOURCES: Final = (
    "producers/wire/keys.py",
    "producers/wire/layout.py",
    "streams/kafka/messages.py",
    "streams/store/counters.py",
    "streams/store/entry.py",
    "streams/worker/kernels.py",
    "streams/worker/key_chains.py",
    "streams/worker/precedence.py",
    "streams/worker/record_walk.py",
    "streams/worker/spans.py",
    "streams/worker/vectors.py",
    "streams/worker/words.py",
)
"""Files with compiled functions, and those whose constants these take."""


def sources_hash(root: Path = Path(__file__).parents[2]) -> bytes:
    """Return a hash of what compiled code is made from."""
    total = hashlib.sha256()
    for name in SOURCES:
        total.update(hashlib.sha256((root / name).read_bytes()).digest())
    return total.digest()


_HASH: Final = sources_hash()


class _Locator(caching.UserProvidedCacheLocator):  # type: ignore[misc]
    """The folder NUMBA_CACHE_DIR, if there is something in it for the file of the function."""

    def ensure_cache_path(self) -> None:
        """Raise OSError if there is no such folder; numba's own also writes into it."""
        Path(self.get_cache_path()).stat()


class _Code(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_Locator,)


class _ReadOnlyCache(caching.Cache):  # type: ignore[misc]
    _impl_class = _Code

    def save_overload(self, sig: Any, _data: Any) -> None:
        """Tell that code had to be compiled: the cache is of another processor, numba or version of the file."""
        logger.info("compiled %s%s, which is not in %s", self._name, sig, config.CACHE_DIR)


def keep_apart(dispatcher: Any) -> None:
    """Let a function find only code on disk that was compiled from all these sources as they are."""
    file = dispatcher._cache._cache_file
    file._source_stamp = (*file._source_stamp, _HASH)


def compile_with_kept_code(function: Callable[..., Any], inline: Literal["never", "always"]) -> Any:
    """Compile a function on a root where no cache can be written; code that NUMBA_CACHE_DIR has is used."""
    dispatcher: Any = numba.njit(nogil=True, inline=inline)(function)
    try:
        dispatcher._cache = _ReadOnlyCache(function)
    except RuntimeError as error:
        if not no_place(error):
            raise
        return dispatcher
    keep_apart(dispatcher)
    return dispatcher


def no_place(error: RuntimeError) -> bool:
    """Tell whether numba raised it because it found no folder for a cache."""
    return "no locator available" in str(error)
