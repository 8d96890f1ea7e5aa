"""A store that loses connections, before or after it has done what it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.store.contract import StoreUnavailableError


class FaultyStore:
    """Passes calls on to a store; `fault(method, "before" or "after")` tells whether the connection is lost there."""

    def __init__(self, store: Any, fault: Callable[[str, str], bool]) -> None:
        self._store, self._fault = store, fault

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._fault(name, "before"):
                raise StoreUnavailableError(f"lost before {name}")
            result = method(*args, **kwargs)
            if self._fault(name, "after"):
                raise StoreUnavailableError(f"lost after {name}")
            return result

        return call
