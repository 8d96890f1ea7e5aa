"""The canary of a survey: simulated devices with known values, to monitor the pipeline itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from producers.survey.file import CanaryTable
from producers.survey.messages import SurveyError


@dataclass(frozen=True)
class Canary:
    """Simulated devices with known values: how many, their seed, and the share of each value in the order of values.

    alpha is the probability that they ever seem to reveal more than is declared although they do not.
    """

    devices: int
    seed: int
    shares: tuple[float, ...]
    alpha: float = 0.001


def canary_of(source: str, table: CanaryTable | None, values: Sequence[str]) -> Canary | None:
    """Return the checked table of a survey file; SurveyError names the wrong field."""
    if table is None:
        return None
    if not 1 <= table.devices <= 1_000_000:
        raise SurveyError(
            source, "canary.devices", table.devices, "must be 1 to 1000000; 2000 is enough to notice a fault"
        )
    if table.seed < 0:
        raise SurveyError(source, "canary.seed", table.seed, "must not be negative")
    if len(table.shares) != len(values):
        raise SurveyError(source, "canary.shares", table.shares, f"give one share per value, {len(values)} in all")
    if min(table.shares, default=0.0) < 0 or abs(math.fsum(table.shares) - 1.0) > 1e-9:
        raise SurveyError(source, "canary.shares", table.shares, "shares are not negative and sum to 1; correct them")
    if not 0 < table.alpha < 0.5:
        raise SurveyError(
            source, "canary.alpha", table.alpha, "must be above 0 and below 0.5; 0.001 is one false alarm in 1000"
        )
    return Canary(table.devices, table.seed, tuple(table.shares), table.alpha)
