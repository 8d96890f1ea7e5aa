"""Surveys for docs/spec/vectors.json, and what a device does with them step by step, told by a real one."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from producers.device.agent import Device
from producers.device.budget import BudgetError
from producers.device.results import ValueFixedError
from producers.survey.document import client_of
from producers.survey.survey import Survey, canonical_json, parse_survey
from producers.wire.transport import Message, TransportError

WINDOW_MS: Final = 1_790_000_040_000
"""A multiple of a minute."""
MINUTE_MS: Final = 60_000
_SURVEY: Final = """
name = "{name}"
question = "What?"
{values}
shards = 16
{more}
[mechanism]
{mechanism}
[release]
kind = "listed"
ladder = {ladder}
opens = {opens}
jitter = "{jitter}"
[window]
size = "1m"
retention = "5m"
[budget]
lifetime = {lifetime}
"""

COLOURS: Final = 'values = ["red", "green", "blue", "grün", "\\"5\\" \\U0001F308"]'


def survey(
    name: str,
    values: str,
    mechanism: str,
    *,
    ladder: str = "[0.5, 1.0, 3.0]",
    opens: str = '["0s", "10s", "30s"]',
    jitter: str = "7s",
    lifetime: str = "100",
    more: str = "",
) -> Survey:
    """Return a checked survey."""
    text = _SURVEY.format(
        name=name,
        values=values,
        mechanism=mechanism,
        ladder=ladder,
        opens=opens,
        jitter=jitter,
        lifetime=lifetime,
        more=more,
    )
    return parse_survey(text)


def served(known: Survey) -> dict[str, Any]:
    """Return what a client gets of a survey, and the decoding hash."""
    return {
        "id": known.id,
        "decoding": known.decoding,
        "client": msgspec.to_builtins(client_of(known)),
        "canonical_sha256": hashlib.sha256(canonical_json(known.decoding)).hexdigest(),
    }


class _Memory:
    """A transport that keeps what it is given, and can be away."""

    partitions = 1

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.away = False

    def send(self, messages: Sequence[Message]) -> None:
        if self.away:
            raise TransportError("away")
        self.sent += [message.value for message in messages]


WITHDRAWABLE: Final = "withdrawable = true"
Step = tuple[str, int, Any]
STORIES: Final[dict[str, tuple[dict[str, str], dict[str, Any], list[Step]]]] = {
    "each rung when it opens, and the same again after a restart": (
        {},
        {},
        [
            ("observe", 0, "red"),
            ("tick", 0, None),
            ("observe", 1, "red"),
            ("tick", MINUTE_MS + 9_999, None),
            ("tick", MINUTE_MS + 10_000, None),
            ("restart", 0, None),
            ("tick", MINUTE_MS + 10_000, None),
            ("tick", MINUTE_MS + 30_000, None),
            ("tick", MINUTE_MS + 40_000, None),
        ],
    ),
    "another value in the same window is refused": (
        {},
        {},
        [("observe", 0, "red"), ("observe", 5, "blue"), ("observe", MINUTE_MS, "blue"), ("tick", MINUTE_MS, None)],
    ),
    "a late device skips rungs and pays once": ({}, {}, [("observe", 0, "red"), ("tick", MINUTE_MS + 30_000, None)]),
    "what is not confirmed is sent again, the same bytes": (
        {},
        {},
        [
            ("observe", 0, "red"),
            ("away", 0, True),
            ("tick", 0, None),
            ("restart", 0, None),
            ("away", 0, False),
            ("tick", 60_000, None),
        ],
    ),
    "the person's cap": (
        {},
        {"caps": {"story": 1.0}},
        [("observe", 0, "red"), ("tick", 0, None), ("tick", MINUTE_MS + 30_000, None)],
    ),
    "a budget that pays for one window and a part of the next": (
        {"lifetime": "3.6"},
        {},
        [
            ("observe", 0, "red"),
            ("tick", MINUTE_MS + 30_000, None),
            ("observe", 2 * MINUTE_MS, "red"),
            ("tick", 3 * MINUTE_MS + 30_000, None),
            ("observe", 4 * MINUTE_MS, "red"),
            ("tick", 4 * MINUTE_MS, None),
        ],
    ),
    "the switch": (
        {},
        {},
        [
            ("observe", 0, "red"),
            ("tick", 0, None),
            ("consent", 1, False),
            ("observe", 2, "red"),
            ("tick", MINUTE_MS + 30_000, None),
            ("consent", MINUTE_MS + 30_000, True),
            ("observe", MINUTE_MS + 30_001, "red"),
            ("tick", MINUTE_MS + 30_001, None),
        ],
    ),
    "what was released leaves late, and nothing more is released of a window that has expired": (
        {},
        {},
        [("observe", 0, "red"), ("tick", 7 * MINUTE_MS, None)],
    ),
    "an answer is taken back": (
        {"more": WITHDRAWABLE},
        {},
        [
            ("observe", 0, "red"),
            ("tick", 0, None),
            ("withdraw", 5, None),
            ("tick", 5, None),
            ("observe", 6, "red"),
            ("tick", MINUTE_MS + 30_000, None),
            ("withdraw", MINUTE_MS + 30_000, None),
            ("observe", 2 * MINUTE_MS, "blue"),
            ("withdraw", 2 * MINUTE_MS, None),
            ("tick", 2 * MINUTE_MS, None),
        ],
    ),
    "the switch takes back what has left": (
        {"more": WITHDRAWABLE},
        {},
        [
            ("observe", 0, "red"),
            ("tick", 0, None),
            ("away", 0, True),
            ("consent", 1, False),
            ("restart", 1, None),
            ("away", 1, False),
            ("tick", MINUTE_MS + 30_000, None),
        ],
    ),
}
"""By name: changes to the survey, the person's wishes, and what happens: the operation, its time, its argument."""


