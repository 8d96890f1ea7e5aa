"""The name under which a worker is a member of its consumer group."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from streams.settings import Settings
from streams.settings_topics import REPORTS

_MARK: Final = ".topics-"


def member_name(settings: Settings, topics: Sequence[str]) -> str:
    """Return the worker's static name in its group, another one for other topics than the default.

    Kafka gives a member that comes back under its name the partitions that it had, without a look at what it
    subscribes to now. A worker that was restarted with other topics would be given partitions that it does not want,
    and nobody would read the others. Under another name it is a new member, and all partitions are shared out again.

    >>> member_name(Settings(instance="one"), ["thaw.reports.v1"])
    'one'
    >>> member_name(Settings(instance="one"), ["thaw.reports.v1.p16", "thaw.reports.v1"])
    'one.topics-c33607fe'
    """
    if list(topics) == [settings.topic(REPORTS)]:
        return settings.instance_id
    return f"{settings.instance_id}{_MARK}{hashlib.sha256(' '.join(topics).encode()).hexdigest()[:8]}"


def instance_of(member: str) -> str:
    """Return the worker's name.

    >>> instance_of("one.topics-c33607fe"), instance_of("one")
    ('one', 'one')
    """
    return member.partition(_MARK)[0]
