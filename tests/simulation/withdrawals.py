"""What may happen where answers can be taken back: their device does it, and others try."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from producers.device.agent import Device
from tests.simulation.bus import DEVICES, PARTITIONS, TOPIC, VALUES
from tests.simulation.operations import expired, opened
from tests.simulation.world import World
from tests.support.keys import key_of
from tests.support.reports import Report, frame_of


@dataclass(frozen=True)
class Withdraw:
    """A device takes the answers of all its open windows back."""

    device: int = 0
    held: bool = False

    def run(self, world: World) -> None:
        number = self.device % DEVICES
        world.wires[number].held = self.held

        def take_back(device: Device) -> None:
            chains = [chain for chain in device._ledger.kept() if chain.released]
            gone = {(number, chain.window_ms) for chain in chains if chain.expires_ms >= world.clock()}
            assert device.withdraw(world.asked) == len(gone)
            world.withdrawn |= gone
            device.tick()

        world.on_device(number, take_back)
        world.wires[number].held = False


@dataclass(frozen=True)
class Forge:
    """Somebody who reads the topic sends a sharper answer, or a withdrawal, under the token of somebody else."""

    partition: int = 0
    offset: int = 0
    rung: int = 1

    def run(self, world: World) -> None:
        asked, partition = world.asked, self.partition % PARTITIONS
        known = [record for record in world.bus.log[partition] if len(record.genuine) == 1]
        if not known:
            return
        ((window_ms, report),) = known[self.offset % len(known)].genuine
        rung = 1 + self.rung % asked.mechanism.rungs
        answer = bytes(1) if rung == asked.mechanism.rungs else bytes([VALUES - 1])
        forged = Report(report.token, rung, answer)
        # The best key there is: that of the report which was read.
        keys = np.frombuffer(key_of(report.token, report.rung), np.uint8).reshape(1, -1)
        if rung <= report.rung or not opened(forged, asked, window_ms, world.clock()):
            return
        raw = frame_of(asked, [forged], window_ms=window_ms)
        raw = raw[: -keys.size] + keys.tobytes()
        if expired(raw, asked, world.clock()):
            return
        _, offset = world.bus.append(partition, raw, ())
        world.expected_dead.add((f"{TOPIC}[{partition}]@{offset}", "key", raw))
