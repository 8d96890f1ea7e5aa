"""What the estimates of a survey are: shares, or means in a unit of their own."""

from __future__ import annotations

from typing import Literal, NamedTuple

from producers.survey.survey import Survey

Kind = Literal["share", "mean"]


class Quantity(NamedTuple):
    """Kind and unit of one estimate; the unit is empty for shares and where it is not known."""

    kind: Kind
    unit: str = ""


def quantities(survey: Survey) -> list[Quantity]:
    """Return the quantity of each label of the survey's mechanism, in its order."""
    name = survey.mechanism.name
    return [Quantity(_kind(name, label)) for label in survey.mechanism.labels]


def _kind(mechanism: str, label: str) -> Kind:
    return "mean" if mechanism == "mean" or (mechanism in ("lpp", "pckv_ue") and label.endswith("/mean")) else "share"
