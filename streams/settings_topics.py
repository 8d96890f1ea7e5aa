"""The settings of topics: a part of the table in `streams.settings`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Final

from streams.settings_gateway import About

REPORTS: Final = "thaw.reports.v1"
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,40}", re.ASCII)
_PREFIX: Final = re.compile(r"[A-Za-z0-9._-]{0,200}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class TopicSettings:
    """Settings of topics. Field `prefix` is the variable `THAW_PREFIX`, and so on."""

    prefix: Annotated[
        str, About("Prefix of all topics and keys, so that several systems can share Kafka and Redis.")
    ] = ""
    reports: Annotated[str, About("Topic of reports, without the prefix; another one after `thaw topics migrate`.")] = (
        REPORTS
    )
    draining: Annotated[
        str,
        About("Topic of reports that workers still read beside it, until `thaw topics migrate` says that it is empty."),
    ] = ""
    partitions: Annotated[
        int,
        About(
            "Partitions of the reports topic, for `thaw topics create` and workers; devices ask the broker.",
            low=1,
            high=4096,
        ),
    ] = 8
    replication: Annotated[int, About("Replication factor of every topic.", low=1, high=32)] = 1

    def topic(self, name: str) -> str:
        """Return the full name of a topic."""
        return f"{self.prefix}{name}"

    @property
    def reports_topic(self) -> str:
        """The topic that devices send reports to."""
        return self.topic(self.reports)

    @property
    def draining_topic(self) -> str | None:
        """The topic that devices sent reports to before; None if there is none."""
        return self.topic(self.draining) if self.draining else None

    @property
    def estimates_topic(self) -> str:
        """The topic of estimates."""
        return self.topic("thaw.estimates.v1")

    @property
    def dead_letters_topic(self) -> str:
        """The topic of refused frames."""
        return self.topic("thaw.reports.dlq.v1")


def tier_topic(estimates: str, tier: str) -> str:
    """Return the topic of the estimates for one tier; `estimates` is that of those for the owner.

    >>> tier_topic("thaw.estimates.v1", "public")
    'thaw.estimates.v1.public'
    """
    return f"{estimates}.{tier}"


def topic_fault(settings: TopicSettings) -> str | None:
    """Return what is wrong with the names; None if they are fine."""
    if not _PREFIX.fullmatch(settings.prefix):
        return (
            "THAW_PREFIX must be at most 200 letters, digits, dots, dashes and underscores, which topics may have; "
            f"got {settings.prefix!r}"
        )
    names = {"THAW_REPORTS": settings.reports, **({"THAW_DRAINING": settings.draining} if settings.draining else {})}
    for variable, name in names.items():
        if not _NAME.fullmatch(name):
            return f"{variable} must be 1 to 40 letters, digits, dots, dashes and underscores; got {name!r}"
        others = (settings.estimates_topic, settings.dead_letters_topic)
        if settings.topic(name) in others or settings.topic(name).startswith(tier_topic(others[0], "")):
            return f"{variable} must be a topic of reports; {name} is the one of estimates or of dead letters"
    if settings.draining == settings.reports:
        return f"THAW_DRAINING must be another topic than THAW_REPORTS; both are {settings.reports!r}"
    return None
