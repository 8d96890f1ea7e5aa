"""Answers are taken back by the device that gave them: exactly once, for every copy, and nothing else leaves then."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from producers.device.agent import Device, ReleaseError, ValueFixedError
from producers.device.statement import read_statement
from producers.survey.survey import Survey, load_survey
from producers.wire import frames as wire
from producers.wire.keys import right_keys
from tests.support.paths import ROOT
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport

END = WEEK + WINDOW_MS
OFF_MS = END + 40_000
JITTER_MS = 5_000


def withdrawable(**changes: str) -> Survey:
    return survey(shards="shards = 16\nwithdrawable = true", jitter=f'jitter = "{JITTER_MS // 1000}s"', **changes)


def sent(transport: MemoryTransport, asked: Survey) -> list[tuple[bytes, int, bytes]]:
    """Token, rung and answer of every report, each with a right key and one frame of its own."""
    found = []
    for message in transport.messages:
        for header in wire.headers(message.value):
            assert isinstance(header, wire.Header)
            columns = wire.columns(message.value, header, asked.layout)
            assert columns.keys is not None
            assert len(columns) == 1
            assert header.sent_ms == asked.public_ms(header.window_ms, int(columns.rungs[0]))
            assert right_keys(
                columns.tokens, columns.rungs.tolist(), columns.keys, asked.digest, header.window_ms
            ).all()
            found.append((columns.tokens[0].tobytes(), int(columns.rungs[0]), columns.answers[0].tobytes()))
    return found


def test_every_rung_and_the_withdrawal_carry_the_key_of_one_token(ledger: Path) -> None:
    asked, transport = withdrawable(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        for now_ms in (WEEK + JITTER_MS, END + 10_000 + JITTER_MS, END + 20_000, END + 30_000, END + 39_000):
            device.tick(now_ms)
        assert [rung for _, rung, _ in sent(transport, asked)] == [0, 1, 2]
        assert device.withdraw(asked, now_ms=OFF_MS) == 1
        assert device.withdraw(asked, now_ms=OFF_MS) == 0, "once"
        device.tick(OFF_MS + JITTER_MS)
        assert device.next_ms() is None
        device.tick(OFF_MS + 10 * JITTER_MS)
        assert device.odometer.epsilon == 2.0, "it stays spent"
    reports = sent(transport, asked)
    assert [rung for _, rung, _ in reports] == [0, 1, 2, 3]
    assert len({token for token, _, _ in reports}) == 1
    assert reports[-1][2] == b"\0"


def test_withdrawals_wait_for_a_jitter_of_their_own_and_what_waits_is_erased(ledger: Path) -> None:
    asked, transport = withdrawable(size='size = "1m"\nstep = "30s"'), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK + JITTER_MS)
        transport.away = True
        device.tick(END + 40_000)
        transport.away = False
        assert device.withdraw(asked, now_ms=OFF_MS) == 2
        waiting = device._ledger.connection.execute("SELECT rung, ready_ms FROM outbox").fetchall()
        assert [rung for rung, _ in waiting] == [3, 3], "rungs above 0 that had not left are gone"
        assert all(OFF_MS <= ready_ms <= OFF_MS + JITTER_MS for _, ready_ms in waiting)
        with pytest.raises(ValueFixedError, match="taken back; its chain was erased"):
            device.observe(asked, "red", WEEK + 1_000)
        device._sender.retry_ms = None
        device.tick(OFF_MS + JITTER_MS)
    assert sorted(rung for _, rung, _ in sent(transport, asked)) == [0, 0, 3, 3]
    told = read_statement(ledger, OFF_MS)
    assert {window.withdrawn_ms for window in told.surveys[0].windows} == {OFF_MS}


def test_one_window_can_be_taken_back_and_is_not_answered_again(ledger: Path) -> None:
    asked, transport = withdrawable(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.observe(asked, "green", END)
        assert device.withdraw(asked, window_ms=WEEK, now_ms=END) == 1
        device.tick(END + JITTER_MS)
        with pytest.raises(ValueFixedError, match="taken back; its chain was erased"):
            device.observe(asked, "red", WEEK)
        device.tick(END + WINDOW_MS + 60_000)
        device.tick(END + WINDOW_MS + 60_000 + JITTER_MS)
    assert sorted(rung for _, rung, _ in sent(transport, asked)) == [0, 2, 3]


def test_what_has_expired_or_was_never_released_is_not_withdrawn(ledger: Path) -> None:
    asked, transport = withdrawable(), MemoryTransport()
    with Device(ledger, [asked], transport, lifetime_epsilon=0.5, outbox_limit=1) as device:
        device.observe(asked, "green", WEEK)
        assert device.withdraw(asked, now_ms=asked.expiry_ms(WEEK) + 1) == 0
        assert [window.withdrawn_ms for window in read_statement(ledger, END).surveys[0].windows] == [None]
        device.tick(asked.expiry_ms(WEEK) + 1)
        assert device._ledger.connection.execute("SELECT COUNT(*) FROM withdrawals").fetchone() == (0,)
    transport = MemoryTransport()
    with Device(ledger.parent / "other", [asked], transport, outbox_limit=1) as device:
        device.observe(asked, "green", WEEK)
        device.observe(asked, "red", END)
        assert len(device._outbox) == 1, "the second answer waits in its chain for room"
        assert device.withdraw(asked, window_ms=END, now_ms=END) == 0, "nothing of it has left"
        for now_ms in (END, END + WINDOW_MS + 60_000, END + WINDOW_MS + 90_000):
            device.tick(now_ms)
        assert device.withdraw(asked, window_ms=END, now_ms=END + WINDOW_MS + 90_000) == 0
        with pytest.raises(ValueFixedError, match="taken back; its chain was erased"):
            device.observe(asked, "red", END)
        assert device.odometer.epsilon == asked.mechanism.epsilons[-1], "of the first window alone"
    assert [rung for _, rung, _ in sent(transport, asked)] == [0, 2], "and nothing of the second ever leaves"


def test_switching_off_withdraws_open_windows_and_the_file_keeps_nothing_else(ledger: Path) -> None:
    asked, transport = withdrawable(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK + JITTER_MS)
        secret = device._ledger.secret
        device.consent(False, END + 5_000)
        device.consent(False, END + 5_000)
        assert device.observe(asked, "red", END + 5_000) == ()
        device.tick(END + 5_000 + JITTER_MS)
        device.tick(asked.expiry_ms(WEEK))
        assert device.odometer.epsilon == 0.5
    reports = sent(transport, asked)
    assert [rung for _, rung, _ in reports] == [0, 3]
    for file in ledger.parent.iterdir():
        raw = file.read_bytes()
        assert secret not in raw
        assert reports[0][0] not in raw, "the token has left the file with its withdrawal"


def test_each_copy_is_withdrawn_under_its_own_token(ledger: Path) -> None:
    asked = replace(load_survey(ROOT / "deploy" / "surveys" / "k_randomization.toml"), withdrawable=True, jitter_ms=0)
    copies, transport = asked.mechanism.copies, MemoryTransport()
    with Device(ledger, [asked], transport, lifetime_epsilon=math.inf) as device:
        device.observe(asked, [asked.mechanism.labels[0]], WEEK)
        device.tick(WEEK)
        assert device.withdraw(asked, now_ms=WEEK) == 1
        device.tick(WEEK)
    reports = sent(transport, asked)
    assert copies > 1
    assert [rung for _, rung, _ in reports] == [0] * copies + [1] * copies
    assert {token for token, rung, _ in reports if rung} == {token for token, rung, _ in reports if not rung}
    assert len({token for token, _, _ in reports}) == copies


def test_only_withdrawable_surveys_can_be_withdrawn(ledger: Path) -> None:
    asked = survey()
    with Device(ledger, [asked], MemoryTransport()) as device:
        device.observe(asked, "green", WEEK)
        with pytest.raises(ReleaseError, match="its answers cannot be withdrawn; only withdrawable = true allows it"):
            device.withdraw(asked, now_ms=WEEK)
        device.consent(False, WEEK)
        assert len(device._outbox) == 0
