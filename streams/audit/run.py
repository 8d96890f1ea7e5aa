"""One audit: record real devices, attack what they sent, and hold everything against their ledgers."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from estimators.auditing.declared import DeclaredLaw, NotAuditedError
from estimators.auditing.examine import Examination, examine
from estimators.auditing.views import declared_law
from producers.survey.survey import Survey
from streams.audit import program
from streams.audit.broker import device_options, messages, own_topic
from streams.audit.frames import Problems, chains, check_crashes, ledger_charges, recorded_devices, through_broker
from streams.audit.plan import PROCESSES, SLOTS, FleetPlan, Kafka
from streams.failures import OutsideError
from streams.settings import Settings

_LOOK_SECONDS = 0.2
_MEMORY = Path("/dev/shm")


class ProgramError(OutsideError):
    """The device program ended with an error, which it wrote to stderr."""


@dataclass(frozen=True)
class Options:
    """How thorough an audit is."""

    users: int = 10_000
    crashes: int = 24
    seed: int = 1
    alpha: float = 1e-6
    """Chance that a sound device is accused, over everything that is checked."""


@dataclass(frozen=True)
class Audit:
    """What an audit found."""

    survey: Survey
    law: DeclaredLaw
    options: Options
    source: str
    """Where frames were recorded."""
    chains: int
    reports: int
    crashes: int
    examination: Examination
    problems: tuple[str, ...]
    """What no chance can explain."""

    @property
    def devices(self) -> int:
        """Devices that were recorded."""
        return PROCESSES * SLOTS

    def contradictions(self) -> list[str]:
        """Return everything that contradicts the ledger or the declaration."""
        return [*self.problems, *self.examination.contradictions()]


Progress = Callable[[float], None]
"""Told the part of the recording that is done."""


def audit(
    survey: Survey, options: Options, *, settings: Settings | None = None, tell: Progress = lambda _: None
) -> Audit:
    """Record devices on this machine and attack what they sent.

    settings: a broker; reports then travel through a topic of their own and are read back from it.

    Raises:
        NotAuditedError: the survey's mechanism declares nothing that single answers could contradict, or windows repeat
            answers, which are no further evidence then.
        ProgramError: the device program failed.
        OutsideError: the broker does not answer, or refuses.
    """
    law = law_of(survey)
    with folder() as place:
        plan = plan_of(survey, law, options, place)
        if settings is None:
            record([plan], tell)
            return judge(survey, law, plan, options)
        with own_topic(settings, survey) as topic:
            broker = Kafka(",".join(settings.brokers), topic, device_options(settings))
            plan = replace(plan, kafka=broker)
            record([plan], tell)
            return judge(survey, law, plan, options, messages(settings, topic))


def law_of(survey: Survey) -> DeclaredLaw:
    """Return what a survey declares about the answers of devices.

    Raises:
        NotAuditedError: nothing that recorded answers could contradict.
    """
    if survey.standing:
        raise NotAuditedError(
            f"{survey.id} repeats answers in every window, so they are no evidence of their own; audit the same survey "
            "without window.standing: its devices draw in the same way"
        )
    return declared_law(survey.mechanism)


@contextmanager
def folder() -> Iterator[Path]:
    """Return a folder for ledgers and frames that is removed afterwards.

    In memory where there is such a folder: devices commit before they send, and a disk would be waited for each time.
    """
    with tempfile.TemporaryDirectory(
        dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None, prefix="thaw-audit-"
    ) as name:
        yield Path(name)


def plan_of(survey: Survey, law: DeclaredLaw, options: Options, place: Path, *, defect: str | None = None) -> FleetPlan:
    """Return what devices do in an audit with these options."""
    return FleetPlan.of(
        survey, law, place, users=options.users, crashes=options.crashes, seed=options.seed, defect=defect
    )


def record(plans: Sequence[FleetPlan], tell: Progress) -> None:
    """Run the device program in a fresh interpreter until all devices of all plans have lived."""
    child = multiprocessing.get_context("spawn").Process(target=program.run, args=(plans,), daemon=True)
    child.start()
    whole = sum(plan.reports * plan.survey.layout.frame_bytes(1) for plan in plans)
    while child.is_alive():
        child.join(_LOOK_SECONDS)
        done = sum(path.stat().st_size for plan in plans for path in plan.folder.glob("*.wire"))
        tell(min(done / whole, 1.0))
    if child.exitcode:
        raise ProgramError(f"the device program ended with status {child.exitcode}; its error is above")


def judge(
    survey: Survey, law: DeclaredLaw, plan: FleetPlan, options: Options, read: Sequence[bytes] | None = None
) -> Audit:
    """Attack what a fleet has sent; `read` are the messages of the topic that they travelled through."""
    problems = Problems()
    devices = recorded_devices(plan, problems)
    if read is not None:
        devices = through_broker(plan, devices, read, problems)
    transcripts = chains(plan, devices, problems)
    charged = ledger_charges(plan, law, problems)
    return Audit(
        survey=survey,
        law=law,
        options=options,
        source="devices on this machine" if plan.kafka is None else f"the topic {plan.kafka.topic}",
        chains=len(transcripts),
        reports=sum(len(reports) for seen in devices.values() for reports in seen.values()),
        crashes=check_crashes(plan, law, problems),
        examination=examine(law, transcripts, charged, options.alpha),
        problems=tuple(problems.sentences()),
    )
