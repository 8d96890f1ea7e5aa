"""The types of the public API: answers are made from them and the OpenAPI description is derived from them.

`streams.exporter.views` converts what is stored. Keys keep name and meaning; new ones come last and have defaults.
Times are milliseconds since the epoch, UTC; unknown numbers are null. Parts of a survey are in `api_survey`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from estimators.estimates import ViewName
from estimators.mechanism import Protection, QuantityKind, Subject
from producers.survey.file import RungAssumption
from streams.exporter.api_proof import Proof, Withheld
from streams.exporter.api_survey import GridInfo, RegistryInfo, UnexplainedShare
from streams.windows.settled import WindowState

Status = Literal["ok", "stale", "down"]
AlertState = Literal["firing", "pending", "inactive"]
ServiceState = Literal["up", "down", "unknown"]
SurveyState = Literal["fresh", "stale", "ended", "replaced", "unknown"]


class SurveyInfo(msgspec.Struct, frozen=True):
    """A survey: its question, its privacy guarantee and its release schedule."""

    id: str
    name: str
    question: str
    mechanism: str
    guarantee: str
    """The privacy guarantee in one sentence."""
    values: list[str]
    epsilons: list[float | None]
    """Privacy level of each rung: the epsilon of all answers up to it; null without a local guarantee."""
    opens_ms: list[int]
    """When each rung opens, counted from the end of the window; rung 0 opens when the value is taken."""
    window_size_ms: int
    window_step_ms: int
    retention_ms: int
    method: str
    population: str
    alpha: float
    jitter_ms: int
    quantities: list[QuantityKind]
    """Per value: a share of devices, or a mean."""
    canary: bool
    """The truth is known; the survey only measures whether the pipeline is calibrated."""
    settles_after_ms: int = 0
    """Time from the start of a window until it settles."""
    rungs: RungAssumption = "any"
    """What is assumed about rungs. any: nothing; independent: the rung of a device does not depend on its value."""
    end_ms: int | None = None
    """Devices start no window at or after it; null: the survey goes on."""
    units: list[str] = []
    """Per value: the unit of a mean; empty for a share, and where the unit is not known."""
    meanings: list[str] = []
    """Per value: what is estimated, in words."""
    names: list[str] = []
    """Per value: what people read; the key where the label is one of a key's two quantities."""
    subjects: list[Subject] = []
    """Per value: whether its name is a value, a string of an open list, or a key."""
    lows: list[float] = []
    highs: list[float] = []
    """Per value: the true quantity lies between them; an unbiased estimate may lie outside."""
    sensitive: list[bool] = []
    """Per value: whether it must stay hidden, where `protects` is sensitive values."""
    protects: Protection = "every value"
    """What stays hidden from whoever sees all answers of one device."""
    copies: int = 1
    """Reports that one device sends for one value; `users` counts reports, so devices are users / copies."""
    views: list[ViewName] = []
    """Views of its windows that `/views` may have; none where shares need not sum to one."""
    z: float = 1.96
    """Half width of a band in standard errors, at level 1 - alpha."""
    grid: GridInfo | None = None
    """Where the values are cells of a map."""
    attributes: dict[str, list[str]] | None = None
    """Where the values are combinations: each attribute with its values. Shares of attributes are `derived`."""
    adds_up: bool = False
    """Shares of several values may be added up, and their variances are an upper bound then."""
    candidates: bool = False
    """The values are candidates from a file, which may change: compare them with those of a window."""
    registry: RegistryInfo = RegistryInfo()
    tier: str = ""
    """The audience that this part of a survey is for: no answer above its rung counts; empty: the whole survey."""


class Truth(msgspec.Struct, frozen=True):
    """The truth of a simulated fleet, as far as it was delivered. Real devices have none."""

    shares: list[float | None]
    devices: int
    settled: bool


