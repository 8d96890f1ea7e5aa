"""The shape of a survey file. The descriptions here are the reference in docs/surveys.md and part of error messages."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_LEVEL = 20.0
"""Above it an answer is the true value for all practical purposes."""

PERSON_LIFETIME_EPSILON = 100.0
"""What a device spends at most in its life, over all surveys, if its person sets no other bound. Smaller: people who
answer several surveys stop within months. Larger: the bound protects less."""

MAX_RUNGS = 255
RungAssumption = Literal["any", "independent"]
MAX_SHARDS = 4096


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file; unknown fields are refused, so that a typing error cannot be overlooked."""


Level = Annotated[float, Meta(description="a privacy level epsilon, above 0 and at most 20")]
Every = Annotated[
    str, Meta(description="time between two rungs; the second one opens that long after the window's end")
]
Steps = Annotated[int, Meta(description="number of rungs, 1 to 255")]
Jitter = Annotated[
    str | None,
    Meta(
        description="every report, the first included, is sent up to this much later, by a random time of its own; "
        "default: half of `window.step`, at most half of what `window.retention` leaves after the last rung"
    ),
]


class Listed(_Table, tag_field="kind", tag="listed", frozen=True):
    """Every level and its opening time, written out."""

    ladder: Annotated[list[float], Meta(description="the levels epsilon, lowest first, each above 0 and at most 20")]
    opens: Annotated[
        list[str],
        Meta(description="when each rung opens after the window's end; the first is 0s: when the value is taken"),
    ] = []
    jitter: Jitter = None


class Linear(_Table, tag_field="kind", tag="linear", frozen=True):
    """Levels at equal distances."""

    first: Annotated[float, Meta(description="lowest level, above 0")] = msgspec.field(name="from")
    to: Annotated[float, Meta(description="highest level, at most 20")]
    steps: Steps
    every: Every
    jitter: Jitter = None


class Geometric(_Table, tag_field="kind", tag="geometric", frozen=True):
    """Levels with a constant ratio: give `to` or `ratio`."""

    first: Annotated[float, Meta(description="lowest level, above 0")] = msgspec.field(name="from")
    steps: Steps
    every: Every
    to: Annotated[float | None, Meta(description="highest level, at most 20; omit where `ratio` is given")] = None
    ratio: Annotated[
        float | None, Meta(description="each level is this many times the one before, above 1; instead of `to`")
    ] = None
    jitter: Jitter = None


class NoisySampling(_Table, tag_field="kind", tag="noisy_sampling", frozen=True):
    """The levels that 1, 2, 3, ... noisy samples of a permanent answer reach, each as one sharper answer."""

    epsilon_permanent: Annotated[float, Meta(description="level of the whole permanent answer: the limit of the curve")]
    epsilon_sample: Annotated[float, Meta(description="level of one noisy sample of the whole answer")]
    rounds: Annotated[int, Meta(description="number of samples and so of rungs, 1 to 255")]
    every: Every
    relax: Annotated[
        bool,
        Meta(
            description="false: send the noisy samples themselves, the baseline that gradual release is compared with; "
            "the same cost, wider bands from the second rung on; for `warner`, with at most 32 rounds"
        ),
    ] = True
    then: Annotated[
        list[float],
        Meta(
            description="levels after those of the samples, as sharper answers: a client that has sent its samples "
            "goes on from there at the cost of the last level alone"
        ),
    ] = []
    jitter: Jitter = None


class OnDemand(_Table, tag_field="kind", tag="on_demand", frozen=True):
    """Every level above the first is released when the person, or their application, says so."""

    ladder: Annotated[list[float], Meta(description="the levels epsilon, lowest first, each above 0 and at most 20")]
    after: Annotated[
        str, Meta(description="no level above the first is released before this time after the window's end")
    ] = "0s"
    jitter: Jitter = None


class WhileWide(_Table, tag_field="kind", tag="while_wide", frozen=True):
    """Levels above the first open only while the always-valid band is too wide: signed bulletins say which."""

    ladder: Annotated[list[float], Meta(description="the levels epsilon, lowest first, each above 0 and at most 20")]
    opens: Annotated[
        list[str], Meta(description="when each rung opens at the earliest, after the window's end; the first is 0s")
    ]
    width: Annotated[
        float, Meta(description="the next level opens while a band, upper minus lower end, is wider than this")
    ]
    key: Annotated[str, Meta(description="public key of bulletins: 32 bytes in base64, as `thaw bulletin` says")]
    jitter: Jitter = None


Release = Listed | Linear | Geometric | NoisySampling | OnDemand | WhileWide


