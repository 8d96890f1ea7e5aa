"""Which metrics a PromQL expression reads, for tests of rules, runbooks and dashboards."""

import re

import promql_parser

from streams.metrics import TABLE


def metrics_in(expression: str) -> set[str]:
    """Return the names that a query reads; raises if PromQL does not allow it."""
    promql_parser.parse(expression)
    return set(re.findall(r"\b(?:thaw_\w+|up)\b", re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)))


def known(name: str) -> bool:
    """Tell whether a metric of this name is exported."""
    return name == "up" or name in TABLE or name.removesuffix("_bucket") in TABLE
