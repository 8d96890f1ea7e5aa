"""Compare a drawn SVG with the one in docs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_NUMBER = re.compile(r"-?\d+\.\d+|-?\d+")
_NAMES = re.compile(r"\b([pmC])[0-9a-f_]{10,}\b")
"""Names that matplotlib derives from coordinates."""


def assert_same_picture(path: Path, drawn: str) -> None:
    """Fail unless the texts agree but for the last digits of coordinates, which differ between processors."""
    stored = path.read_text(encoding="utf-8")
    parts = [_NUMBER.split(_NAMES.sub(r"\1", text)) for text in (stored, drawn)]
    numbers = [[float(number) for number in _NUMBER.findall(_NAMES.sub(r"\1", text))] for text in (stored, drawn)]
    assert parts[0] == parts[1], f"{path.name} is not what its page draws; run `make generated` or `make pages`"
    assert numbers[1] == pytest.approx(numbers[0], abs=0.01)
