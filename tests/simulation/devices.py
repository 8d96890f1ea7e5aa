"""What must hold for the devices of a simulation at its end: sent, drawn once, paid."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from producers.device.agent import Device
from producers.device.budget import cost_units
from producers.device.ledger import StoredChain
from producers.survey.survey import Survey
from tests.simulation.bus import DEVICES
from tests.support.keys import chain_of, hashed
from tests.support.reports import Report


def token_of(asked: Survey, device: Device, window_ms: int) -> bytes:
    """Return the token of a device in a window."""
    named: bytes = device._token(asked, window_ms, 0)
    if not asked.withdrawable:
        return named
    digest = asked.digest
    return hashed(0, digest, window_ms, chain_of(named, asked.mechanism.rungs, digest, window_ms)[0])


def check_devices(
    asked: Survey,
    device_of: Callable[[int], Device],
    folder: Path,
    withdrawn_by: Collection[tuple[int, int]],
    log: Sequence[tuple[int, int, Report]],
) -> None:
    """Compare what devices have with what the broker has from them.

    Args:
        asked: the survey.
        device_of: returns a device by its number.
        folder: where the ledgers are.
        withdrawn_by: devices, and windows that they have taken their answers of back.
        log: broker's time, window and report of all that the broker has.
    """
    sent_answers: dict[tuple[int, bytes, int], set[bytes]] = {}
    for _, window_ms, report in log:
        sent_answers.setdefault((window_ms, report.token, report.rung), set()).add(report.answer)
    for number in range(DEVICES):
        if not (folder / f"device-{number}.sqlite").exists():
            continue
        device = device_of(number)
        assert len(device._outbox) == 0, f"device {number} still has reports to send"
        charged, paid = 0, dict[object, list[StoredChain]]()
        for (window_ms,) in device._ledger.connection.execute("SELECT window_ms FROM chains").fetchall():
            chain = device._ledger.chain(asked.id, window_ms)
            assert chain is not None
            token = token_of(asked, device, window_ms)
            sent = {rung for window, name, rung in sent_answers if (window, name) == (window_ms, token)}
            withdrawn = asked.mechanism.rungs in sent
            released = sent - {asked.mechanism.rungs}
            # What was withdrawn before it left has not left.
            same = released <= set(chain.released) if withdrawn else chain.released == tuple(sorted(released))
            assert same, f"device {number}, window {window_ms}: {sent}"
            wanted = (number, window_ms) in withdrawn_by
            assert withdrawn == wanted, f"device {number}, window {window_ms}: {sent}"
            for rung in sent:
                assert len(sent_answers[window_ms, token, rung]) == 1, f"device {number} drew rung {rung} twice"
            paid.setdefault(chain.standing or window_ms, []).append(chain)
            charged += chain.charged_units
        for chains in paid.values():
            # Windows that repeat the answers of one value cost together what the sharpest of them costs.
            sharpest = max(cost_units(chain.epsilons[chain.highest]) for chain in chains)
            assert sum(chain.charged_units for chain in chains) == sharpest, f"device {number} paid wrongly"
            told = {chain.answers for chain in chains if chain.standing and chain.answers is not None}
            assert len(told) <= 1, f"device {number} has two chains of one value"
        assert device.odometer.spent_units == charged, f"device {number} paid twice"
