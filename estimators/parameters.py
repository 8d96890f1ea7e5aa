"""Read what a survey file says about a mechanism; every refusal names the field, what came and what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from estimators.mechanism import ParameterError


def refuse_unknown(parameters: Mapping[str, Any], known: Sequence[str], mechanism: str) -> None:
    """Refuse a parameter that the mechanism does not have: a misspelt one would keep its default unnoticed."""
    for name, value in parameters.items():
        if name not in known:
            some = f"takes {', '.join(known)}" if known else "takes no parameters"
            raise ParameterError(name, value, f"{mechanism} {some}; remove or rename it")


def whole_number(parameters: Mapping[str, Any], name: str, default: int | None, *, low: int, high: int) -> int:
    """Return an integer in [low, high]; without a default it must be given."""
    value = parameters.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ParameterError(name, value, f"must be a whole number from {low} to {high}")
    return value


def real_number(parameters: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """Return a finite number; without a default it must be given."""
    value = parameters.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(name, value, "must be a finite number")
    return float(value)


def some_values(parameters: Mapping[str, Any], name: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return a non-empty list of different values of the survey."""
    chosen = parameters.get(name)
    if not isinstance(chosen, list | tuple) or not chosen or not all(isinstance(value, str) for value in chosen):
        raise ParameterError(name, chosen, "must list at least one of the survey's values")
    for value in chosen:
        if value not in values:
            raise ParameterError(name, value, "must be one of the survey's values; add it there or remove it here")
    if len(set(chosen)) != len(chosen):
        raise ParameterError(name, chosen, "every value stands once; remove the second one")
    return tuple(chosen)


def at_least(values: Sequence[str], count: int, mechanism: str) -> tuple[str, ...]:
    """Return the values if there are enough of them."""
    if len(values) < count:
        raise ParameterError("values", list(values), f"{mechanism} needs at least {count}; add values")
    return tuple(values)
