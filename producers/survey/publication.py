"""What of a window is published: from how many devices on, and whether only its final total."""

from __future__ import annotations

from dataclasses import dataclass

from estimators.mechanism import ParameterError, Specification
from producers.survey.file import PublishTable

MOST_DEVICES = 10**12


@dataclass(frozen=True)
class Publication:
    """least_devices: a window with fewer publishes no estimate. totals_only: it has one estimate, once it is settled.

    Without totals_only two estimates of one window may differ in the answers of a single device, so that whoever
    keeps all of them sees the totals of crowds as small as one.
    """

    least_devices: int = 0
    totals_only: bool = False


EVERYTHING = Publication()


def publication_of(table: PublishTable, mechanism: Specification) -> Publication:
    """Check the table; ParameterError names field, value and remedy."""
    least = mechanism.least_devices if table.least_devices is None else table.least_devices
    if not 0 <= least <= MOST_DEVICES:
        raise ParameterError("publish.least_devices", least, f"must be 0 to {MOST_DEVICES}")
    if least < mechanism.least_devices:
        raise ParameterError(
            "publish.least_devices",
            least,
            f"{mechanism.name} was planned for windows of at least {mechanism.least_devices} devices and protects "
            "nobody in smaller ones; raise it, or remove it: that number is the default",
        )
    return Publication(least, table.totals_only)
