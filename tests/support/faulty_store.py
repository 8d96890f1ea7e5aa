"""A store that loses connections, before or after it has done what it was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streams.store.contract import Store, StoreUnavailableError

Fault = Callable[[str, str], bool]
"""`fault("log.apply", "before" or "after")` tells whether the connection is lost there."""


class FaultyStore:
    """Passes calls on to the parts of a store."""

    def __init__(self, store: Store, fault: Fault, *, error: str = "") -> None:
        self.log: Any = _FaultyPart("log", store.log, fault, error)
        self.queue: Any = _FaultyPart("queue", store.queue, fault, error)
        self.unreadable: Any = _FaultyPart("unreadable", store.unreadable, fault, error)
        self.estimates: Any = _FaultyPart("estimates", store.estimates, fault, error)
        self.states: Any = _FaultyPart("states", store.states, fault, error)
        self.now_ms: Any = _FaultyPart("store", store, fault, error).now_ms


class _FaultyPart:
    def __init__(self, name: str, part: Any, fault: Fault, error: str) -> None:
        self._name, self._part, self._fault, self._error = name, part, fault, error

    def __getattr__(self, name: str) -> Any:
        method, place = getattr(self._part, name), f"{self._name}.{name}"

        def call(*args: Any, **kwargs: Any) -> Any:
            if self._fault(place, "before"):
                raise StoreUnavailableError(self._error or f"lost before {place}")
            result = method(*args, **kwargs)
            if self._fault(place, "after"):
                raise StoreUnavailableError(self._error or f"lost after {place}")
            return result

        return call
