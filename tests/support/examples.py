"""One example of every mechanism, for the battery, for randomised checks and as a survey file."""

from __future__ import annotations

import math
from typing import Any

from estimators.mechanisms.registry import specification_class
from tests.support.checks import Example

LETTERS = ("a", "b", "c", "d")
MANY = (2, 300)

EXAMPLES = (
    Example("grr", LETTERS, sizes=(1, *MANY)),
    Example("warner", ("no", "yes")),
    Example("simmons", ("no", "yes")),
    Example("christofides", ("no", "yes")),
    Example("improved_christofides", ("no", "yes"), ladder=(1.0,), random_in_draw=False),
    Example("ewrr", LETTERS, sizes=MANY),
    Example("rr3_dagger", ("none", "plus", "minus")),
    Example("rr3_ddagger", ("none", "plus", "minus")),
    Example("rr3_club", ("none", "plus", "minus")),
    Example("lpp", ("bread", "milk"), sizes=(1, *MANY)),
    Example("pckv_ue", ("bread", "milk"), sizes=(1, *MANY)),
    Example("sue", LETTERS, sizes=(1, *MANY)),
    Example("oue", LETTERS, sizes=(1, *MANY)),
    Example(
        "rappor",
        ("apple", "pear", "plum"),
        ladder=(2.0, 4.0, 8.0),
        parameters={"bits": 32, "cohorts": 4},
        sizes=(1, *MANY),
        strangers=("", None, 3.5e300, ["apple"]),
    ),
    Example("mean", ("age",), parameters={"low": 0.0, "high": 100.0}, strangers=("old", None, [1.0], math.nan)),
    Example("urr", LETTERS, parameters={"sensitive": ["a", "c"]}, sizes=MANY),
    Example("urap", LETTERS, parameters={"sensitive": ["a", "c"]}, sizes=MANY),
    Example("mangat", ("yes", "no")),
    Example("pum", LETTERS, parameters={"sensitive": ["a"], "tags": ["home", "work"]}, sizes=MANY),
    Example("k_randomization", LETTERS, ladder=(0.7,), parameters={"least_records": 1000}),
)


def survey_file(example: Example) -> dict[str, Any]:
    """Return a survey file for a mechanism's example."""
    ladder = list(example.ladder)
    content: dict[str, Any] = {
        "name": example.name,
        "question": "Does this mechanism work from end to end?",
        "values": list(example.values),
        "shards": 16,
        "mechanism": {"name": example.name, **example.parameters},
        "release": {"kind": "listed", "ladder": ladder, "opens": [f"{i}s" for i in range(len(ladder))], "jitter": "1s"},
        "window": {"size": "10s", "retention": "1d"},
        "budget": {"lifetime": 1e6 if math.isfinite(example.build().epsilons[-1]) else math.inf},
    }
    if specification_class(example.name).guarantee.is_risk:
        content["accept_risk"] = "Simulated devices only, whose answers are nobody's secret."
    return content
