"""The audit of the audit: every planted defect must be caught, and the real device must pass in the same run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from producers.survey.survey import Survey, parse_survey
from streams.audit.defects import DEFECTS
from streams.audit.run import Options, folder, judge, law_of, plan_of, record

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
_USERS = 640
"""Enough to catch every planted defect; a subtler one would need more.

The hardest to see is a level that is redrawn: the tests of sharpening miss it with a chance below 1e-6.
"""
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
class LeftOut:
    """A defect that was not planted, since it would change nothing that leaves the devices of this survey."""

    defect: str
    reason: str


@dataclass(frozen=True)
class SelfTest:
    """All planted defects, and what an audit says against the real device on the same surveys."""

    planted: tuple[Planted, ...]
    control: tuple[str, ...]
    left_out: tuple[LeftOut, ...] = ()
    chains: int = 0
    """Recorded chains of the real device, on the survey with fewest; a broken one has as many."""

    @property
    def missed(self) -> tuple[str, ...]:
        """The defects that were planted and not caught: what they change takes more chains to see."""
        return tuple(planted.defect for planted in self.planted if not planted.caught)

    @property
    def passed(self) -> bool:
        """Whether every defect was caught and the real device was not accused."""
        return not self.missed and not self.control


def self_test(
    options: Options, survey: Survey | None = None, *, tell: Callable[[float], None] = lambda _: None
) -> SelfTest:
    """Plant every defect in turn, and none, and audit each device in the same way.

    survey: where the defects are planted; without one, in two small surveys of the audit's own.

    Raises:
        NotAuditedError: an audit of the survey would refuse it.
        ProgramError: the device program failed.
    """
    if survey is None:
        options = replace(options, users=min(options.users, _USERS), crashes=min(options.crashes, _CRASHES))
    surveys = _surveys(survey)
    laws = {each.id: law_of(each) for each in surveys}
    reasons = {name: defect.no_effect(surveys[defect.bits]) for name, defect in DEFECTS.items()}
    runs: list[tuple[str | None, Survey]] = [(None, each) for each in {each.id: each for each in surveys}.values()]
    runs += [(name, surveys[DEFECTS[name].bits]) for name, reason in reasons.items() if reason is None]
    with folder() as place:
        plans = []
        for number, (name, asked) in enumerate(runs):
            (place / str(number)).mkdir()
            plans.append(plan_of(asked, laws[asked.id], options, place / str(number), defect=name))
        record(plans, tell)
        audits = [judge(asked, laws[asked.id], plan, options) for (_, asked), plan in zip(runs, plans, strict=True)]
    found = [(name, audit) for (name, _), audit in zip(runs, audits, strict=True)]
    control = [audit for name, audit in found if name is None]
    return SelfTest(
        planted=tuple(Planted(name, tuple(audit.contradictions())) for name, audit in found if name is not None),
        control=tuple(sentence for audit in control for sentence in audit.contradictions()),
        left_out=tuple(LeftOut(name, reason) for name, reason in reasons.items() if reason is not None),
        chains=min(audit.chains for audit in control),
    )


def _surveys(survey: Survey | None) -> tuple[Survey, Survey]:
    """Return the survey with symbols and the one with bits."""
    if survey is not None:
        return survey, survey
    symbols, bits = (
        parse_survey(_SURVEY.format(name=f"audit-{mechanism}", mechanism=mechanism)) for mechanism in ("grr", "sue")
    )
    return symbols, bits