class WindowTable(_Table, frozen=True):
    """Length of windows, and how long late answers count."""

    size: Annotated[str, Meta(description="length of a window; windows start at multiples of `step` since 1970")]
    retention: Annotated[
        str,
        Meta(description="how long after its end a window takes answers; must outlast the last rung and its jitter"),
    ]
    step: Annotated[
        str | None,
        Meta(description="time from one window's start to the next; default: `size`; if shorter, windows overlap"),
    ] = None
    skew: Annotated[str, Meta(description="how far a device's clock may be ahead before its answers are refused")] = (
        "1m"
    )
    standing: Annotated[
        bool,
        Meta(
            description="whether answers belong to the value and not to the window: each window repeats them under a "
            "new token, and many windows cost what one costs until the value changes; who can follow a device learns "
            "which of its windows had the same value. Part of the survey id"
        ),
    ] = False


class BudgetTable(_Table, frozen=True):
    """Privacy budget of a device."""

    lifetime: Annotated[
        float,
        Meta(
            description="epsilon that a device may have spent over all surveys before this survey asks nothing more "
            "of it; `inf` only where the mechanism's own cost is infinite"
        ),
    ]
    unlock: Annotated[
        str | None,
        Meta(
            description="how much this survey may spend on a device over time, such as `0.5 per day`: that much when "
            "the device is first asked and again with every further period; what was not spent stays. Default: all at "
            "once"
        ),
    ] = None
    reserve: Annotated[
        float,
        Meta(
            description="epsilon that this survey may spend on a device whatever other surveys have spent; the bound "
            "of the person and the fair share still hold. At most `lifetime`"
        ),
    ] = 0.0


class EstimateTable(_Table, frozen=True):
    """How answers become estimates."""

    rungs: Annotated[
        RungAssumption,
        Meta(
            description="what is assumed about which device stops at which rung. `any`: nothing; the method is "
            "`stratified`. `independent`: the rung does not depend on the value; the method is `pooled`, and devices "
            "that cannot reach the top rung do not answer. Part of the survey id"
        ),
    ] = "any"
    method: Annotated[
        Literal["auto", "pooled", "stratified", "mle"] | None,
        Meta(
            description="for experts: another method than the one that `rungs` means; `pooled` and `mle` need "
            '`rungs = "independent"` or a ladder of one rung'
        ),
    ] = None
    population: Annotated[
        Literal["fleet", "sampling"],
        Meta(description="`fleet`: estimate the devices that answered; `sampling`: the population they are part of"),
    ] = "fleet"
    alpha: Annotated[float, Meta(description="probability that an interval misses the true value, below 0.5")] = 0.05


class CanaryTable(_Table, frozen=True):
    """Simulated devices with known values, to monitor the pipeline itself. Not part of the survey id."""

    devices: Annotated[int, Meta(description="number of simulated devices, 1 to 1000000")]
    seed: Annotated[int, Meta(description="seed of their random numbers; not negative")]
    shares: Annotated[
        list[float], Meta(description="the true share of each value, in the order of `values`; they sum to 1")
    ]
    alpha: Annotated[
        float,
        Meta(description="probability that devices that keep their promise are ever accused of more, 0 to 0.5"),
    ] = 0.001


class AlertTable(_Table, frozen=True):
    """An alert on a value whose always-valid bound passes a threshold. Not part of the survey id."""

    value: Annotated[str, Meta(description="one of the values, or another label that the mechanism estimates")]
    above: Annotated[
        float | None,
        Meta(description="alert when the lower bound is above this threshold; a share, or a mean in its own unit"),
    ] = None
    below: Annotated[
        float | None, Meta(description="alert when the upper bound is below this threshold; instead of `above`")
    ] = None
    alpha: Annotated[
        float,
        Meta(
            description="probability of a false alarm per window, over all evaluations; divided by the number of rules "
            "of the survey, so that it holds for all of them together"
        ),
    ] = 0.01


class LimitsTable(_Table, frozen=True):
    """Health thresholds. Not part of the survey id."""

    band: Annotated[
        float | None,
        Meta(description="widest useful interval of a value, upper minus lower end; no alert without it"),
    ] = None
    stale: Annotated[
        str | None, Meta(description="longest time without a new estimate; default: a window and a step, at least 15 s")
    ] = None
    budget: Annotated[
        float, Meta(description="share of the lifetime budget that a device may have spent before an alert")
    ] = 0.8
    flood: Annotated[
        float | None,
        Meta(
            description="highest plausible number of reports per second and shard; default: a few times that of the "
            "other shards"
        ),
    ] = None
    canary: Annotated[
        float,
        Meta(description="largest error of the canary's estimates over five windows, in standard errors"),
    ] = 6.0


class PublishTable(_Table, frozen=True):
    """What of a window is published. Not part of the survey id."""

    least_devices: Annotated[
        int | None,
        Meta(
            description="a window with answers of fewer devices publishes no estimate; default: what the mechanism "
            "needs (`least_records` of k_randomization), otherwise 0"
        ),
    ] = None
    totals_only: Annotated[
        bool,
        Meta(
            description="publish one estimate of each window, once it is settled, and never another: no estimates of "
            "open windows, no history, and reports that come later change nothing"
        ),
    ] = False