class ValueEstimate(msgspec.Struct, frozen=True):
    """The estimate of one value, its variance, and bounds at level 1 - alpha.

    lower and upper hold for this value alone, simultaneous_* for all values of the window at once, always_valid_* at
    every look at the window together.
    """

    value: str
    estimate: float | None
    variance: float | None
    lower: float | None
    upper: float | None
    simultaneous_lower: float | None
    simultaneous_upper: float | None
    always_valid_lower: float | None
    always_valid_upper: float | None


class DerivedEstimate(msgspec.Struct, frozen=True):
    """A number that follows from all values together, such as a total, with bounds at level 1 - alpha.

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


class AlertBound(msgspec.Struct, frozen=True):
    """What an alert rule of the survey reads: a bound that holds at all looks, except with probability alpha.

    side `above`: a lower bound, and the rule fires when it exceeds the threshold; `below`: the mirror image.
    """

    value: str
    side: str
    threshold: float
    alpha: float
    bound: float | None


class Window(msgspec.Struct, frozen=True):
    """The estimate of one window, and the truth if the fleet is a simulated one."""

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
    """Privacy level of each rung: the epsilon of all answers up to it; null without a local guarantee."""
    method: str
    population: str
    alpha: float
    homogeneity_p: float | None
    notes: list[str]
    values: list[ValueEstimate]
    alerts: list[AlertBound]
    truth: Truth | None
    state: WindowState = "open"
    """open: it has not ended; releasing: not all rungs are released yet; waiting: all are released, but not all
    reports from before are counted and estimated; settled: the estimate is complete but for late reports."""
    settles_ms: int = 0
    """When it settles if the workers are alive."""
    assumption: RungAssumption = "any"
    """What the survey assumed about rungs when the estimate was made."""
    contradicted: bool = False
    """The homogeneity test contradicts that assumption."""
    proof: Proof | None = None
    """Null where it is not known, and for estimates of older versions."""
    withheld: Withheld | None = None
    """Why no value has numbers: the survey publishes none yet; null for a window whose estimate is published."""
    unexplained: UnexplainedShare | None = None
    """Where strings are decoded with an open list of candidates: what they leave over."""
    devices: int | None = None
    """Devices behind the reports: users / copies, rounded."""
    derived: list[DerivedEstimate] = []
    """Totals and averages over all values, where the mechanism has such: the graph of devices and keys."""
    withdrawn: int | None = None
    """Tokens whose answers were withdrawn, not among the users; null where answers cannot be withdrawn."""


class Windows(msgspec.Struct, frozen=True):
    """Windows of a survey, newest first."""

    survey: str
    windows: list[Window]
    truncated: bool
    """There are more windows in the requested range."""


class HistoryPoint(msgspec.Struct, frozen=True):
    """Estimates at one moment; the lists run in parallel, `values` holds positions in the survey's list of values."""

    time_ms: int
    users_per_rung: list[int]
    values: list[int]
    estimate: list[float | None]
    lower: list[float | None]
    upper: list[float | None]


class History(msgspec.Struct, frozen=True):
    """How the estimate of one window changed while rungs opened."""

    survey: str
    window_start_ms: int
    window_end_ms: int
    values: list[str]
    openings_ms: list[int]
    """When each rung opens, without jitter; rung 0 at the start of the window."""
    epsilons: list[float | None]
    points: list[HistoryPoint]


class Worker(msgspec.Struct, frozen=True):
    """A worker with a heartbeat in the last ten minutes."""

    name: str
    time_ms: int
    alive: bool
    lag_records: int | None
    last_batch_ms: int | None
    latency_p50_seconds: float | None
    latency_p99_seconds: float | None
    kafka: ServiceState = "unknown"
    """Whether brokers answer this worker; unknown: it has not asked yet, or is an older version."""
    lag_seconds: float | None = None
    """Age of the oldest record that it has not read, at most; null before partitions were assigned."""
    metrics_port: int | None = None
    """Port of its metrics, on its own machine; null of an older version."""
    clock_offset_seconds: float | None = None
    """How far its clock is ahead of the broker's, as far as records prove it; null of an older version."""
    uncommitted_records: int | None = None
    """Records of its partitions that wait behind an open transaction; null before partitions were assigned."""
    transaction_open_seconds: float | None = None
    """For how long the oldest such transaction has been seen; 0 without one."""


