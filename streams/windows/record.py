"""The estimate of one window as it is stored in Redis, published to Kafka and served by the exporter: JSON, versioned.

New fields come last and have defaults; names and meanings never change. A number that cannot be estimated is null.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec
import numpy as np

from estimators.estimates import Estimates, Floats, Unexplained, View, ViewName
from estimators.tally import Tally
from producers.survey.file import RungAssumption
from producers.survey.survey import Survey
from streams.windows.proof import Proof

VERSION = 1


class ValueEstimate(msgspec.Struct, frozen=True, omit_defaults=False):
    """The estimate of one value: share (or mean), its variance and bounds at level 1 - alpha.

    lower and upper hold for this value alone, simultaneous_* for all values of the window at once, always_valid_* at
    every look during the whole life of the window.
    """

    value: str
    estimate: float | None
    variance: float | None
    lower: float | None
    upper: float | None
    simultaneous_lower: float | None = None
    simultaneous_upper: float | None = None
    always_valid_lower: float | None = None
    always_valid_upper: float | None = None


class UnexplainedShare(msgspec.Struct, frozen=True):
    """The share of devices whose string is none of the candidates of an open list; bounds at level 1 - alpha."""

    estimate: float
    variance: float
    lower: float
    upper: float


class DerivedEstimate(msgspec.Struct, frozen=True):
    """A number that follows from all values together, such as a total: its bounds hold at level 1 - alpha.

    kind `share`: between 0 and 1; `mean`: in a unit of its own; `total`: a sum over all devices that answered.
    `meaning` completes the sentence: this is the ...
    """

    name: str
    kind: str
    meaning: str
    estimate: float | None
    variance: float | None
    lower: float | None
    upper: float | None


class ShareView(msgspec.Struct, frozen=True):
    """The shares seen as a distribution: biased, not the estimate. In the order of the values.

    threshold: significant values as they are, the others share what is left equally. simplex: the nearest distribution.
    likelihood: the most likely distribution, from every report.
    """

    name: ViewName
    shares: list[float]
    kept: list[bool] | None = None
    """Of threshold: which values are significant."""
    distance: float | None = None
    """Simulated mean distance from the truth in total variation, for shares and errors like these."""
    unbiased_distance: float | None = None
    """The same of the estimate itself."""

    @classmethod
    def of(cls, view: View) -> ShareView:
        """Convert a view of an estimate."""
        kept = None if view.kept is None else view.kept.tolist()
        return cls(view.name, view.shares.tolist(), kept, view.distance, view.unbiased_distance)


class AlertBound(msgspec.Struct, frozen=True):
    """What an alert rule of the survey reads: a bound that holds at all looks at the window, except with `alpha`.

    side `above`: a lower bound, and the rule fires when it exceeds the threshold; `below`: the mirror image.
    """

    value: str
    side: str
    threshold: float
    alpha: float
    bound: float | None

    @property
    def firing(self) -> bool:
        """Tell whether the bound is beyond the threshold."""
        if self.bound is None:
            return False
        return self.bound > self.threshold if self.side == "above" else self.bound < self.threshold


class Withheld(msgspec.Struct, frozen=True):
    """Why a window has no estimate although answers are counted: its survey publishes none yet."""

    reason: Literal["crowd", "unsettled"]
    """crowd: fewer devices than the survey's minimum; unsettled: only the total of the settled window is published."""
    devices: int
    """Devices whose answers are counted."""
    least_devices: int

    @property
    def sentence(self) -> str:
        """What is said in place of an estimate."""
        if self.reason == "crowd":
            return f"waiting for {self.least_devices:,} devices: {self.devices:,} so far; no estimate is published"
        return "only the total of a settled window is published: waiting until this one is settled"


