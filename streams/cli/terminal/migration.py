"""What `thaw topics migrate` prints: the state of a topic that is being drained, and the next step."""

from __future__ import annotations

from typing import Any

from producers.survey.durations import format_duration
from streams.kafka.migration import Draining, name_for
from streams.settings import Settings


def steps(settings: Settings, partitions: int) -> list[str]:
    """Return what to do once the new topic is there."""
    new = f"THAW_REPORTS={name_for(partitions)} THAW_PARTITIONS={partitions}"
    return [
        f"1. restart workers one by one with {new} THAW_DRAINING={settings.reports}: they read both topics",
        f"2. restart what sends reports with {new}: gateways, fleets; then devices, with their next release",
        f"3. `thaw topics migrate` with {new} THAW_DRAINING={settings.reports} says what is left of the old topic",
        "4. when nothing is: restart workers one by one without THAW_DRAINING",
        "5. `thaw topics migrate --finish` with the variables of step 3 deletes the old topic",
    ]


def sentences(found: Draining, quiet_ms: int) -> list[str]:
    """Return the state as lines."""
    came = format_duration(found.quiet_ms // 1_000 * 1_000) if found.state.newest_ms else ""
    return [
        f"{found.topic}: {found.waiting:,} records wait, "
        + (f"the last one came {came} ago" if came else "none ever came"),
        f"read by {', '.join(found.readers)}" if found.readers else "no worker reads it",
        *obstacles(found, quiet_ms, finishing=False),
    ]


def obstacles(found: Draining, quiet_ms: int, *, finishing: bool) -> list[str]:
    """Return what stands against the next step."""
    reasons = []
    if found.waiting:
        reasons.append(f"{found.waiting:,} records are not counted yet: workers with THAW_DRAINING must run")
    if found.quiet_ms < quiet_ms:
        reasons.append(
            f"something still sends to it: a record came within the last {format_duration(quiet_ms)} (--quiet)"
        )
    if finishing and found.readers:
        reasons.append(f"{', '.join(found.readers)} still read it: restart them without THAW_DRAINING")
    return reasons


def as_data(found: Draining, quiet_ms: int) -> dict[str, Any]:
    """Return the state under stable keys."""
    return {
        "topic": found.topic,
        "waiting": found.waiting,
        "newest_ms": found.state.newest_ms or None,
        "readers": list(found.readers),
        "drained": not obstacles(found, quiet_ms, finishing=False),
    }
