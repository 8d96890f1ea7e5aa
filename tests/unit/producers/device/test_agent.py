"""What a device releases, when, at what cost; and what it refuses."""

from __future__ import annotations

import logging
import math
import sqlite3
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from estimators.mechanism import ParameterError
from producers.device.agent import Device, ValueFixedError
from producers.device.budget import BudgetError
from producers.survey.survey import parse_survey
from producers.wire import frames as wire
from tests.support.surveys import INDEPENDENT, WEEK, WINDOW_MS, survey, survey_text
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
        device.tick(asked.expiry_ms(WEEK) + 1)
        assert rungs(transport, asked) == [0]
        with pytest.raises(ValueFixedError, match=r"has expired or was taken back; its chain was erased"):
            device.observe(asked, "green", WEEK)


def test_the_value_is_in_no_file_from_the_first_moment_on(ledger: Path) -> None:
    """Also while reports wait and another process reads: the write-ahead log then keeps all that was written."""
    word = "a value that stands nowhere else"
    asked, transport = survey(values=f'values = ["{word}", "green", "blue"]'), MemoryTransport()
    transport.away = True
    with Device(ledger, [asked], transport) as device:
        reader = sqlite3.connect(ledger, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM chains").fetchall()
        for window in range(3):
            (chain,) = device.observe(asked, word, WEEK + window * WINDOW_MS)
            assert word not in repr(chain)
        for now_ms in (WEEK, END + 40_000, asked.expiry_ms(WEEK) + 1):
            assert device.tick(now_ms).waiting > 0
            assert all(word.encode() not in file.read_bytes() for file in ledger.parent.iterdir())
        columns = {row[1] for row in reader.execute("PRAGMA table_info(chains)")}
        assert not columns & {"value", "inputs"}
        reader.close()


def test_the_value_of_a_window_is_fixed(ledger: Path) -> None:
    asked = survey()
    with Device(ledger, [asked], MemoryTransport()) as device:
        first = device.observe(asked, "green", WEEK)
        assert device.observe(asked, "green", WEEK + 1) == first
        with pytest.raises(ValueFixedError, match=r"colour-.* already has a chain for another value; .* next window"):
            device.observe(asked, "red", WEEK + 2)
        second = device.observe(asked, "red", END)
        assert second != first
        for moment_ms in (END, END + WINDOW_MS):
            with pytest.raises(ParameterError, match="must be one of the survey's 3 values"):
                device.observe(asked, "mauve", moment_ms)
    with Device(ledger, [asked], MemoryTransport()) as device:
        assert device.observe(asked, "green", END + 1) == second, "the value is not stored; its first answer stands"
        assert device.odometer.epsilon == 2 * asked.mechanism.epsilons[0]


def test_overlapping_windows_each_keep_their_first_value(ledger: Path) -> None:
    asked, transport = survey(size='size = "1m"\nstep = "30s"'), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        first = device.observe(asked, "green", WEEK + 30_000)
        assert [chain.window_ms for chain in first] == [WEEK, WEEK + 30_000]
        second = device.observe(asked, "red", WEEK + 60_000)
        assert [chain.window_ms for chain in second] == [WEEK + 30_000, WEEK + 60_000]
        assert second[0] == first[1]
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
    asked = survey(jitter='jitter = "5s"')
    sent = set()
    for late_ms in (0, 1, 777):
        transport = MemoryTransport()
        with Device(tmp_path / str(late_ms), [asked], transport) as device:
            device.observe(asked, "red", WEEK + late_ms)
            for released_ms in (WEEK, END + 11_000, END + 31_000):
                for now_ms in (released_ms, released_ms + 5_000):
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
    asked, transport = survey(jitter='jitter = "5s"'), MemoryTransport()
    with Device(ledger, [asked], transport) as device:
        (chain,) = device.observe(asked, "red", WEEK)
        assert all(0 <= jitter <= 5_000 for (jitter,) in chain.jitters_ms)
        seen = []
        # The second rung is released late, and its jitter counts from there.
        for rung, released_ms in enumerate((WEEK, END + 12_345)):
            sent_ms = released_ms + chain.jitters_ms[rung][0]
            for now_ms in (released_ms - 1, released_ms, sent_ms - 1, sent_ms):
                if now_ms == released_ms - 1 and rung == 1:
                    continue
                device.tick(now_ms)
                seen.append((rung, now_ms - sent_ms, len(transport.messages)))
        assert all(count == rung + (since >= 0) for rung, since, count in seen), seen
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


@pytest.mark.parametrize("cap", [0.4, 0.5, 1.9])
def test_under_independent_rungs_a_capped_device_does_not_answer(
    ledger: Path, caplog: pytest.LogCaptureFixture, cap: float
) -> None:
    asked, transport = survey(lifetime=INDEPENDENT), MemoryTransport()
    with Device(ledger, [asked], transport, caps={"colour": cap}) as device:
        for window in range(3):
            assert device.observe(asked, "red", WEEK + window * WINDOW_MS) == ()
            device.tick(WEEK + window * WINDOW_MS)
        assert device.next_ms() is None
        assert device.odometer.epsilon == 0
        assert device._ledger.kept() == []
    assert transport.messages == []
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(
        f"{asked.id} is not answered: the person allows {cap:g} per window and the top rung costs 2;"
    )
    assert said.endswith("raise the cap to take part")
    with Device(ledger, [asked], transport, caps={"colour": 2.0}) as device:
        assert len(device.observe(asked, "red", WEEK)) == 1


def test_under_independent_rungs_no_budget_stops_a_device_below_the_top(ledger: Path) -> None:
    asked = survey(lifetime=INDEPENDENT.replace("100", "3.9"))
    other, transport = survey(name='name = "shade"'), MemoryTransport()
    with Device(ledger, [asked, other], transport) as device:
        device.observe(asked, "red", WEEK)
        assert device.odometer.epsilon == asked.mechanism.epsilons[-1], "the first answer pays for the whole chain"
        with pytest.raises(BudgetError, match=r"cost 2 more with all rungs above it, .* 1\.9 of 3\.9 is left"):
            device.observe(asked, "red", END)
        # What another survey spends meanwhile cannot stop the chain.
        for window in range(4):
            device.observe(other, "red", WEEK + window * WINDOW_MS)
        device.tick(END + 10_000)
        device.tick(END + 30_000)
        assert device.odometer.epsilon > asked.lifetime_epsilon
    sent = [next(wire.headers(message.value)) for message in transport.messages]
    asked_for = [header for header in sent if isinstance(header, wire.Header) and header.digest == asked.digest]
    assert sorted(header.sent_ms for header in asked_for) == [WEEK, END + 10_000, END + 30_000]


def test_the_persons_lifetime_is_finite_unless_they_say_otherwise(
    ledger: Path, caplog: pytest.LogCaptureFixture
) -> None:
    asked = survey(lifetime="lifetime = 1000")
    with caplog.at_level(logging.INFO, logger="producers.device.agent"):
        with Device(ledger, [asked], MemoryTransport()) as device:
            assert device.left(asked) == 100.0
        assert "this device spends at most 100 over all surveys; pass lifetime_epsilon" in caplog.text
        caplog.clear()
        with Device(ledger, [asked], MemoryTransport(), lifetime_epsilon=math.inf) as device:
            assert device.left(asked) == 1000.0
    assert caplog.text == ""


def test_a_set_is_refused_as_a_value(ledger: Path) -> None:
    """Its order differs between processes, so a restarted device could not tell whether it is the same."""
    asked = parse_survey(
        survey_text(
            values='values = ["x", "y"]\naccept_risk = "totals of large crowds only"',
            ladder="ladder = [1]",
            opens="",
        ).replace('name = "grr"', 'name = "k_randomization"\nleast_records = 500')
    )
    with Device(ledger, [asked], MemoryTransport()) as device:
        for value in ({"x", "y"}, frozenset({"x"})):
            with pytest.raises(ParameterError, match="must be a list: the order of a set differs between processes"):
                device.observe(asked, value, WEEK)
        assert device._ledger.kept() == []
        assert len(device.observe(asked, ["x", "y"], WEEK)) == 1


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
        assert (
            "rung 1 (level 1) would cost 0.5 more, and 0.1 of 2.6 is left on this device (2.5 spent on all "
            "surveys: colour 2, shade 0.5)" in refusal
        )
        assert Counter(record.getMessage() for record in caplog.records) == {refusal: 1}
        assert device.next_ms() is None
        device.observe(one, "red", END)
        assert device.odometer.epsilon == 3.0
        with pytest.raises(BudgetError, match=r"rung 0 \(level 0\.5\) would cost 0\.5 more, and 0 of 3 is left"):
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
