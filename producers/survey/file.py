"""The shape of a survey file. The descriptions here are the reference in docs/surveys.md and part of error messages."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

MAX_LEVEL = 20.0
"""Beyond it an answer is the truth for all practical purposes, and nobody should call that private."""

MAX_RUNGS = 255
MAX_SHARDS = 4096


class _Table(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """A table of the file; a word that is not in it is refused, so that a typing error cannot be overlooked."""


Level = Annotated[float, Meta(description="a privacy level epsilon, above 0 and at most 20")]
Every = Annotated[
    str, Meta(description="time between two rungs; the second one opens that long after the window's end")
]
Steps = Annotated[int, Meta(description="number of rungs, 1 to 255")]
Jitter = Annotated[
    str,
    Meta(description="each rung leaves at a random moment up to this much later, drawn once and without the value"),
]


class Listed(_Table, tag_field="kind", tag="listed", frozen=True):
    """Every level and its opening time, written out."""

    ladder: Annotated[list[float], Meta(description="the levels epsilon, lowest first, each above 0 and at most 20")]
    opens: Annotated[
        list[str],
        Meta(description="when each rung opens after the window's end; the first is 0s: when the value is taken"),
    ] = []
    jitter: Jitter = "0s"


class Linear(_Table, tag_field="kind", tag="linear", frozen=True):
    """Levels at equal distances."""

    first: Annotated[float, Meta(description="lowest level, above 0")] = msgspec.field(name="from")
    to: Annotated[float, Meta(description="highest level, at most 20")]
    steps: Steps
    every: Every
    jitter: Jitter = "0s"


class Geometric(_Table, tag_field="kind", tag="geometric", frozen=True):
    """Levels in equal proportions: give `to` or `ratio`."""

    first: Annotated[float, Meta(description="lowest level, above 0")] = msgspec.field(name="from")
    steps: Steps
    every: Every
    to: Annotated[float | None, Meta(description="highest level, at most 20; leave out where `ratio` is given")] = None
    ratio: Annotated[
        float | None, Meta(description="each level is this many times the one before, above 1; instead of `to`")
    ] = None
    jitter: Jitter = "0s"


class NoisySampling(_Table, tag_field="kind", tag="noisy_sampling", frozen=True):
    """The levels that 1, 2, 3, ... noisy samples of a permanent answer would reach, each as one sharper answer."""

    epsilon_permanent: Annotated[float, Meta(description="level of the permanent answer: the limit of the curve")]
    epsilon_sample: Annotated[float, Meta(description="level of one noisy sample of it")]
    rounds: Annotated[int, Meta(description="number of samples and so of rungs, 1 to 255")]
    every: Every
    jitter: Jitter = "0s"


Release = Listed | Linear | Geometric | NoisySampling


class WindowTable(_Table, frozen=True):
    """How time is cut and how long late answers count."""

    size: Annotated[str, Meta(description="length of a window; windows start at multiples of `step` since 1970")]
    retention: Annotated[
        str,
        Meta(description="how long after its end a window takes answers; must outlast the last rung and its jitter"),
    ]
    step: Annotated[
        str | None,
        Meta(description="from one window's start to the next; default: `size`; shorter ones make windows overlap"),
    ] = None
    skew: Annotated[str, Meta(description="how far a device's clock may run ahead before its answers are refused")] = (
        "1m"
    )


class BudgetTable(_Table, frozen=True):
    """What a device may spend."""

    lifetime: Annotated[
        float,
        Meta(
            description="this survey asks nothing more of a device that has spent this much epsilon in all, on "
            "whatever survey; `inf` only where the mechanism's own cost is infinite"
        ),
    ]


class EstimateTable(_Table, frozen=True):
    """How answers become estimates."""

    method: Annotated[
        Literal["auto", "pooled", "stratified", "mle"],
        Meta(
            description="how users on different rungs are combined: `auto` (pooled unless the rungs disagree), "
            "`pooled`, `stratified` or `mle`"
        ),
    ] = "auto"
    population: Annotated[
        Literal["fleet", "sampling"],
        Meta(description="`fleet`: the devices that answered are meant; `sampling`: a population behind them"),
    ] = "fleet"
    alpha: Annotated[float, Meta(description="intervals miss the truth with this probability, between 0 and 0.5")] = (
        0.05
    )


class CanaryTable(_Table, frozen=True):
    """Seeded devices with a known truth, to watch the pipeline itself. Not part of the survey id."""

    devices: Annotated[int, Meta(description="number of simulated devices, 1 to 1000000")]
    seed: Annotated[int, Meta(description="seed of all that they do; not negative")]
    shares: Annotated[
        list[float], Meta(description="the true share of each value, in the order of `values`; they sum to 1")
    ]


class AlertTable(_Table, frozen=True):
    """Somebody is told when a value is surely above or below a threshold. Not part of the survey id."""

    value: Annotated[str, Meta(description="one of the values, or of what else the mechanism estimates")]
    above: Annotated[
        float | None, Meta(description="told when the value is surely higher; a share, or a mean in its own units")
    ] = None
    below: Annotated[float | None, Meta(description="told when the value is surely lower; instead of `above`")] = None
    alpha: Annotated[
        float,
        Meta(
            description="false alarms per window, however often it is looked at; divided by the number of rules of the "
            "survey, so that all of them together stay below it"
        ),
    ] = 0.01


class LimitsTable(_Table, frozen=True):
    """How ill the survey may get before somebody is told. Not part of the survey id."""

    band: Annotated[
        float | None,
        Meta(description="widest interval of a value that is still of use, upper minus lower end; no rule without it"),
    ] = None
    stale: Annotated[
        str | None, Meta(description="longest time without a new estimate; default: two windows, at least 15 s")
    ] = None
    budget: Annotated[
        float, Meta(description="part of the lifetime budget that a device may have spent before it is told")
    ] = 0.8
    flood: Annotated[
        float | None,
        Meta(
            description="most reports per second that one shard can get from the fleet; default: a few times what the "
            "other shards get"
        ),
    ] = None
    canary: Annotated[
        float, Meta(description="largest distance of a canary from its truth over five windows, in standard errors")
    ] = 6.0


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
        list[str], Meta(description="the possible answers, each once; what they mean depends on the mechanism")
    ] = []
    shards: Annotated[int, Meta(description="parts into which the collector cuts the work, 1 to 4096")] = 64
    estimate: EstimateTable = EstimateTable()
    canary: CanaryTable | None = None
    alert: list[AlertTable] = []
    limits: LimitsTable = LimitsTable()
    accept_risk: Annotated[
        str,
        Meta(
            description="needed where the mechanism is not locally private: one sentence, four words or more, that "
            "says which risk is taken and why"
        ),
    ] = ""
