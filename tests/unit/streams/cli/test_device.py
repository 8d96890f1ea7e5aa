"""`thaw device show`: sentences, JSON and a page for the owner of a ledger."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from producers.clock import system_clock
from producers.device.agent import Device
from producers.device.statement import read_statement
from producers.wire import frames as wire
from tests.support.surveys import WEEK, WINDOW_MS, survey
from tests.support.transports import MemoryTransport, rungs
from tests.unit.streams.cli.test_main import run


def test_a_person_reads_what_left_and_what_it_means(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ledger, page = tmp_path / "ledger", tmp_path / "page.html"
    with Device(ledger, [survey()], MemoryTransport()) as device:
        device.observe("colour", "green", WEEK)
        device.tick(WEEK)
    status, told, err = run(capfd, "device", "show", str(ledger), "--html", str(page))
    assert status == 0, err
    assert "Spent 0.5 of 100 over the lifetime, 99.5 left." in told
    assert "paid 0.5: anyone who sees all of it can raise a suspicion of 17 % to at most 25.3 %" in told
    assert "one more level (1) would cost 0.5 more" in told
    assert page.stat().st_mode & 0o777 == 0o600
    assert "at most 25.3 %" in page.read_text()
    _, data, _ = run(capfd, "device", "show", str(ledger), "--json", "--suspicion", "0.5")
    assert json.loads(data)["surveys"][0]["windows"][0]["released"][0]["epsilon"] == 0.5
    assert "green" not in told + data + page.read_text()


def test_a_ledger_that_others_can_read_is_refused_in_one_sentence(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger = tmp_path / "ledger"
    Device(ledger, [survey()], MemoryTransport()).close()
    ledger.chmod(0o644)
    status, out, err = run(capfd, "device", "show", str(ledger))
    assert (status, out) == (1, "")
    assert err.startswith("Error: ")
    assert "open to other users (mode 0644)" in err
    assert err.count("\n") == 1


def test_a_person_switches_their_device_off_and_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ledger = tmp_path / "ledger"
    with Device(ledger, [survey()], MemoryTransport()) as device:
        device.observe("colour", "green", WEEK)
    status, told, _ = run(capfd, "device", "off", str(ledger))
    assert (status, told) == (
        0,
        "Consent is withdrawn: 1 windows and 1 waiting reports were erased; that 0.5 was spent stays recorded.\n",
    )
    assert "Consent is withdrawn" in run(capfd, "device", "show", str(ledger))[1]
    assert run(capfd, "device", "on", str(ledger))[0] == 0
    assert "Consent is withdrawn" not in run(capfd, "device", "show", str(ledger))[1]
    assert run(capfd, "device", "on", str(tmp_path / "none"))[0] == 1
    assert not (tmp_path / "none").exists()


def test_switching_off_says_that_withdrawals_wait_and_that_the_device_must_run_until_they_are_sent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger, page = tmp_path / "ledger", tmp_path / "page.html"
    asked, transport = survey(shards="shards = 16\nwithdrawable = true"), MemoryTransport()
    now_ms = system_clock()
    with Device(ledger, [asked], transport) as device:
        device.observe(asked, "green", now_ms - WINDOW_MS)
        device.tick(now_ms - WINDOW_MS)
        device.observe(asked, "green", now_ms)
        status, told, _ = run(capfd, "device", "off", str(ledger))
        assert status == 0
        lines = told.splitlines()
        assert "2 windows and 1 waiting reports were erased; that 1 was spent stays recorded." in lines[0]
        assert lines[1].startswith("2 withdrawals still wait, each for a random delay: keep the device running until")
        off = "Consent is withdrawn: nothing is drawn, and nothing is sent but 2 withdrawals that still wait."
        assert off in run(capfd, "device", "show", str(ledger), "--html", str(page))[1]
        assert off in page.read_text()
        data = json.loads(run(capfd, "device", "show", str(ledger), "--json")[1])
        assert (data["waiting"], data["withdrawals"]) == (2, 2)
        _, again, _ = run(capfd, "device", "off", str(ledger))
        assert "0 windows and 0 waiting reports were erased" in again, "withdrawals stay"
        assert "2 withdrawals still wait" in again
        device.tick(system_clock())
    assert rungs(transport, asked) == [0, asked.mechanism.rungs, asked.mechanism.rungs]
    assert "sent but" not in run(capfd, "device", "show", str(ledger))[1]


def test_a_person_takes_answers_back_while_the_device_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ledger, now_ms = tmp_path / "ledger", system_clock()
    back, stays = survey(shards="shards = 16\nwithdrawable = true"), survey(name='name = "stays"')
    transport = MemoryTransport()
    with Device(ledger, [back, stays], transport, outbox_limit=4) as device:
        chains = [device.observe(back, "green", now_ms - ago * WINDOW_MS)[0] for ago in (3, 2, 1)]
        device.observe(stays, "red", now_ms)
        device.observe(back, "red", now_ms)
        refusals = {
            ("--survey", "stays"): "'stays': its answers cannot be withdrawn",
            ("--survey", "nobody"): "'nobody': there are no answers that still count",
            ("--window", "7"): "the ledger, window 7: there are no answers that still count",
            ("--window", "noon"): "'noon' is no time",
        }
        before = read_statement(ledger, 0)
        for wrong, reason in refusals.items():
            status, out, err = run(capfd, "device", "withdraw", str(ledger), *wrong)
            assert (status in (1, 2), out) == (True, "")
            assert reason in err
        assert read_statement(ledger, 0) == before
        one = ("--survey", back.id, "--window", str(chains[0].window_ms))
        _, told, _ = run(capfd, "device", "withdraw", str(ledger), *one)
        assert told.startswith("1 windows are taken back; what they cost stays spent.\n1 withdrawals still wait")
        _, told, _ = run(capfd, "device", "withdraw", str(ledger))
        assert told.startswith("2 windows are taken back, and 1 of which nothing had left are erased;")
        assert "3 withdrawals still wait" in told
        device.tick(system_clock())
        assert "there are no answers" in run(capfd, "device", "withdraw", str(ledger), "--survey", "colour")[2]
        assert "one more level" in run(capfd, "device", "show", str(ledger))[1], "of the other survey"
    own = MemoryTransport()
    own.messages = [
        message
        for message in transport.messages
        if [header.digest for header in wire.headers(message.value) if isinstance(header, wire.Header)] == [back.digest]
    ]
    assert rungs(own, back) == [back.mechanism.rungs] * 3, "withdrawals alone"


def test_a_person_asks_for_one_level_more_while_the_device_runs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ledger, now_ms = tmp_path / "ledger", system_clock()
    asked, clock = survey(kind='kind = "on_demand"', opens=""), survey(name='name = "clock"')
    transport = MemoryTransport()
    with Device(ledger, [asked, clock], transport, lifetime_epsilon=7) as device:
        (chain,) = device.observe(asked, "green", now_ms - 2 * WINDOW_MS)
        refusals = {
            ("--survey", "clock"): 'its levels open by the clock; only kind = "on_demand" is released on demand',
            ("--survey", "nobody"): "'nobody': this device does not know it",
            ("--survey", "colour", "--window", "7"): "window 7: there are no answers that still count",
            ("--survey", "colour", "--window", "noon"): "'noon' is no time",
            (): "Missing option '--survey'",
        }
        before = read_statement(ledger, 0)
        for wrong, reason in refusals.items():
            status, out, err = run(capfd, "device", "release", str(ledger), *wrong)
            assert (status in (1, 2), out) == (True, "")
            assert reason in err
        assert read_statement(ledger, 0) == before
        for _ in range(2):
            wanted = ("--survey", "colour", "--window", str(chain.window_ms))
            status, told, _ = run(capfd, "device", "release", str(ledger), *wanted)
            assert status == 0
            assert told.startswith(f"Level 1 of {asked.id}, window from ")
        shown = run(capfd, "device", "show", str(ledger))[1]
        assert "one more level (1) would cost 0.5 more: " in shown
        assert "; it is asked for\n" in shown
        assert rungs(transport, asked) == []
        device.tick(system_clock())
        assert sorted(rungs(transport, asked)) == [0, 1]
        assert "it is asked for" not in run(capfd, "device", "show", str(ledger))[1]
        assert device.lifetime_epsilon == read_statement(ledger, 0).limit == 7
