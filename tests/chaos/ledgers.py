"""What the ledgers of real devices must show after any number of kills: every rung drawn once, paid for, delivered."""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from producers.device.budget import cost_units
from producers.device.ledger import Ledger, StoredChain
from producers.survey.survey import Survey
from tests.chaos.oracle import judged_as, reports

Emitted = dict[bytes, dict[int, set[int]]]
"""Token -> rung -> the answers that the broker has for it."""


def emitted(messages: Iterable[bytes], survey: Survey, others: Iterable[Survey]) -> Emitted:
    """Collect all that devices of a survey ever sent."""
    known = judged_as((survey, *others))
    found: Emitted = {}
    for message in messages:
        for survey_id, _, token, rung, answer in reports(message, known):
            if survey_id == survey.id:
                found.setdefault(token, {}).setdefault(rung, set()).add(answer)
    return found


@dataclass
class LedgerAudit:
    """What the ledgers say; `faults` is empty if all is well."""

    devices: int = 0
    chains: int = 0
    rungs: int = 0
    faults: list[str] = field(default_factory=list)


def audit(folder: Path, survey: Survey, sent: Emitted) -> LedgerAudit:
    """Compare every ledger with what the broker has from its device."""
    result, unknown = LedgerAudit(), set(sent)
    for path in sorted(folder.glob("*.ledger")):
        ledger = Ledger(path)
        try:
            _audit_one(ledger, survey, sent, unknown, result)
        finally:
            ledger.close()
    if unknown:
        result.faults.append(f"{len(unknown)} tokens in the topic stand in no ledger")
    return result


def _audit_one(ledger: Ledger, survey: Survey, sent: Emitted, unknown: set[bytes], result: LedgerAudit) -> None:
    result.devices += 1
    charged, values = 0, dict[bytes, list[StoredChain]]()

    def check(good: bool, what: str) -> None:
        if not good:
            result.faults.append(f"{ledger.path.name}: {what}")

    for chain in ledger.kept():
        result.chains += 1
        result.rungs += len(chain.released)
        name = struct.pack("<8sqI", survey.digest, chain.window_ms, 0)
        token = hmac.digest(ledger.secret, name, hashlib.sha256)[:16]
        unknown.discard(token)
        seen = sent.get(token, {})
        check(list(chain.released) == sorted(set(chain.released)), f"{chain.window_ms}: released {chain.released}")
        check(set(seen) == set(chain.released), f"{chain.window_ms}: {sorted(seen)} sent, {chain.released} released")
        for rung, answers in seen.items():
            stored = int.from_bytes(chain.answer(rung, 0), "little")
            check(answers == {stored}, f"{chain.window_ms}: rung {rung} was sent as {answers}, drawn as {stored}")
        values.setdefault(chain.standing or b"%d" % chain.window_ms, []).append(chain)
        charged += chain.charged_units
    for chains in values.values():
        # Windows that repeat the answers of one value cost together what the sharpest of them costs.
        highest, paid = (
            max(cost_units(one.epsilons[one.highest]) for one in chains),
            sum(one.charged_units for one in chains),
        )
        check(paid == highest, f"{chains[0].window_ms}: charged {paid}, not {highest}")
        check(len({one.answers for one in chains}) == 1, f"{chains[0].window_ms}: one value was drawn twice")
    check(ledger.odometer().spent_units == charged, f"odometer {ledger.odometer().spent_units}, chains {charged}")
    waiting = ledger.connection.execute("SELECT COUNT(*) FROM outbox").fetchone()[0]
    check(waiting == 0, f"{waiting} reports never left")
