"""What a device sends and when: the outbox while the broker is away, copies, restarts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from producers.device.agent import Device
from producers.device.sending import BACKOFF_FIRST_MS, BACKOFF_LAST_MS
from producers.wire.transport import Message, RefusedError, TransportError
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, reports

END = WEEK + WINDOW_MS


def test_reports_wait_while_the_broker_is_away(ledger: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked, transport = survey(), MemoryTransport()
    transport.away = True
    with Device(ledger, [asked], transport) as device, caplog.at_level(logging.INFO, logger="producers.device"):
        device.observe(asked, "red", WEEK)
        assert device.tick(WEEK).waiting == 1
        assert device.next_ms() == WEEK + BACKOFF_FIRST_MS
        transport.away = False
        assert device.tick(WEEK + BACKOFF_FIRST_MS - 1).sent == 0
        transport.away = True
        now_ms = WEEK
        pauses = []
        for _ in range(10):
            next_ms = device.next_ms()
            assert next_ms is not None
            pauses.append(next_ms - now_ms)
            now_ms = next_ms
            device.tick(now_ms)
        assert pauses[:4] == [1_000, 2_000, 4_000, 8_000]
        assert max(pauses) == BACKOFF_LAST_MS
        transport.away = False
        assert device.tick(device.next_ms()).waiting == 0
    assert [record.getMessage() for record in caplog.records] == [
        "reports wait in the outbox: the broker is away; sending again within a minute",
        "the broker acknowledges again; sending the outbox",
    ]


@pytest.mark.parametrize(("asked_seconds", "pause_ms"), [(30, 30_000), (600, BACKOFF_LAST_MS)])
def test_it_waits_as_long_as_it_is_told_and_a_minute_at_most(ledger: Path, asked_seconds: int, pause_ms: int) -> None:
    class Busy(MemoryTransport):
        def send(self, messages: Sequence[Message]) -> None:
            raise TransportError(f"{len(messages)} reports are too many now", asked_seconds)

    asked = survey()
    with Device(ledger, [asked], Busy()) as device:
        device.observe(asked, "red", WEEK)
        device.tick(WEEK)
        assert device.next_ms() == WEEK + pause_ms


def test_after_a_fault_a_device_whose_reports_are_put_off_sleeps_until_they_are_due(ledger: Path) -> None:
    class Later(MemoryTransport):
        def send(self, messages: Sequence[Message]) -> None:
            raise RefusedError("later", {}, frozenset(range(len(messages))))

    asked, transport = survey(), Later()
    transport.away = True
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "red", WEEK)
        device.tick(WEEK)
        transport.away = False
        device.tick(WEEK + BACKOFF_FIRST_MS)
        assert device.next_ms() == WEEK + BACKOFF_FIRST_MS + BACKOFF_LAST_MS


def test_a_clock_that_was_set_back_does_not_stop_the_device(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    transport.away = True
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "red", WEEK)
        device.tick(WEEK + 10**9)
        transport.away = False
        assert device.tick(WEEK).sent == 1


def test_a_full_outbox_refuses_new_rungs_and_keeps_old_ones(ledger: Path, caplog: pytest.LogCaptureFixture) -> None:
    asked, transport = survey(), MemoryTransport()
    transport.away = True
    with Device(ledger, [asked], transport, outbox_limit=2) as device:
        for window in range(3):
            device.observe(asked, "red", WEEK + window * WINDOW_MS)
        (unsent,) = device.observe(asked, "red", WEEK + 2 * WINDOW_MS)
        assert unsent.released == ()
        assert device.odometer.epsilon == 1.0
        assert "the outbox is full (2 reports)" in caplog.text
        later_ms = WEEK + 2 * WINDOW_MS + 1
        assert device.tick(later_ms).waiting == 2
        transport.away = False
        device.tick(later_ms + BACKOFF_FIRST_MS)
        device.tick(later_ms + BACKOFF_FIRST_MS + 1)
        assert Counter(token for token, rung, _ in reports(transport, asked) if rung == 0).total() == 3
        assert device.odometer.epsilon == 2.0 + 0.5 + 0.5, "the oldest window has reached its last rung meanwhile"


@pytest.mark.parametrize("limit", [1, 2], ids=["less than a value needs", "as much as it needs"])
def test_overlapping_windows_are_released_all_or_none_also_by_a_full_outbox(ledger: Path, limit: int) -> None:
    # Each value belongs to two windows at a cost of 0.5 for each.
    asked, transport = survey(size='size = "2m"\nstep = "1m"', lifetime="lifetime = 2.5"), MemoryTransport()
    transport.away = True
    moments = [WEEK, WEEK + 2 * WINDOW_MS, WEEK + 4 * WINDOW_MS]
    back_ms = moments[-1] + BACKOFF_FIRST_MS
    with Device(ledger, [asked], transport, caps={"colour": 0.5}, outbox_limit=limit) as device:
        for now_ms, expected in zip(moments, [[(0,), (0,)], [(), ()], [(), ()]], strict=True):
            assert [chain.released for chain in device.observe(asked, "red", now_ms)] == expected
        assert (device.tick(moments[-1]).released, device.odometer.epsilon) == (0, 1.0)
        transport.away = False
        released = []
        for tick in range(4):
            found = device.tick(back_ms + tick)
            released.append((found.released, len(found.refused)))
        # The outbox is empty after the first tick; the third pair could pay for one of its windows and not for both.
        assert released == [(0, 0), (2, 0), (0, 1), (0, 1)]
        assert device.odometer.epsilon == 2.0
        assert Counter(rung for _, rung, _ in reports(transport, asked)) == {0: 4}


def test_copies_have_their_own_tokens_and_frames_and_moments(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, transport = survey(jitter='jitter = "5s"'), MemoryTransport()
    monkeypatch.setattr(asked.mechanism, "copies", 40, raising=False)
    with Device(ledger, [asked], transport) as device:
        (chain,) = device.observe(asked, "red", WEEK)
        assert chain.copies == 40
        assert len(set(chain.jitters_ms[0])) > 20
        device.tick(WEEK)
        assert len(transport.messages) < 40
        device.tick(WEEK + 5_000)
    sent = reports(transport, asked)
    assert len(transport.messages) == 40, "each copy in a message of its own"
    assert len({token for token, _, _ in sent}) == 40
    assert Counter(answer for _, _, answer in sent) == Counter(chain.answer(0, copy) for copy in range(40))


def test_copies_that_wait_together_are_sent_in_random_order(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, transport = survey(), MemoryTransport()
    monkeypatch.setattr(asked.mechanism, "copies", 40, raising=False)
    with Device(ledger, [asked], transport) as device:
        (chain,) = device.observe(asked, "red", WEEK)
        stored = [report.frame for _, report in device._outbox.ready(WEEK, 100)]
        device.tick(WEEK)
    assert chain.copies == len(transport.messages) == 40
    # The identity is one of 40! orders: a false alarm would be a wonder.
    assert [message.value for message in transport.messages] != stored


def test_a_restarted_device_sends_what_was_left_and_the_same_bytes(ledger: Path) -> None:
    asked, first, second = survey(), MemoryTransport(), MemoryTransport()
    with Device(ledger, [asked], first) as device:
        device.observe(asked, "red", WEEK)
        (stored,) = [report.frame for _, report in device._outbox.ready(WEEK, 10)]
        first.away = True
        device.tick(WEEK)
    with Device(ledger, [asked], second) as device:
        device.tick(WEEK + 12_345)
    assert [message.value for message in second.messages] == [stored]


def test_reports_of_a_removed_survey_are_still_sent(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "red", WEEK)
    with Device(ledger, [], transport) as device:
        assert device.tick(END + 40_000).sent == 1
        assert device.next_ms() is None
