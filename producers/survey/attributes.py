"""Several attributes in one survey: a value is one combination, and shares of an attribute follow by adding up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from estimators.mechanism import ParameterError

SEPARATOR: Final = " / "
MOST_ATTRIBUTES: Final = 6
MOST_COMBINATIONS: Final = 1_000
"""Each combination is a value of its own: with more of them every single one drowns in noise."""


@dataclass(frozen=True)
class Sum:
    """The combinations that have some attributes in common: one number of a marginal or of a cross table."""

    name: str
    """Such as `sex = female`, or `sex = female, smokes = yes`."""
    cells: tuple[int, ...]
    """Positions of the combinations in the list of values."""


@dataclass(frozen=True)
class Attributes:
    """Attributes by name, each with its values, in the order of the survey file."""

    parts: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def values(self) -> tuple[str, ...]:
        """All combinations, the last attribute changing fastest."""
        return tuple(SEPARATOR.join(one) for one in itertools.product(*(values for _, values in self.parts)))

    def value(self, answers: Mapping[str, str]) -> str:
        """Return the value of a person: the combination of their answers to all attributes.

        Raises:
            ParameterError: an answer is missing, or is not one of its attribute's.

        >>> Attributes((("sex", ("female", "male")), ("smokes", ("yes", "no")))).value({"sex": "male", "smokes": "no"})
        'male / no'
        """
        if unknown := answers.keys() - dict(self.parts).keys():
            raise ParameterError(
                "value", sorted(unknown), f"attributes are {', '.join(name for name, _ in self.parts)}"
            )
        for name, values in self.parts:
            if answers.get(name) not in values:
                raise ParameterError(f"value.{name}", answers.get(name), f"must be one of {', '.join(values)}")
        return SEPARATOR.join(answers[name] for name, _ in self.parts)

    def sums(self) -> Iterator[Sum]:
        """Yield the shares of every attribute alone, and of every two together where there are more than two."""
        combinations = list(itertools.product(*(values for _, values in self.parts)))
        orders = (1, 2) if len(self.parts) > 2 else (1,)
        for order in orders:
            for chosen in itertools.combinations(range(len(self.parts)), order):
                for held in itertools.product(*(self.parts[at][1] for at in chosen)):
                    name = ", ".join(f"{self.parts[at][0]} = {value}" for at, value in zip(chosen, held, strict=True))
                    cells = [
                        i
                        for i, combination in enumerate(combinations)
                        if all(combination[at] == value for at, value in zip(chosen, held, strict=True))
                    ]
                    yield Sum(name, tuple(cells))

    def sentence(self) -> str:
        """Say what a value is."""
        parts = ", ".join(f"{name} ({len(values)})" for name, values in self.parts)
        return (
            f"A value is one of {len(self.values)} combinations of {parts}. A device spends its epsilon once, on all "
            "attributes together; shares of one attribute are sums over combinations."
        )


def attributes_of(table: Mapping[str, Sequence[str]]) -> Attributes:
    """Check the table; ParameterError names field, value and remedy."""
    field = "values.attributes"
    if not 2 <= len(table) <= MOST_ATTRIBUTES:
        raise ParameterError(field, list(table), f"name 2 to {MOST_ATTRIBUTES} attributes; for one, list its values")
    for name, values in table.items():
        if not name.strip() or "=" in name or "," in name:
            raise ParameterError(field, name, "the name of an attribute is not blank and has no = and no comma")
        if len(values) < 2 or len(set(values)) < len(values):
            raise ParameterError(f"{field}.{name}", list(values), "list at least two values, each once")
        for value in values:
            if not value.strip() or SEPARATOR in value:
                raise ParameterError(f"{field}.{name}", value, f"a value is not blank and has no {SEPARATOR!r} inside")
    size = math.prod(len(values) for values in table.values())
    if size > MOST_COMBINATIONS:
        raise ParameterError(field, size, f"at most {MOST_COMBINATIONS} combinations; use fewer or coarser attributes")
    return Attributes(tuple((name, tuple(values)) for name, values in table.items()))