class EstimateRecord(msgspec.Struct, frozen=True):
    """All that is known about one window of one survey. Times are milliseconds since the epoch, UTC."""

    version: int
    survey: str
    window_start_ms: int
    window_end_ms: int
    read_ms: int
    """The counts are at least as new as this."""
    computed_ms: int
    users: int
    users_per_rung: list[int]
    epsilons: list[float | None]
    """What the answers up to each rung cost a person; null where nothing local can be promised."""
    method: str
    population: str
    alpha: float
    homogeneity_p: float | None
    notes: list[str]
    values: list[ValueEstimate]
    alerts: list[AlertBound] = []
    assumption: RungAssumption = "any"
    """What the survey assumed about rungs when the estimate was made."""
    contradicted: bool = False
    """The homogeneity test contradicts the assumption that rungs do not depend on values."""
    proof: Proof | None = None
    """Where the counts come from; null where that is not known, and from workers of older versions."""
    withheld: Withheld | None = None
    """Why no value has numbers; null for a window whose estimate is published."""
    unexplained: UnexplainedShare | None = None
    """What the candidates of an open list leave over; null without such a list."""
    derived: list[DerivedEstimate] = []
    """Totals and averages over all values, where the mechanism has such; none where nothing is published."""
    views: list[ShareView] = []
    """The shares seen as distributions; none where they need not sum to one, and from workers of older versions."""
    withdrawn: int | None = None
    """Tokens whose answers were withdrawn, and are not among the users; null where answers cannot be."""

    def encode(self) -> bytes:
        """Return JSON."""
        return msgspec.json.encode(self)


class RecordError(ValueError):
    """Stored bytes are not an estimate that this version can read."""


def decode_estimate(payload: bytes) -> EstimateRecord:
    """Read what `encode` wrote, here or in a later version that only added fields.

    Raises:
        RecordError: it is something else.
    """
    try:
        record = msgspec.json.decode(payload, type=EstimateRecord)
    except msgspec.MsgspecError as error:
        raise RecordError(f"not an estimate: {error}") from error
    if record.version != VERSION:
        raise RecordError(f"this version reads estimates of version {VERSION}; got {record.version}; update it")
    return record


def make_record(
    survey: Survey,
    window_ms: int,
    tally: Tally,
    estimates: Estimates,
    *,
    read_ms: int,
    computed_ms: int,
    always_valid: tuple[Floats, Floats] | None = None,
    alerts: Sequence[AlertBound] = (),
    contradicted: bool = False,
    views: Sequence[View] = (),
    withdrawn: int | None = None,
) -> EstimateRecord:
    """Put an estimate and where it came from into one record."""
    columns = [
        estimates.value,
        estimates.variance,
        estimates.lower,
        estimates.upper,
        estimates.simultaneous_lower,
        estimates.simultaneous_upper,
        *(always_valid if always_valid is not None else (None, None)),
    ]
    lists = [[None] * len(estimates.labels) if column is None else _finite(column) for column in columns]
    return EstimateRecord(
        version=VERSION,
        survey=survey.id,
        window_start_ms=window_ms,
        window_end_ms=survey.windows.end(window_ms),
        read_ms=read_ms,
        computed_ms=computed_ms,
        users=estimates.users,
        users_per_rung=[int(users) for users in tally.users.sum(axis=1)],
        epsilons=[epsilon if math.isfinite(epsilon) else None for epsilon in survey.mechanism.epsilons],
        method=estimates.method,
        population=estimates.population,
        alpha=estimates.alpha,
        homogeneity_p=estimates.homogeneity_p,
        notes=list(estimates.notes),
        values=[ValueEstimate(label, *numbers) for label, *numbers in zip(estimates.labels, *lists, strict=True)],
        alerts=list(alerts),
        assumption=survey.rungs,
        contradicted=contradicted,
        unexplained=_unexplained(estimates.unexplained),
        derived=[
            DerivedEstimate(
                one.name, one.kind, one.meaning, *_finite(np.array([one.value, one.variance, one.lower, one.upper]))
            )
            for one in estimates.derived
        ],
        views=[ShareView.of(view) for view in views],
        withdrawn=withdrawn,
    )


def _unexplained(found: Unexplained | None) -> UnexplainedShare | None:
    return None if found is None else UnexplainedShare(found.share, found.variance, found.lower, found.upper)


def _finite(column: Floats) -> list[float | None]:
    found: list[float | None] = column.tolist()
    for place in np.flatnonzero(~np.isfinite(column)).tolist():
        found[place] = None
    return found
