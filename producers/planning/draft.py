"""The text of a survey file from a few numbers: what `thaw plan` works with where there is no file yet."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from estimators.mechanisms.registry import names, specification_class
from estimators.mechanisms.uldp import Mangat
from producers.survey.durations import format_duration
from producers.survey.file import PERSON_LIFETIME_EPSILON, RungAssumption
from producers.survey.messages import SurveyError, did_you_mean
from producers.survey.survey import Survey, parse_survey

RISK = "replace this by the risk that is taken, and why"
"""What a drafted file says where a mechanism is not locally private: its owner must write a sentence of their own."""
SOURCE = "flags"
MOST_VALUES = 10_000


@dataclass(frozen=True)
class DraftAlert:
    """An `[[alert]]` table."""

    value: str
    side: str
    threshold: float
    alpha: float


@dataclass(frozen=True)
class Draft:
    """A survey in outline. opens_ms: empty if the ladder has one level. jitter_ms: None for the default."""

    values: tuple[str, ...]
    mechanism: str
    ladder: tuple[float, ...]
    opens_ms: tuple[int, ...] = ()
    window_ms: int = 86_400_000
    jitter_ms: int | None = None
    assume: RungAssumption = "any"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    alert: DraftAlert | None = None

    def text(self) -> str:
        """Return the survey file."""
        lines = ['name = "planned"', 'question = "What is planned here?"', f"values = {_toml(list(self.values))}"]
        endless = self._endless()
        if endless is not None:
            lines.append(f"accept_risk = {_toml(RISK)}")
        lines += ["", "[mechanism]", f"name = {_toml(self.mechanism)}"]
        lines += [f"{name} = {_toml(value)}" for name, value in self.parameters.items()]
        lines += ["", "[release]", 'kind = "listed"', f"ladder = {_toml(list(self.ladder))}"]
        if self.opens_ms:
            lines.append(f"opens = {_toml([format_duration(opens_ms) for opens_ms in self.opens_ms])}")
        if self.jitter_ms is not None:
            lines.append(f"jitter = {_toml(format_duration(self.jitter_ms))}")
        last_ms = (self.opens_ms[-1] if self.opens_ms else 0) + (self.jitter_ms or 0)
        retention_ms = last_ms + max(2 * self.window_ms, 1_000)
        lines += ["", "[window]", f"size = {_toml(format_duration(self.window_ms))}"]
        lines.append(f"retention = {_toml(format_duration(retention_ms))}")
        lines += ["", "[budget]", f"lifetime = {'inf' if endless else f'{PERSON_LIFETIME_EPSILON:g}'}"]
        lines += ["", "[estimate]", f"rungs = {_toml(self.assume)}"]
        if self.alert is not None:
            lines += ["", "[[alert]]", f"value = {_toml(self.alert.value)}"]
            lines += [f"{self.alert.side} = {_toml(self.alert.threshold)}", f"alpha = {_toml(self.alert.alpha)}"]
        return "\n".join(lines) + "\n"

    def survey(self) -> Survey:
        """Return the survey; SurveyError names the field that is wrong."""
        return parse_survey(self.text(), SOURCE)

    def _endless(self) -> bool | None:
        """Tell whether the mechanism's own cost is infinite; None if it needs no accepted risk."""
        if self.mechanism not in names():
            raise SurveyError(SOURCE, "mechanism", self.mechanism, did_you_mean("mechanism", self.mechanism, names()))
        kind = specification_class(self.mechanism)
        if not kind.guarantee.is_risk:
            return None
        try:
            return math.isinf(kind.build(self.values, self.ladder, dict(self.parameters)).epsilons[0])
        except ValueError:
            return True  # The survey is refused by its own check, which names the field.


def _toml(value: Any) -> str:
    """Write strings, numbers and lists of them: their JSON is TOML."""
    return json.dumps(value, ensure_ascii=False)


def value_names(values: str) -> tuple[str, ...]:
    """Return the values that a flag names: a number of them, or their names separated by commas.

    Raises:
        ValueError: there are none, or too many.

    >>> value_names("3"), value_names("red, green")
    (('v1', 'v2', 'v3'), ('red', 'green'))
    """
    if values.strip().isdigit():
        if not 1 <= int(values) <= MOST_VALUES:
            raise ValueError(f"values: their number is 1 to {MOST_VALUES}; got {values}")
        return tuple(f"v{i + 1}" for i in range(int(values)))
    names = tuple(name.strip() for name in values.split(",") if name.strip())
    if not names:
        raise ValueError(f"values: give their number, or their names separated by commas; got {values!r}")
    return names


def sensitive_parameter(mechanism: str, sensitive: Sequence[str]) -> list[str] | str:
    """Return sensitive values as the mechanism's parameter has them: a list, or the name of the only one.

    >>> sensitive_parameter("urr", ["a"]), sensitive_parameter("mangat", ["a"])
    (['a'], 'a')
    """
    return sensitive[0] if mechanism == Mangat.name and len(sensitive) == 1 else list(sensitive)


def sensitive_names(sensitive: str, values: Sequence[str]) -> tuple[str, ...]:
    """Return the values that a flag calls sensitive: the first so many, or their names.

    Raises:
        ValueError: a name is none of the values, or there are not so many.
    """
    if sensitive.strip().isdigit():
        number = int(sensitive)
        if not 1 <= number <= len(values):
            raise ValueError(f"sensitive: must be 1 to {len(values)}, the number of values; got {number}")
        return tuple(values[:number])
    chosen = value_names(sensitive)
    for name in chosen:
        if name not in values:
            raise ValueError(f"sensitive: must be some of the values ({', '.join(values[:5])}); got {name!r}")
    return chosen
