"""The switch: off means that nothing more is drawn or sent, and that only what was spent is kept."""

from __future__ import annotations

from pathlib import Path

from producers.device.agent import Device
from producers.device.statement import read_statement
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, reports, rungs

END = WEEK + WINDOW_MS


def test_off_draws_and_sends_nothing_and_keeps_only_what_was_spent(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        transport.away = True
        device.tick(END + 10_000)
        transport.away = False
        secret = device._ledger.secret
        device.consent(False)
        assert device.observe(asked, "green", END) == ()
        result = device.tick(END + 40_000)
        assert (result.released, result.sent, result.waiting) == (0, 0, 0)
        assert rungs(transport, asked) == [0], "the waiting report of rung 1 was erased"
        assert device.next_ms() is None
        assert device.odometer.epsilon == 1.0
    for file in ledger.parent.iterdir():
        assert secret not in file.read_bytes()
    told = read_statement(ledger, END)
    assert (told.consent, told.spent, told.waiting) == (False, 1.0, 0)
    assert [(survey.spent, survey.windows) for survey in told.surveys] == [(1.0, ())]


def test_on_again_answers_no_window_twice_and_is_not_linked(ledger: Path) -> None:
    asked, transport = survey(size='size = "1m"\nstep = "30s"'), MemoryTransport()
    with Device(ledger, [asked], transport) as device, Device(ledger, [asked], transport) as other:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        before = {token for token, _, _ in reports(transport, asked)}
        device.consent(False)
        assert other.observe(asked, "green", WEEK + 30_000) == (), "another process of this device obeys too"
        other.consent(True)
        assert device.observe(asked, "red", WEEK) == (), "these windows were answered under another token"
        (chain,) = device.observe(asked, "red", WEEK + 30_000)
        assert chain.window_ms == WEEK + 30_000
        other.tick(WEEK + 30_000)
        device.tick(WEEK + 30_000 + WINDOW_MS + 30_000)
        later = [(token, rung) for token, rung, _ in reports(transport, asked) if token not in before]
        assert len({token for token, _ in later}) == 1, "both processes use the new secret"
        assert sorted(rung for _, rung in later) == [0, 2]
        assert device.odometer.epsilon == 2 * 0.5 + 2.0
