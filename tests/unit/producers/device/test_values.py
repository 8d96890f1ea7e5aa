"""A device remembers the value of a window while the window is open, and knows it again in any order."""

from __future__ import annotations

import gc
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from producers.device.agent import Device
from producers.survey.survey import load_survey
from tests.support.paths import ROOT
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport


@pytest.mark.parametrize(
    ("name", "value", "again"),
    [
        ("lpp", {"search": 0.5, "print": -1.0}, {"print": -1.0, "search": 0.5}),
        ("k_randomization", ["sports", "games"], ["games", "sports"]),
        ("pum", {"value": "park", "personal": {"home": ["park"]}}, {"personal": {"home": ["park"]}, "value": "park"}),
    ],
)
def test_the_same_value_in_another_order_is_the_same_value(tmp_path: Path, name: str, value: Any, again: Any) -> None:
    asked = load_survey(ROOT / "deploy" / "surveys" / f"{name}.toml")
    with Device(tmp_path / "ledger", [asked], MemoryTransport()) as device:
        assert device.observe(asked, value, WEEK) == device.observe(asked, again, WEEK + 1)


def test_after_its_window_the_value_is_in_no_object_of_the_device(tmp_path: Path) -> None:
    asked = survey()
    with Device(tmp_path / "ledger", [asked], MemoryTransport()) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK + 1)
        assert any(b"green" in held for held in _bytes_of(device)), "it is known while its window is open"
        device.tick(WEEK + WINDOW_MS)
        assert not any(b"green" in held for held in _bytes_of(device))


def _bytes_of(device: Device) -> list[bytes]:
    """Return all bytes that the device refers to, directly or through its own objects and containers."""
    found: list[bytes] = []
    held = gc.get_referents(device.__dict__)
    for _ in range(3):
        found += [entry for entry in held if isinstance(entry, bytes)]
        held = gc.get_referents(*(entry for entry in held if not isinstance(entry, type | ModuleType)))
    return found
