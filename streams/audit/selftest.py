"""The audit of the audit: every planted defect must be caught, and the real device must pass in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from estimators.auditing.views import declared_law
from producers.survey.survey import Survey, parse_survey
from streams.audit.defects import DEFECTS
from streams.audit.run import Options, folder, judge, plan_of, record

_SURVEY = """
name = "{name}"
question = "Which colour does this simulated device hold?"
values = ["red", "green", "blue"]
[mechanism]
name = "{mechanism}"
[release]
kind = "listed"
ladder = [1.0, 1.5, 2.0]
opens = ["0s", "1s", "2s"]
jitter = "1s"
[window]
size = "10s"
retention = "1d"
[budget]
lifetime = 1000000
"""
_USERS = 480
"""Enough to catch every planted defect; a subtler one would need more."""
_CRASHES = 6


@dataclass(frozen=True)
class Planted:
    """One defect and what contradicted it; nothing: it was not caught."""

    defect: str
    contradictions: tuple[str, ...]

    @property
    def caught(self) -> bool:
        """Whether the audit noticed it."""
        return bool(self.contradictions)


@dataclass(frozen=True)
class SelfTest:
    """All planted defects, and what an audit says against the real device on the same surveys."""

    planted: tuple[Planted, ...]
    control: tuple[str, ...]

    @property
    def passed(self) -> bool:
        """Whether every defect was caught and the real device was not accused."""
        return all(planted.caught for planted in self.planted) and not self.control


def self_test(
    options: Options, survey: Survey | None = None, *, tell: Callable[[float], None] = lambda _: None
) -> SelfTest:
    """Plant every defect in turn, and none, and audit each device in the same way.

    survey: where the defects are planted; without one, in two small surveys of the audit's own.
    """
    if survey is None:
        options = replace(options, users=min(options.users, _USERS), crashes=min(options.crashes, _CRASHES))
    runs: list[tuple[str | None, Survey]] = [(None, each) for each in _surveys(survey)]
    runs += [(name, _surveys(survey)[defect.bits]) for name, defect in DEFECTS.items()]
    with folder() as place:
        plans = []
        for number, (name, asked) in enumerate(runs):
            (place / str(number)).mkdir()
            law = declared_law(asked.mechanism)
            plans.append(plan_of(asked, law, options, place / str(number), defect=name))
        record(plans, tell)
        audits = [
            judge(asked, declared_law(asked.mechanism), plan, options)
            for (_, asked), plan in zip(runs, plans, strict=True)
        ]
    found = [(name, tuple(audit.contradictions())) for (name, _), audit in zip(runs, audits, strict=True)]
    return SelfTest(
        tuple(Planted(name, sentences) for name, sentences in found if name is not None),
        tuple(sentence for name, sentences in found if name is None for sentence in sentences),
    )


def _surveys(survey: Survey | None) -> tuple[Survey, Survey]:
    """Return the survey with symbols and the one with bits."""
    if survey is not None:
        return survey, survey
    symbols, bits = (
        parse_survey(_SURVEY.format(name=f"audit-{mechanism}", mechanism=mechanism)) for mechanism in ("grr", "sue")
    )
    return symbols, bits
