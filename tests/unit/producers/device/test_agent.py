"""What a device releases, when, at what cost; and what it refuses."""

from __future__ import annotations

import logging
import math
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from estimators.mechanism import ParameterError
from producers.device.agent import Device, ValueFixedError
from producers.device.budget import BudgetError
from producers.wire import frames as wire
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, reports, rungs

END = WEEK + WINDOW_MS


def test_a_value_becomes_rungs_as_the_schedule_opens_them(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        (chain,) = device.observe(asked, "green", WEEK + 5)
        assert transport.messages == []
        seen = []
        for now_ms in (WEEK + 5, END - 1, END + 9_999, END + 10_000, END + 29_999, END + 30_000):
            device.tick(now_ms)
            seen.append(rungs(transport, asked))
        assert seen == [[0], [0], [0], [0, 1], [0, 1], [0, 1, 2]]
        sent = reports(transport, asked)
        assert [answer for _, _, answer in sent] == [chain.answer(rung, 0) for rung in range(3)]
        assert len({token for token, _, _ in sent}) == 1
        assert device.odometer.epsilon == asked.mechanism.epsilons[-1]
        assert chain.epsilons == asked.mechanism.epsilons


def test_a_late_device_skips_the_rungs_below_the_highest_open_one(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(END + 40_000)
    assert sorted(rungs(transport, asked)) == [0, 2]


def test_nothing_is_released_after_the_window_has_expired_and_its_value_is_erased(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", WEEK)
        device.tick(WEEK)
        assert any(b"green" in file.read_bytes() for file in ledger.parent.iterdir())
        device.tick(asked.expiry_ms(WEEK) + 1)
        assert rungs(transport, asked) == [0]
        with pytest.raises(ValueFixedError, match=r"expired and its chain was erased"):
            device.observe(asked, "green", WEEK)
        assert all(b"green" not in file.read_bytes() for file in ledger.parent.iterdir())


def test_the_value_of_a_window_is_fixed(ledger: Path) -> None:
    asked = survey()
    with Device(ledger, [asked], MemoryTransport()) as device:
        first = device.observe(asked, "green", WEEK)
        assert device.observe(asked, "green", WEEK + 1) == first
        with pytest.raises(ValueFixedError, match=r"colour-.* already has a chain for another value; .* next window"):
            device.observe(asked, "red", WEEK + 2)
        assert device.observe(asked, "red", END) != first
        with pytest.raises(ParameterError, match="must be one of the survey's 3 values"):
            device.observe(asked, "mauve", END + WINDOW_MS)


def test_overlapping_windows_each_keep_their_first_value(ledger: Path) -> None:
    asked, transport = survey(size='size = "1m"\nstep = "30s"'), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        first = device.observe(asked, "green", WEEK + 30_000)
        assert [chain.window_ms for chain in first] == [WEEK, WEEK + 30_000]
        second = device.observe(asked, "red", WEEK + 60_000)
        assert [(chain.window_ms, chain.value) for chain in second] == [
            (WEEK + 30_000, "green"),
            (WEEK + 60_000, "red"),
        ]
        assert device.odometer.epsilon == 3 * asked.mechanism.epsilons[0]
        with pytest.raises(ValueFixedError):
            device.observe(asked, "blue", WEEK + 60_001)


def test_tokens_name_one_window_of_one_survey_on_one_device(tmp_path: Path) -> None:
    one, other = survey(), survey(name='name = "shade"')
    tokens = set()
    for name in ("a", "b"):
        for asked in (one, other):
            transport = MemoryTransport()
            with Device(tmp_path / name, [asked], transport) as device:
                for window in range(3):
                    device.observe(asked, "red", WEEK + window * WINDOW_MS)
                device.tick(WEEK + 3 * WINDOW_MS)
            tokens |= {token for token, _, _ in reports(transport, asked)}
    assert len(tokens) == 2 * 2 * 3


def test_no_byte_on_the_wire_tells_the_devices_own_time(tmp_path: Path) -> None:
    asked = survey(opens='opens = ["0s", "10s", "30s"]\njitter = "5s"')
    sent = set()
    for late_ms in (0, 1, 777):
        transport = MemoryTransport()
        with Device(tmp_path / str(late_ms), [asked], transport) as device:
            device.observe(asked, "red", WEEK + late_ms)
            for now_ms in (WEEK, END + 16_000 + late_ms, END + 36_000 + late_ms):
                device.tick(now_ms + late_ms)
        headers = [next(wire.headers(message.value)) for message in transport.messages]
        sent.add(tuple(header.sent_ms for header in headers if isinstance(header, wire.Header)))
    assert sent == {(WEEK, END + 10_000, END + 30_000)}


def test_what_is_released_when_does_not_depend_on_the_value(tmp_path: Path) -> None:
    asked = survey(lifetime="lifetime = 4")
    patterns = set()
    for value in asked.mechanism.labels:
        for run in range(5):
            transport = MemoryTransport()
            pattern = []
            with Device(tmp_path / f"{value}{run}", [asked], transport, caps={"colour": 1.5}) as device:
                for window in range(6):
                    start_ms = WEEK + window * WINDOW_MS
                    try:
                        device.observe(asked, value, start_ms)
                    except BudgetError:
                        pattern.append(-1)
                    for after_ms in (0, WINDOW_MS, WINDOW_MS + 10_000):
                        result = device.tick(start_ms + after_ms)
                        pattern += [result.released, result.sent, len(result.refused)]
                pattern += [rung for _, rung, _ in reports(transport, asked)]
            patterns.add(tuple(pattern))
    assert len(patterns) == 1


def test_jitter_is_drawn_once_and_within_its_bounds(ledger: Path) -> None:
    asked, transport = survey(opens='opens = ["0s", "10s", "30s"]\njitter = "5s"'), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        (chain,) = device.observe(asked, "red", WEEK)
        assert chain.jitters_ms[0] == (0,)
        assert all(0 <= jitter <= 5_000 for (jitter,) in chain.jitters_ms)
        sent_ms = END + 10_000 + chain.jitters_ms[1][0]
        device.tick(WEEK)
        device.tick(sent_ms - 1)
        assert rungs(transport, asked) == [0]
        device.tick(sent_ms)
        assert rungs(transport, asked) == [0, 1]
    with Device(ledger, [asked], transport) as device:
        assert device.observe(asked, "red", WEEK)[0].jitters_ms == chain.jitters_ms


def test_the_persons_cap_keeps_higher_rungs_closed(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport, caps={"colour": 1.0}) as device:
        device.observe(asked, "red", WEEK)
        device.tick(END + 40_000)
        assert sorted(rungs(transport, asked)) == [0, 1]
        assert device.next_ms() is None
    with (
        Device(ledger, [asked], transport, caps={"colour": 0.4}) as device,
        pytest.raises(
            BudgetError, match=r"the first rung costs 0\.5 per window and the person allows 0\.4; .*raise the cap"
        ),
    ):
        device.observe(asked, "red", END)


def test_the_lifetime_budget_holds_over_all_surveys(ledger: Path, caplog: pytest.LogCaptureFixture) -> None:
    one, other = survey(lifetime="lifetime = 3"), survey(name='name = "shade"', lifetime="lifetime = 2.6")
    transport = MemoryTransport()
    with (
        Device(ledger, [one, other], transport) as device,
        caplog.at_level(logging.WARNING, logger="producers.device.agent"),
    ):
        device.observe(one, "red", WEEK)
        device.tick(END + 30_000)
        assert device.odometer.epsilon == 2.0
        device.observe(other, "red", END)
        assert device.left(other) == pytest.approx(0.1)
        # One rung more would be 0.5 above 2.6 in all, but only half of it is left; the lower rung stays.
        for _ in range(3):
            result = device.tick(END + WINDOW_MS + 30_000)
        (refusal,) = result.refused
        assert "shade" in refusal
        assert "rung 1 would cost 0.5 more, and 0.1 of 2.6 is left on this device (2.5 spent on all surveys)" in refusal
        assert Counter(record.getMessage() for record in caplog.records) == {refusal: 1}
        assert device.next_ms() is None
        device.observe(one, "red", END)
        assert device.odometer.epsilon == 3.0
        with pytest.raises(BudgetError, match=r"rung 0 would cost 0\.5 more, and 0 of 3 is left"):
            device.observe(one, "red", END + WINDOW_MS)
        assert device.odometer.epsilon == 3.0


def test_a_rung_that_is_affordable_is_released_when_a_higher_one_is_not(ledger: Path) -> None:
    asked, transport = survey(lifetime="lifetime = 1.2"), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "red", WEEK)
        device.tick(END + 40_000)
        assert sorted(rungs(transport, asked)) == [0, 1]
        assert device.odometer.epsilon == 1.0


def test_the_person_may_set_a_lower_lifetime(ledger: Path) -> None:
    asked = survey()
    with Device(ledger, [asked], MemoryTransport(), lifetime_epsilon=0.7) as device:
        device.observe(asked, "red", WEEK)
        assert device.tick(END + 40_000).refused
        assert device.odometer.epsilon == 0.5


def test_answers_follow_the_channels_of_their_rungs(ledger: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact counts cannot be asked of secure bits; a two-sided bound at 1e-9 per rung can.

    Hoeffding: n answers stray from their expected share of truth by more than sqrt(ln(2/alpha) / (2 n)) with
    probability alpha at most.
    """
    asked = survey()
    number, alpha = 20_000, 1e-9
    monkeypatch.setattr(asked.mechanism, "copies", number, raising=False)
    with Device(ledger, [asked], MemoryTransport(), outbox_limit=1) as device:
        (chain,) = device.observe(asked, "blue", WEEK)
    answers = np.frombuffer(chain.answers or b"", dtype=np.uint8).reshape(3, number)
    bound = math.sqrt(math.log(2 / alpha) / (2 * number))
    for rung, epsilon in enumerate(asked.mechanism.ladder):
        truth = math.exp(epsilon) / (math.exp(epsilon) + 2)
        assert abs((answers[rung] == 2).mean() - truth) < bound, (rung, truth, bound)


def test_an_unknown_survey_is_refused(ledger: Path) -> None:
    with (
        Device(ledger, [], MemoryTransport()) as device,
        pytest.raises(KeyError, match="does not take part in 'colour'"),
    ):
        device.observe("colour", "red", WEEK)


def test_time_comes_from_the_clock_where_it_is_not_given(ledger: Path) -> None:
    asked = survey()
    with Device(ledger, [asked], MemoryTransport(), clock=lambda: WEEK + 7) as device:
        (chain,) = device.observe("colour", "red")
        assert (chain.window_ms, chain.drawn_ms) == (WEEK, WEEK + 7)
        assert device.tick().sent == 1


def test_a_chain_in_a_log_does_not_tell_the_value(ledger: Path) -> None:
    asked = survey()
    with Device(ledger, [asked], MemoryTransport()) as device:
        (chain,) = device.observe(asked, "green", WEEK)
    assert "green" not in repr(chain)
    assert "answers" not in repr(chain)


def test_a_device_cannot_be_given_other_random_bits() -> None:
    source = Path(sys.modules["producers.device.agent"].__file__ or "").read_text()
    assert "SeededBits" not in source
    assert "bits" not in Device.__init__.__annotations__


def test_two_processes_of_one_device_draw_and_charge_once(ledger: Path) -> None:
    asked, transport = survey(), MemoryTransport()
    with Device(ledger, [asked], transport) as one, Device(ledger, [asked], transport) as other:
        assert one.observe(asked, "red", WEEK) == other.observe(asked, "red", WEEK)
        for now_ms in (WEEK, END + 10_000, END + 30_000):
            one.tick(now_ms)
            other.tick(now_ms)
        assert one.odometer == other.odometer
        assert one.odometer.epsilon == 2.0
    assert rungs(transport, asked) == [0, 1, 2]