def told(name: str, changes: dict[str, str], wishes: dict[str, Any], steps: list[Step]) -> dict[str, Any]:
    """Live a story with a real device, and say after each step what has left and what is spent."""
    known = survey("story", COLOURS, 'name = "grr"', **{"jitter": "0s", **changes})
    transport, steps_told = _Memory(), []
    with tempfile.TemporaryDirectory() as folder:

        def born() -> Device:
            return Device(Path(folder) / "ledger", [known], transport, lifetime_epsilon=1_000, **wishes)

        device = born()
        doings: dict[str, Callable[[int, Any], object]] = {
            "observe": lambda now_ms, value: device.observe(known, value, now_ms),
            "tick": lambda now_ms, _: device.tick(now_ms),
            "consent": lambda now_ms, given: device.consent(given, now_ms),
            "withdraw": lambda now_ms, _: device.withdraw(known, now_ms=now_ms),
            "away": lambda _, away: setattr(transport, "away", away),
        }
        for operation, at_ms, argument in steps:
            refused = None
            if operation == "restart":
                device.close()
                device = born()
            else:
                try:
                    doings[operation](WINDOW_MS + at_ms, argument)
                except (BudgetError, ValueFixedError) as error:
                    refused = "budget" if isinstance(error, BudgetError) else "fixed"
            steps_told.append(
                {
                    "operation": operation,
                    "now_ms": WINDOW_MS + at_ms,
                    "argument": argument,
                    "refused": refused,
                    "sent": sorted([_place(frame), frame[64]] for frame in transport.sent),
                    "spent_units": str(device.odometer.spent_units),
                }
            )
        device.close()
    return {
        "name": name,
        "survey": served(known),
        "caps": wishes.get("caps", {}),
        "person_lifetime_epsilon": 1_000,
        "steps": steps_told,
    }


def _place(frame: bytes) -> int:
    return int.from_bytes(frame[16:24], "little")
