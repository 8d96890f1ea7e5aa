"""From recorded bytes to chains, and everything about frames and ledgers that can be checked without chance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from estimators.auditing.declared import DeclaredLaw
from estimators.auditing.transcripts import Transcripts
from producers.device.budget import as_epsilon
from producers.device.ledger import Ledger
from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.keys import right_keys
from producers.wire.shards import shards_of
from streams.audit.plan import PROCESSES, SLOTS, FleetPlan

_ROUNDING = 1e-9
_NAMED = 3
"""Problems of one kind that are shown; the rest is counted."""


class Owner(NamedTuple):
    """Which device sent something."""

    process: int
    slot: int


class Report(NamedTuple):
    """One report as it was seen."""

    window_ms: int
    rung: int
    answer: bytes
    group: int


@dataclass
class Problems:
    """Contradictions that no chance can explain, by kind."""

    found: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, detail: str) -> None:
        """Note one problem."""
        self.found.setdefault(kind, []).append(detail)

    def sentences(self) -> list[str]:
        """Return one sentence per kind."""
        return [
            f"{kind}: {'; '.join(details[:_NAMED])}"
            + (f"; and {len(details) - _NAMED:,} more" if len(details) > _NAMED else "")
            for kind, details in self.found.items()
        ]


Seen = dict[bytes, list[Report]]
"""All reports of every token, in the order in which they were seen."""


def read_frames(survey: Survey, raw: bytes, problems: Problems) -> Seen:
    """Read the frames of a device and check all that a sound device never does."""
    seen: Seen = {}
    for header in wire.headers(raw) if raw else ():
        if isinstance(header, wire.FrameError):
            problems.note("a frame cannot be read", str(header))
            continue
        if header.digest != survey.digest:
            problems.note("a frame names another survey", header.digest.hex())
            continue
        columns = wire.columns(raw, header, survey.layout)
        if len(columns) != 1:
            problems.note("one frame links several reports", f"{len(columns)} reports in one frame")
        if not bool((shards_of(columns.tokens, survey.shards) == header.shard).all()):
            problems.note("a report has the wrong shard", str(header.shard))
        if columns.keys is not None:
            rungs = columns.rungs.tolist()
            right = right_keys(columns.tokens, rungs, columns.keys, survey.digest, header.window_ms)
            if not right.all():
                problems.note("a report does not carry its key", f"{int((~right).sum())} reports in one frame")
        for row in range(len(columns)):
            rung = int(columns.rungs[row])
            public_ms = survey.public_ms(header.window_ms, rung)
            if header.sent_ms != public_ms:
                problems.note(
                    "a frame tells the device's own time", f"{header.sent_ms - public_ms:+} ms from the public moment"
                )
            group = int(columns.groups[row]) if columns.groups is not None else 0
            report = Report(header.window_ms, rung, columns.answers[row].tobytes(), group)
            seen.setdefault(columns.tokens[row].tobytes(), []).append(report)
    return seen


def recorded_devices(plan: FleetPlan, problems: Problems) -> dict[Owner, Seen]:
    """Read what every device sent."""
    found = {}
    for process in range(PROCESSES):
        for slot in range(SLOTS):
            raw = plan.wire(process, slot).read_bytes()
            found[Owner(process, slot)] = read_frames(plan.survey, raw, problems)
    return found


def through_broker(
    plan: FleetPlan, devices: Mapping[Owner, Seen], messages: Iterable[bytes], problems: Problems
) -> dict[Owner, Seen]:
    """Return what the topic holds of every device, and check that it is exactly what left the devices."""
    owners = {token: owner for owner, seen in devices.items() for token in seen}
    found: dict[Owner, Seen] = {owner: {} for owner in devices}
    for message in messages:
        for token, reports in read_frames(plan.survey, message, problems).items():
            if token not in owners:
                problems.note("the topic holds a report that no device sent", token.hex()[:8])
                continue
            found[owners[token]].setdefault(token, []).extend(reports)
    for owner, seen in devices.items():
        lost = sum(set(reports) != set(found[owner].get(token, ())) for token, reports in seen.items())
        if lost:
            problems.note("the topic differs from what devices sent", f"{lost} tokens of one device")
    return found


def chains(plan: FleetPlan, devices: Mapping[Owner, Seen], problems: Problems) -> Transcripts:
    """Put the reports of every token together; only whole chains with one answer a level are attacked."""
    mechanism = plan.survey.mechanism
    owners: dict[bytes, Owner] = {}
    rows: list[tuple[Owner, int, int, int, bytes, list[bytes]]] = []
    first_ms = min(plan.windows_ms())
    for owner, seen in devices.items():
        copies: dict[int, int] = {}
        picks = plan.picks(owner.slot)
        for token, reports in seen.items():
            if owners.setdefault(token, owner) != owner:
                problems.note("two devices share a token", token.hex())
            windows = {report.window_ms for report in reports}
            if len(windows) > 1:
                problems.note("one token links several windows", f"{len(windows)} windows")
                continue
            answers = _one_answer_each(token, reports, problems)
            if answers is None:
                continue
            if len(answers) < mechanism.rungs:
                problems.note("a level never arrived", f"{len(answers)} of {mechanism.rungs} levels")
                continue
            (window_ms,) = windows
            copy = copies[window_ms] = copies.get(window_ms, -1) + 1
            rank = (window_ms - first_ms) // plan.survey.windows.step_ms
            truth = int(picks[plan.number_of(window_ms)])
            rows.append((owner, rank, truth, copy, token, [answers[rung].answer for rung in sorted(answers)]))
        expected = len(plan.windows_ms()) * mechanism.copies
        if len(seen) < expected:
            problems.note("an answer never arrived", f"{len(seen)} tokens instead of {expected}")
    return _transcripts(mechanism.rungs, mechanism.answer.width, rows, devices)


def _one_answer_each(token: bytes, reports: Iterable[Report], problems: Problems) -> dict[int, Report] | None:
    """Return the report of every level; None if there are two different ones for a level."""
    answers: dict[int, Report] = {}
    for report in reports:
        first = answers.setdefault(report.rung, report)
        if (first.answer, first.group) != (report.answer, report.group):
            problems.note("two answers for one level", f"token {token.hex()[:8]}, level {report.rung}")
            return None
    if len({report.group for report in answers.values()}) > 1:
        problems.note("a chain changes its group", f"token {token.hex()[:8]}")
    return answers


def _transcripts(
    rungs: int,
    width: int,
    rows: list[tuple[Owner, int, int, int, bytes, list[bytes]]],
    devices: Mapping[Owner, Seen],
) -> Transcripts:
    def column(values: Iterable[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return np.fromiter(values, dtype=np.int64, count=len(rows))

    joined = b"".join(b"".join(row[5]) for row in rows)
    answers = np.frombuffer(joined, dtype=np.uint8).reshape(len(rows), rungs, width)
    return Transcripts(
        truths=column(row[2] for row in rows),
        answers=np.ascontiguousarray(answers.transpose(1, 0, 2)),
        groups=column(devices[row[0]][row[4]][0].group for row in rows),
        tokens=np.frombuffer(b"".join(row[4] for row in rows), dtype=np.uint8).reshape(len(rows), -1),
        processes=column(row[0].process for row in rows),
        slots=column(row[0].slot for row in rows),
        windows=column(row[1] for row in rows),
        copies=column(row[3] for row in rows),
    )


def ledger_charges(plan: FleetPlan, law: DeclaredLaw, problems: Problems) -> tuple[float, ...]:
    """Return the least that any ledger charges for a chain up to each level, and check the odometers."""
    least = [float("inf")] * plan.survey.mechanism.rungs
    for process in range(PROCESSES):
        for slot in range(SLOTS):
            ledger = Ledger(plan.ledger(process, slot))
            stored = [ledger.chain(plan.survey.id, start) for start in plan.windows_ms()]
            spent = ledger.odometer().spent_units
            ledger.close()
            kept = [chain for chain in stored if chain is not None]
            if len(kept) < len(stored):
                problems.note("the ledger lacks a chain", f"{len(stored) - len(kept)} windows of a device")
            if spent < sum(chain.charged_units for chain in kept):
                problems.note("the odometer is behind the chains", f"{as_epsilon(spent):.6g} spent")
            for chain in kept:
                for rung in range(len(least) - 1):
                    least[rung] = min(least[rung], chain.epsilons[rung])
                least[-1] = min(least[-1], as_epsilon(chain.charged_units))
    return tuple(least if all(level < float("inf") for level in least) else law.levels)


def check_crashes(plan: FleetPlan, law: DeclaredLaw, problems: Problems) -> int:
    """Check what devices that were killed and started again have sent; returns how many."""
    survey = plan.survey
    expected = len(survey.windows.starts(plan.moment_ms(0))) * survey.mechanism.copies
    for number in range(1, plan.crashes + 1):
        folder = plan.crash_folder(number)
        seen = read_frames(survey, _bytes(folder / "wire"), problems)
        owed = 0.0
        for token, reports in seen.items():
            answers = _one_answer_each(token, reports, problems)
            if answers is not None and len(answers) < survey.mechanism.rungs:
                problems.note("a level never arrived after a crash", f"crash {number}")
            owed += law.losses[max(report.rung for report in reports)]
        if len(seen) != expected:
            problems.note("a crash lost or repeated an answer", f"crash {number}: {len(seen)} tokens for {expected}")
        ledger = Ledger(folder / "ledger")
        spent = ledger.odometer().epsilon
        ledger.close()
        if spent < owed * (1.0 - _ROUNDING):
            problems.note("a crash released more than was paid", f"crash {number}: {spent:.6g} paid for {owed:.6g}")
    return plan.crashes


def _bytes(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""
