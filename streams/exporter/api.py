"""What the API says, as types: answers are made from them and the OpenAPI description is derived from them.

Names and meanings never change; new fields come last and have defaults. Times are milliseconds since the epoch, UTC. A
number that cannot be told is null.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from streams.windows.history import HistoryPoint
from streams.windows.record import EstimateRecord

Quantity = Literal["share", "mean"]
Status = Literal["ok", "stale", "down"]
AlertState = Literal["firing", "pending", "inactive"]


class SurveyInfo(msgspec.Struct, frozen=True):
    """A survey: what is asked, how answers are protected, and when they sharpen."""

    id: str
    name: str
    question: str
    mechanism: str
    guarantee: str
    """One sentence that may be said to a person whose data it is."""
    values: list[str]
    epsilons: list[float | None]
    """What the answers up to each rung cost a person; null where nothing local can be promised."""
    opens_ms: list[int]
    """When each rung opens, counted from the end of the window; the first opens when the value is taken."""
    window_size_ms: int
    window_step_ms: int
    retention_ms: int
    method: str
    population: str
    alpha: float
    jitter_ms: int
    quantities: list[Quantity]
    """Per value: a share of devices, or a mean."""
    canary: bool
    """Its truth is known, and it only tells whether the pipeline is calibrated."""


class Truth(msgspec.Struct, frozen=True):
    """The truth of a simulated fleet, as far as it was delivered. Real devices have none."""

    shares: list[float | None]
    devices: int
    settled: bool


class Window(EstimateRecord, frozen=True):
    """The estimate of one window, and the truth if the fleet is a simulated one."""

    truth: Truth | None = None


class Windows(msgspec.Struct, frozen=True):
    """Windows of a survey, newest first."""

    survey: str
    windows: list[Window]
    truncated: bool
    """There are more windows in the range that was asked for."""


class Life(msgspec.Struct, frozen=True):
    """How the estimate of one window changed while rungs opened."""

    survey: str
    window_start_ms: int
    window_end_ms: int
    values: list[str]
    openings_ms: list[int]
    """When each rung opens, without jitter; the first at the start of the window."""
    epsilons: list[float | None]
    points: list[HistoryPoint]


class Worker(msgspec.Struct, frozen=True):
    """A worker that spoke in the last ten minutes."""

    name: str
    time_ms: int
    alive: bool
    lag_records: int | None
    last_batch_ms: int | None
    latency_p50_seconds: float | None
    latency_p99_seconds: float | None


class CanaryScore(msgspec.Struct, frozen=True):
    """How far the canary's last five complete windows are from the known truth, in standard errors, where farthest."""

    survey: str
    window_start_ms: int
    value: str
    z: float
    limit: float
    """Above it (in size) something is wrong: `canary` in `[limits]` of the survey file, as in the alert rule."""


class SurveyHealth(msgspec.Struct, frozen=True):
    """Whether estimates of a survey come."""

    survey: str
    last_estimate_ms: int | None
    stale: bool
    stale_after_ms: int
    """An estimate older than this is called stale."""


class Health(msgspec.Struct, frozen=True):
    """How the pipeline is, at one moment."""

    now_ms: int
    status: Status
    reasons: list[str]
    """Why it is not ok, one sentence each."""
    reports_per_second: float | None
    """Reports that changed a count, over the last ten seconds."""
    rates: list[float]
    """The same for the past, oldest first, one number every two seconds, at most 150."""
    reports: dict[str, int]
    """applied, duplicate, stale, conflict, expired: of all surveys, ever."""
    rejected: dict[str, int]
    """By reason, of all surveys and of what belongs to none."""
    rejected_per_second: float | None
    lag_records: int | None
    """Records that no living worker has read; null if no worker tells."""
    dirty_windows: int
    workers: list[Worker]
    last_estimate_ms: int | None
    canary: CanaryScore | None
    surveys: list[SurveyHealth]


class Alert(msgspec.Struct, frozen=True):
    """The state of one alert."""

    name: str
    state: AlertState
    survey: str | None
    value: str | None
    window: str | None
    summary: str
    since_ms: int | None
    runbook: str | None


class Alerts(msgspec.Struct, frozen=True):
    """All alerts, firing ones first."""

    source: Literal["prometheus", "estimates", "unreachable"]
    """Where the states come from: Prometheus; the stored estimates, if none is configured; nowhere, if it is away."""
    alerts: list[Alert]


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    error: str
    """What was expected and what came."""
