"""Tiers: audiences of one survey, each with the highest rung whose answers it may know."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

from estimators.mechanism import ParameterError

_NAME: Final = re.compile(r"[a-z][a-z0-9-]{0,23}", re.ASCII)


class Tier(NamedTuple):
    """An audience: estimates for it are made of answers of at most this rung."""

    name: str
    rung: int


def tiers_of(table: Mapping[str, int], rungs: int) -> tuple[Tier, ...]:
    """Check the table of a survey file; return its tiers, the lowest first.

    Raises:
        ParameterError: with field, value and remedy.
    """
    tiers = tuple(sorted((Tier(name, rung) for name, rung in table.items()), key=lambda tier: tier.rung))
    for tier in tiers:
        if not _NAME.fullmatch(tier.name):
            raise ParameterError("tiers", tier.name, "name tiers with 1 to 24 lower-case letters, digits and -")
        if not 0 <= tier.rung < rungs:
            raise ParameterError(
                f"tiers.{tier.name}", tier.rung, f"must be a rung of the ladder, 0 to {rungs - 1}: the highest it sees"
            )
    for lower, upper in pairwise(tiers):
        if lower.rung == upper.rung:
            raise ParameterError(
                f"tiers.{upper.name}", upper.rung, f"{lower.name} sees the same; give both one name, or another rung"
            )
    return tiers
