"""`thaw device run` as a process, against a real gateway, broker and worker: killed, started again, stopped."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from producers.clock import system_clock
from producers.device.statement import read_statement
from producers.survey.bulletin import bulletin_of, sealed_bulletin
from producers.survey.signing import Signer
from producers.survey.survey import Survey, parse_survey
from streams.local.process import Child
from streams.store.shape import Shape
from tests.integration.workers import System
from tests.support.deadline import until
from tests.support.gateways import GatewayProcess
from tests.support.paths import ROOT
from tests.support.services import missing
from tests.support.signing import signer_in, while_wide_text
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

THAW = [sys.executable, "-m", "streams.cli"]
TEXT = survey_text(opens='opens = ["0s", "1s", "2s"]', retention='retention = "1h"')


@pytest.fixture
def place(kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path) -> Iterator[tuple[System, GatewayProcess]]:
    system = System(kafka, redis_url, topic_prefix, tmp_path, text=TEXT)
    system.create_topics()
    key = Ed25519PrivateKey.generate()
    path = tmp_path / "signing.pem"
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    gateway = GatewayProcess(system.settings, tmp_path, gateway_signing_key=path)
    with system.worker():
        yield system, gateway
    gateway.stop()


def test_a_device_that_is_killed_answers_each_window_once_and_pays_once(
    place: tuple[System, GatewayProcess], tmp_path: Path
) -> None:
    system, gateway = place
    asked = system.survey
    key, other = Signer(tmp_path / "signing.pem").public_text, "A" * 43 + "="
    ledger, values = tmp_path / "state" / "ledger.sqlite", tmp_path / "asked"
    command = f"echo $THAW_SURVEY_NAME >> {values}; echo green"

    def born(told: str, number: int) -> Child:
        survey = f"{gateway.url}/v1/surveys/{asked.id}"
        arguments = ["device", "run", "--survey", survey, "--value-command", command, "--key", told]
        log = tmp_path / f"device-{number}.log"
        return Child("device", [*THAW, *arguments, "--ledger", str(ledger)], log=log)

    stranger = born(other, 0)
    until(lambda: "signed by another key" in stranger.log.read_text(), 60, "the refusal of a foreign key")
    stranger.kill()
    assert not values.exists()
    for number in (1, 2, 3):
        device = born(key, number)
        until(partial(asked_times, values, number), 60, "the value to be asked for")
        if number < 3:
            device.kill()
    until(lambda: users(system) >= 1, 60, "a counted answer")
    assert set(values.read_text().split()) == {"colour"}
    device.send_signal(signal.SIGTERM)
    assert device.wait(30)
    assert device.returncode == 0
    shown = subprocess.run([*THAW, "device", "show", str(ledger)], capture_output=True, text=True, check=True).stdout
    windows = shown.count("window from")
    until(lambda: users(system) == windows, 60, "one counted answer for every window")
    assert "green" not in device.log.read_text() + shown
    assert gateway.metric("thaw_gateway_refused_total", reason="survey") == 0


def asked_times(values: Path, times: int) -> bool:
    """Tell whether the value command was run so many times."""
    return values.exists() and len(values.read_text().split()) >= times


def users(system: System) -> int:
    """Return the counted answers of all windows."""
    return sum(by_rung(system, system.survey))


def by_rung(system: System, asked: Survey) -> list[int]:
    """Return the counted answers of all windows by rung."""
    return [sum(rung) for rung in zip(*by_window(system, asked), strict=True)] or [0]


def counted(system: System, asked: Survey) -> list[int]:
    """Return the counted answers of each window that has some."""
    return [users for users in map(sum, by_window(system, asked)) if users]


def by_window(system: System, asked: Survey) -> list[list[int]]:
    """Return the counted answers of each window by rung."""
    starts = system.store.estimates.window_starts(asked.id)
    tallies = (system.store.estimates.tally(asked.id, start, asked.shards, Shape.of(asked)) for start in starts)
    return [tally.users.sum(axis=1).tolist() for tally in tallies]


def test_levels_of_a_bulletin_and_client_reports_arrive_through_the_gateway(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    signer = signer_in(tmp_path)
    lines = {"opens": 'opens = ["0s", "1s", "2s"]', "size": 'size = "5s"', "retention": 'retention = "1h"'}
    text = while_wide_text(signer, 0.2, **lines)
    told = (ROOT / "deploy" / "device" / "client_reports.toml").read_text()
    told = told.replace('jitter = "1d"', 'jitter = "0s"').replace('size = "7d"', 'size = "1h"')
    system = System(kafka, redis_url, topic_prefix, tmp_path, text=text)
    (tmp_path / "client-reports.toml").write_text(told)
    system.create_topics()
    asked, troubles = system.survey, parse_survey(told)
    first_ms = asked.windows.latest(system_clock())
    opened = {first_ms + number * asked.windows.size_ms: 1 for number in range(100)}
    (tmp_path / "colour.bulletin").write_bytes(sealed_bulletin(bulletin_of(asked, 1, first_ms, opened), signer.sign))
    gateway = GatewayProcess(system.settings, tmp_path, gateway_signing_key=tmp_path / "key.pem")
    place = f"{gateway.url}/v1/surveys"
    arguments = ["--survey", f"{place}/{asked.id}", "--value-command", "echo green", "--key", signer.public_text]
    arguments += ["--client-reports", f"{place}/{troubles.id}", "--ledger", str(tmp_path / "ledger.sqlite")]
    with system.worker():
        device = Child("device", [*THAW, "device", "run", *arguments], log=tmp_path / "device.log")
        # The third window's level has opened, so that the top of the first would have too.
        until(lambda: len(by_rung(system, asked)) == 3 and by_rung(system, asked)[1] >= 3, 90, "sharper answers")
        until(lambda: counted(system, troubles), 60, "the client report")
        device.send_signal(signal.SIGTERM)
        assert device.wait(30)
        assert by_rung(system, asked)[2] == 0, "no bulletin opens the top"
        # An hour may have begun meanwhile, and with it another window of client reports.
        assert set(counted(system, troubles)) == {1}, "once in each window"
    assert "bulletin 1 of" in device.log.read_text()
    gateway.stop()


def test_a_level_that_its_person_asks_for_is_released_by_the_device_that_runs(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    lines = {"kind": 'kind = "on_demand"', "opens": "", "size": 'size = "2s"', "retention": 'retention = "1h"'}
    system = System(kafka, redis_url, topic_prefix, tmp_path, text=survey_text(**lines))
    system.create_topics()
    gateway, asked, ledger = GatewayProcess(system.settings, tmp_path), system.survey, str(tmp_path / "ledger.sqlite")
    arguments = ["--survey", f"{gateway.url}/v1/surveys/{asked.id}", "--value-command", "echo green"]
    with system.worker():
        device = Child("device", [*THAW, "device", "run", *arguments, "--ledger", ledger], log=tmp_path / "device.log")
        until(lambda: users(system) >= 1, 60, "a counted answer")
        for _ in range(2):
            # Windows go on: both may be wishes for one window or for two.
            subprocess.run([*THAW, "device", "release", ledger, "--survey", "colour"], check=True)
        until(lambda: by_rung(system, asked)[1] >= 1, 60, "the level that was asked for")
        device.send_signal(signal.SIGTERM)
        assert device.wait(30)
    statement = read_statement(ledger, system_clock())
    released = [len(window.levels) for window in statement.surveys[0].windows]
    assert set(released) <= {1, 2}
    assert 1 <= released.count(2) <= 2
    gateway.stop()


def test_the_unit_is_one_that_systemd_takes() -> None:
    unit = ROOT / "deploy" / "device" / "thaw-device.service"
    try:
        judged = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        missing("no systemd-analyze on this machine; `make setup` installs Debian's systemd as root")
    assert (judged.returncode, judged.stdout + judged.stderr) == (0, "")
