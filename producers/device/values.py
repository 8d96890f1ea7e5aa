"""When two values that a device is given are the same one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec


def same_bytes(value: Any) -> bytes:
    """Return bytes that do not depend on the order of keys in a table or of labels in a record.

    >>> same_bytes({"milk": 1.0, "bread": [2, 1]}) == same_bytes({"bread": [1, 2], "milk": 1.0})
    True
    """
    return msgspec.json.encode(_ordered(value))


def _ordered(value: Any) -> Any:
    if isinstance(value, Mapping):
        return [[key, _ordered(value[key])] for key in sorted(value)]
    if isinstance(value, list | tuple | set | frozenset):
        return sorted((_ordered(entry) for entry in value), key=msgspec.json.encode)
    return value