class CanaryScore(msgspec.Struct, frozen=True):
    """Distance of the canary's last five settled windows from the known truth, for the value that is farthest off."""

    survey: str
    window_start_ms: int
    value: str
    z: float
    """In standard errors."""
    limit: float
    """The canary is out of calibration when the size of z exceeds it: `canary` in `[limits]` of the survey file."""


class RungEpsilon(msgspec.Struct, frozen=True):
    """What the answers of canary devices up to one rung cost."""

    rung: int
    declared: float | None
    """The privacy level of the rung; null without a local guarantee."""
    lower_bound: float
    """The epsilon is at least this: always valid, together for all rungs."""


class EpsilonAudit(msgspec.Struct, frozen=True):
    """Lower bounds on epsilon from the answers of a canary, whose true values are known, as they arrived."""

    survey: str
    rungs: list[RungEpsilon]
    answers: int
    """Answers compared with the truth so far."""
    alpha: float
    """Probability that any bound is ever wrong."""
    updated_ms: int
    exceeded: bool
    """A bound is above the declared level: the answers reveal more than was promised."""


class SurveyHealth(msgspec.Struct, frozen=True):
    """The age of a survey's estimates."""

    survey: str
    last_estimate_ms: int | None
    stale: bool
    stale_after_ms: int
    """The survey is stale when its last estimate is older than this."""
    state: SurveyState = "unknown"
    """fresh; stale: the last estimate is too old; ended: its end is over, nothing is stale; replaced: another survey of
    the same name has later estimates; unknown: it has no estimate, or Redis does not answer."""
    end_ms: int | None = None
    """Devices start no window at or after it; null: the survey goes on."""


class Health(msgspec.Struct, frozen=True):
    """The health of the pipeline at one moment."""

    now_ms: int
    status: Status
    reasons: list[str]
    """Why the status is not ok, one sentence each."""
    reports_per_second: float | None
    """Reports that changed a count, over the last ten seconds."""
    rates: list[float]
    """The same over time, oldest first, one number every two seconds, at most 150."""
    reports: dict[str, int]
    """Totals over all surveys: applied, duplicate, stale (outdated), conflict (conflicting), expired; empty while Redis
    does not answer."""
    rejected: dict[str, int]
    """By reason, over all surveys and unknown ones."""
    rejected_per_second: float | None
    lag_records: int | None
    """Consumer lag: records not yet read by a live worker; null if no worker reports it."""
    dirty_windows: int | None
    """Windows in the recompute queue; null while Redis does not answer."""
    workers: list[Worker]
    last_estimate_ms: int | None
    canary: CanaryScore | None
    surveys: list[SurveyHealth]
    store: ServiceState = "up"
    """Whether Redis answers; unknown: the exporter has just started and has not read it yet."""
    kafka: ServiceState = "unknown"
    """down: it does not answer a live worker; unknown: no live worker tells."""
    lag_seconds: float | None = None
    """Age of the oldest report that is in no estimate, at most: not read from Kafka, or its window waits in the
    recompute queue. null if no live worker tells."""
    lag_limit_seconds: float | None = None
    """Limit of lag_seconds, from the shortest step of all running surveys; null if no survey runs."""
    workers_alive: int | None = None
    workers_dead: int | None = None
    """Workers without a heartbeat for ten seconds, for ten minutes; null while Redis does not answer."""
    warnings: list[str] = []
    """What needs attention but leaves the status as it is, one sentence each."""
    epsilon_audits: list[EpsilonAudit] = []
    """One per canary whose answers were compared with its truth."""


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
    """Where the states come from: Prometheus; the stored estimates, if THAW_PROMETHEUS is not set; unreachable."""
    alerts: list[Alert]


class Problem(msgspec.Struct, frozen=True):
    """Why a request was refused."""

    error: str
    """What was expected and what was received."""
