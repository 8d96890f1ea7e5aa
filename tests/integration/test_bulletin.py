"""From answers in a real Redis to a signed bulletin, and from that to the next answer of a real device."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from producers.clock import system_clock
from producers.device.agent import Device
from producers.simulation.fleet import BlockWindow, Plan
from producers.simulation.scenarios import falling_shares, scenario_named
from producers.survey.signing import verifier
from producers.survey.survey import parse_survey
from producers.wire.transport import frames_of
from streams.settings import load_settings
from streams.store.connect import open_store
from streams.windows.counted import ReportsTopic
from streams.windows.recompute import Recomputer
from streams.worker.applier import Applier
from streams.worker.table import Table
from tests.integration.commands import commands
from tests.support.reports import SurveyDict, batch_of
from tests.support.signing import signer_in, while_wide_text
from tests.support.transports import MemoryTransport, rungs

DEVICES, TOPIC = 20_000, "thaw.reports.v1"


def test_a_level_opens_while_the_band_is_wide_and_the_next_one_does_not(
    redis_url: str,
    key_prefix: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Long because it is one story: two levels, a bulletin for the first, none for the second."""
    signer = signer_in(tmp_path)
    text = while_wide_text(signer, 0.1, opens='opens = ["0s", "1s", "2s"]', retention='retention = "1h"')
    (tmp_path / "colour.toml").write_text(text)
    asked = parse_survey(text)
    settings = load_settings({"redis": redis_url, "prefix": key_prefix, "surveys": str(tmp_path)})
    thaw = commands(settings, capfd, monkeypatch)
    assert thaw("bulletin", "--key", str(tmp_path / "key.pem")).out.strip() == signer.public_text
    window_ms = asked.windows.latest(system_clock()) - 2 * asked.windows.size_ms
    store, known = open_store(settings), SurveyDict(asked)
    applier = Applier(store, known, lambda letters: pytest.fail(str(letters)), partitions=1, clock=system_clock)
    applier.assigned(TOPIC, {0: 0})
    plan = Plan(asked, DEVICES, scenario_named("steady"), 1, falling_shares(3), window_ms)
    block = BlockWindow(plan, window_ms, 0)
    offset = 0

    def count(rung: int) -> None:
        nonlocal offset
        every = np.full(block.rows, rung, dtype=np.uint8)
        made = frames_of(asked, window_ms, 0, block.tokens, block.answers[rung], every, partitions=1)[0]
        batch = batch_of(*made, start=offset, timestamp_ms=system_clock())
        applier.process([batch])
        offset = batch.next_offset
        Recomputer(
            store, known, lambda _: None, "estimates", ReportsTopic(TOPIC, 1), fold=Table.of_log, clock=system_clock
        ).tick()

    def bulletin(*more: str) -> tuple[int, int, bool]:
        done = thaw("bulletin", "colour", "--key", str(tmp_path / "key.pem"), "--json", *more)
        assert done.status == 0, done.err
        told = json.loads(done.out)
        (window,) = told["windows"]
        return told["number"], window["rung"], told["changed"]

    transport = MemoryTransport()
    with Device(tmp_path / "ledger", [asked], transport, verifier=verifier) as device:
        device.observe(asked, "green", window_ms)
        device.tick(window_ms)
        count(0)
        assert bulletin("--dry-run")[1:] == (1, True)
        assert not (tmp_path / "colour.bulletin").exists()
        first, rung, changed = bulletin()
        assert (rung, changed) == (1, True)
        device.bulletins.take(asked, (tmp_path / "colour.bulletin").read_bytes())
        device.tick(system_clock())
        assert rungs(transport, asked) == [0, 1]
        count(1)
        count(2)
        again, rung, changed = bulletin()
        assert (again, rung, changed) == (first, 1, False), "sharp enough: the next level stays closed"
        device.bulletins.take(asked, (tmp_path / "colour.bulletin").read_bytes())
        device.tick(system_clock())
        assert rungs(transport, asked) == [0, 1]
        assert device.odometer.epsilon == asked.mechanism.epsilons[1]
    signer_in(tmp_path, "other.pem")
    refused = thaw("bulletin", "colour", "--key", str(tmp_path / "other.pem"))
    assert refused.status == 1
    assert "devices would refuse the bulletin" in refused.err
    (tmp_path / "colour.bulletin").write_text("broken")
    assert "is not the last bulletin" in thaw("bulletin", "colour", "--key", str(tmp_path / "key.pem")).err
