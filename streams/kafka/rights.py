"""The rights that each command needs at a broker with access control: one table for the docs and the tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from streams.settings import Settings
from streams.settings_topics import REPORTS, tier_topic

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
    group = f"{settings.prefix}{settings.group}"
    read = [name for name in (reports, settings.draining_topic) if name is not None]
    return {
        "thaw topics create": tuple(Right("topic", name, _CREATE) for name in (reports, estimates, dead_letters)),
        "thaw topics create, for surveys with tiers": (
            Right("topic", tier_topic(estimates, ""), _CREATE, prefixed=True),
        ),
        "thaw topics migrate": (
            Right("topic", settings.topic(REPORTS), (*_CREATE, "Delete"), prefixed=True),
            Right("group", group, ("Describe",)),
        ),
        "thaw worker": (
            *(Right("topic", name, ("Read",)) for name in read),
            Right("topic", estimates, ("Write",)),
            Right("topic", dead_letters, ("Write",)),
            Right("group", group, ("Read",)),
        ),
        "thaw worker, for surveys with tiers": (Right("topic", tier_topic(estimates, ""), ("Write",), prefixed=True),),
        "devices, thaw gateway, thaw fleet": (Right("topic", reports, ("Write",)),),
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
