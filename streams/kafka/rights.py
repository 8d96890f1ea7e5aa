"""The rights that each command needs at a broker with access control: one table for the docs and the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from streams.settings import Settings

_CREATE: Final = ("Create", "Describe", "DescribeConfigs")


@dataclass(frozen=True)
class Right:
    """Operations on one topic or consumer group, by the names of Kafka's access control lists."""

    resource: Literal["topic", "group"]
    name: str
    operations: tuple[str, ...]
    prefixed: bool = False
    """Whether it is a right to everything whose name begins so."""


def rights(settings: Settings) -> dict[str, tuple[Right, ...]]:
    """Return what the user of each command must be allowed; a right to read or write includes the right to describe."""
    reports, estimates = settings.reports_topic, settings.estimates_topic
    dead_letters = settings.dead_letters_topic
    return {
        "thaw topics create": tuple(Right("topic", name, _CREATE) for name in (reports, estimates, dead_letters)),
        "thaw worker": (
            Right("topic", reports, ("Read",)),
            Right("topic", estimates, ("Write",)),
            Right("topic", dead_letters, ("Write",)),
            Right("group", f"{settings.prefix}{settings.group}", ("Read",)),
        ),
        "devices, thaw fleet": (Right("topic", reports, ("Write",)),),
        "thaw deadletters list, show": (Right("topic", dead_letters, ("Read",)),),
        "thaw deadletters replay": (
            Right("topic", dead_letters, ("Read",)),
            Right("topic", reports, ("Write",)),
        ),
        "thaw rebuild": (Right("topic", reports, ("Read",)),),
        "thaw verify, thaw export": (
            Right("topic", reports, ("Read",)),
            Right("topic", estimates, ("Read",)),
        ),
        "thaw audit --kafka": (
            Right("topic", settings.topic("thaw.audit."), (*_CREATE, "Write", "Read", "Delete"), prefixed=True),
        ),
        "thaw demo --kafka": (
            Right("topic", "demo-", (*_CREATE, "Write", "Read"), prefixed=True),
            Right("group", "demo-", ("Read",), prefixed=True),
        ),
    }


def documentation() -> str:
    """Return the table as Markdown, for docs/settings.md."""
    lines = ["| user of | resource | operations |", "|---|---|---|"]
    for command, needed in rights(Settings(prefix="PREFIX")).items():
        lines += [
            f"| {command} | {right.resource} `{right.name}`{' and what begins so' if right.prefixed else ''} "
            f"| {', '.join(right.operations)} |"
            for right in needed
        ]
    return "\n".join(lines)
