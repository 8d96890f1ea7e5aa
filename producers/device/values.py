"""When two values that a device is given are the same one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from producers.device.results import ValueFixedError
from producers.survey.survey import Survey


class OpenValues:
    """The values that this process was given for windows that are open: in memory alone."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, int], bytes] = {}

    def note(self, survey_id: str, starts: Mapping[int, bool], plain: bytes) -> None:
        """Note a value for those of the open windows of a survey that had none, and forget the windows before them."""
        self._values = {key: held for key, held in self._values.items() if key[0] != survey_id or key[1] in starts}
        self._values |= {(survey_id, start): plain for start, is_known in starts.items() if not is_known}

    def check(self, survey_id: str, starts: Iterable[int], plain: bytes) -> None:
        """Raise ValueFixedError if all these windows are for another value."""
        if not any(self._values.get((survey_id, start), plain) == plain for start in starts):
            raise ValueFixedError(
                f"{survey_id}: this window already has a chain for another value; the value of a chain is fixed, since "
                "a sharper answer about a changed value would cost more than it says; wait for the next window"
            )

    def keep(self, surveys: Mapping[str, Survey], now_ms: int) -> None:
        """Forget the values of windows that have ended, and of other surveys."""
        self._values = {
            (survey_id, start): held
            for (survey_id, start), held in self._values.items()
            if survey_id in surveys and now_ms < surveys[survey_id].windows.end(start)
        }


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