class RegistryTable(_Table, frozen=True):
    """Who answers for the survey. Not part of the survey id."""

    owner: Annotated[
        str, Meta(description="whom to ask, such as a mail address; shown on the page, and a label of its alerts")
    ] = ""
    purpose: Annotated[str, Meta(description="what the answers are used for, in one sentence")] = ""
    expires: Annotated[
        datetime.datetime | None,
        Meta(
            description="from when on devices answer and send nothing more and workers count nothing that arrives, as "
            "`2027-01-31T18:00:00Z` or `2027-01-31`; later than `end`, so that the last windows get all their rungs"
        ),
    ] = None
    review: Annotated[str, Meta(description="address (https://...) of the privacy review")] = ""


class GridTable(_Table, frozen=True):
    """Cells of a map as values: A1 in the north-west, columns are capital letters, rows numbers. Part of the id."""

    south: Annotated[float, Meta(description="southern edge: latitude, or another number that rises northwards")]
    north: Annotated[float, Meta(description="northern edge, above `south`")]
    west: Annotated[float, Meta(description="western edge: longitude, or another number that rises eastwards")]
    east: Annotated[float, Meta(description="eastern edge, above `west`")]
    rows: Annotated[int, Meta(description="number of cells from north to south; at most 10000 cells in all")]
    columns: Annotated[int, Meta(description="number of cells from west to east")]
    outside: Annotated[
        str, Meta(description="name of one more value, for every place outside; without it such places are refused")
    ] = ""
    unit: Annotated[
        Literal["degrees", "other"],
        Meta(description="`degrees` of latitude and longitude, or `other` numbers such as metres"),
    ] = "degrees"


class ValuesTable(_Table, frozen=True):
    """In place of a list of values."""

    grid: Annotated[GridTable | None, Meta(description="cells of a map: the table `[values.grid]`")] = None
    attributes: Annotated[
        dict[str, list[str]] | None,
        Meta(description="2 to 6 attributes, each with a list of values; at most 1000 combinations. Part of the id"),
    ] = None
    candidates: Annotated[
        str | None,
        Meta(
            description="name of a text file beside this one with the strings that answers are decoded with, one per "
            "line; for `rappor`. It may change at any time: neither the name nor the strings are part of the id"
        ),
    ] = None


class SurveyFile(_Table, frozen=True):
    """A whole survey file."""

    name: Annotated[
        str,
        Meta(description="lower-case letters, digits, `-` and `_`, 1 to 48 of them; the beginning of the survey id"),
    ]
    question: Annotated[str, Meta(description="what the person is asked, in one sentence")]
    mechanism: Annotated[
        dict[str, Any],
        Meta(description="`name` of the mechanism and its parameters (see mechanisms.md)"),
    ]
    release: Annotated[Release, Meta(description="which levels are released and when; `kind` chooses the form")]
    window: WindowTable
    budget: BudgetTable
    values: Annotated[
        list[str] | ValuesTable,
        Meta(
            description="the possible values, each once; their meaning depends on the mechanism. Or cells of a map, "
            "`values = {grid = {...}}`, or combinations, `values = {attributes = {...}}`, or a file of candidates, "
            '`values = {candidates = "FILE"}`'
        ),
    ] = []
    shards: Annotated[int, Meta(description="number of shards into which reports are divided, 1 to 4096")] = 64
    withdrawable: Annotated[
        bool,
        Meta(
            description="whether a device can take its answers back until the window expires: reports carry a key of a "
            "hash chain (16 bytes more), so that nobody else can sharpen or withdraw them. Part of the survey id"
        ),
    ] = False
    tiers: Annotated[
        dict[str, int],
        Meta(
            description="audiences, each with the highest rung whose answers it may know, such as `public = 0`: every "
            "tier has estimates, a topic and tokens of its own. Part of the survey id"
        ),
    ] = {}
    continues: Annotated[
        str | list[str],
        Meta(
            description="id of the earlier survey whose chains this one goes on with, at levels above its top and "
            "otherwise the same; or several such ids, the oldest first. Part of the survey id"
        ),
    ] = ""
    estimate: EstimateTable = EstimateTable()
    canary: CanaryTable | None = None
    alert: list[AlertTable] = []
    limits: LimitsTable = LimitsTable()
    publish: PublishTable = PublishTable()
    registry: RegistryTable = RegistryTable()
    end: Annotated[
        datetime.datetime | None,
        Meta(
            description="when the survey ends, as `2027-01-31T18:00:00Z` or `2027-01-31` (the beginning of that day, "
            "UTC); devices start no window at or after it, and the survey is not called stale afterwards. Not part of "
            "the survey id"
        ),
    ] = None
    accept_risk: Annotated[
        str,
        Meta(
            description="needed where the mechanism is not locally private: one sentence, four words or more, that "
            "states which risk is taken and why"
        ),
    ] = ""
