"""Levels added later, from real devices over a real broker and worker to Redis: one chain, one token, one count."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from estimators.tally import Tally
from producers.clock import system_clock
from producers.device.agent import Device
from producers.device.budget import cost_units
from producers.survey.survey import Survey, parse_survey
from producers.wire.kafka import KafkaTransport
from producers.wire.transport import Message
from streams.windows.record import decode_estimate
from tests.integration.workers import System, newest_open_window, run_thaw
from tests.support.continuing import text_with_rungs
from tests.support.deadline import END_SECONDS, until

pytestmark = pytest.mark.real

KEY = bytes(range(32))
LASTS = 'retention = "30m"'
SHORT_TEXT = text_with_rungs(2, retention=LASTS)
SHORT = parse_survey(SHORT_TEXT)
LONGER_TEXT = text_with_rungs(3, SHORT.id, retention=LASTS)
LONGER = parse_survey(LONGER_TEXT)


class Recorded:
    """A transport that can send everything once more."""

    def __init__(self, carrier: KafkaTransport) -> None:
        self._carrier = carrier
        self.messages: list[Message] = []

    @property
    def partitions(self) -> int:
        return self._carrier.partitions

    def send(self, messages: Sequence[Message]) -> None:
        self._carrier.send(messages)
        self.messages += messages


class Fleet:
    """Real devices, each with a ledger of its own, that answer one window."""

    def __init__(self, folder: Path, transport: Recorded, window_ms: int) -> None:
        self._folder, self._transport, self._window_ms = folder, transport, window_ms
        self.numbers: set[int] = set()

    def live(self, asked: Survey, numbers: Iterable[int], *, first_rung_only: bool = False) -> None:
        """Start devices, let them answer if they have not, and send what is open; then stop them."""
        for number in numbers:
            with self._device(asked, number) as device:
                if number not in self.numbers:
                    device.observe(asked, asked.mechanism.labels[number % 3], self._window_ms)
                    self.numbers.add(number)
                moment_ms = self._window_ms if first_rung_only else system_clock()
                until(lambda: device.tick(moment_ms).waiting == 0, 60, "acknowledgements")  # noqa: B023

    def _device(self, asked: Survey, number: int) -> Device:
        ledger = self._folder / f"{number}.ledger"
        return Device(ledger, [asked], self._transport, value_key=KEY, lifetime_epsilon=math.inf)

    def counted(self) -> Tally:
        """What must be counted: of each device its highest released answer, as its own ledger has it."""
        tally = Tally.empty(3, 1, 3)
        for number in self.numbers:
            with self._device(LONGER, number) as device:
                chain = device._ledger.chain(LONGER.id, self._window_ms)
                assert chain is not None
                tally.users[chain.highest, 0] += 1
                tally.counts[chain.highest, 0, chain.answer(chain.highest, 0)[0]] += 1
                dearest = LONGER if chain.highest == 2 else SHORT
                assert device.odometer.spent_units == cost_units(dearest.mechanism.epsilons[chain.highest])
        return tally


def test_devices_go_on_above_their_top_and_each_is_counted_once(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Long because it is one story: two rungs, a third for some, everything once more, and the checks of outsiders."""
    surveys = tmp_path / "surveys"
    surveys.mkdir()
    system = System(kafka, redis_url, topic_prefix, surveys, text=SHORT_TEXT)
    system.window_ms = newest_open_window(LONGER)
    system.create_topics()
    carrier = KafkaTransport(kafka, system.settings.reports_topic)
    transport = Recorded(carrier)
    fleet = Fleet(tmp_path, transport, system.window_ms)
    with system.worker() as worker:
        fleet.live(SHORT, range(4), first_rung_only=True)
        fleet.live(SHORT, range(4, 12))
        before = fleet.counted()
        assert before.users.ravel().tolist() == [4, 8, 0]
        system.wait_for_tally(Tally(before.counts[:2], before.users[:2]), worker)

        (surveys / "longer.toml").write_text(LONGER_TEXT)
        system.survey = LONGER
        until(lambda: LONGER.edition in worker.log.read_text(), 60, "the worker to know the longer ladder")
        fleet.live(LONGER, [0, 4, 5, 6, 12])
        fleet.live(SHORT, [1])  # has not heard of it yet
        expected = fleet.counted()
        assert expected.users.ravel().tolist() == [2, 6, 5]
        system.wait_for_tally(expected, worker)
        carrier.send(transport.messages)  # all of it once more, rungs and surveys mixed

        def estimated() -> bool:
            payload = system.store.estimates.read(LONGER.id, system.window_ms)
            repeated = system.store.log.counters(LONGER.id).counted == 2 * len(transport.messages)
            if payload is None or not repeated or system.store.queue.entries():
                return False
            record = decode_estimate(payload)
            return record.users_per_rung == [2, 6, 5] and record.proof is not None and record.proof.winners is not None

        until(estimated, 60, "an estimate of everything")
        assert system.tally() == expected
        assert not system.store.log.counters(LONGER.id).rejected
        for source in ("topic", "redis"):
            checked = run_thaw(system.settings, "verify", "colour", "--source", source, "--json")
            assert checked.returncode == 0, checked.stdout + checked.stderr
        printed = run_thaw(system.settings, "estimates", "colour", "--json")
        (record,) = json.loads(printed.stdout)
        assert (record["survey"], record["users"]) == (SHORT.id, 13)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(END_SECONDS), worker.tail()
    carrier.close()
    rebuilt = run_thaw(system.settings, "rebuild", "colour")
    assert rebuilt.returncode == 0, rebuilt.stdout + rebuilt.stderr
    # A worker without the file of the longer ladder leaves these counts alone, and says what to do.
    (surveys / "longer.toml").unlink()
    with system.worker(instance="two") as behind:
        carrier = KafkaTransport(kafka, system.settings.reports_topic)
        carrier.send(transport.messages[:1])
        carrier.close()
        assert behind.wait(END_SECONDS), behind.tail()
        assert behind.returncode == 75, behind.tail()
        assert "another survey continues it; put its file into the folder" in behind.tail()
    assert system.tally() == expected
