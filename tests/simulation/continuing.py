"""What may happen when levels are added to a survey while it is answered, as data like all operations."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.bus import DEVICES, WORKERS
from tests.simulation.operations import Late
from tests.simulation.world import World


@dataclass(frozen=True)
class Learn:
    """A worker learns of the longer ladder before others do, and before any device."""

    worker: int = 0

    def run(self, world: World) -> None:
        world.learn(world.workers[self.worker % WORKERS])


@dataclass(frozen=True)
class Continue:
    """All workers know the longer ladder, and some devices start again with it."""

    devices: tuple[int, ...] = (0, 1, 2)

    def run(self, world: World) -> None:
        world.go_on()
        for number in self.devices:
            world.kill_device(number % DEVICES)


@dataclass(frozen=True)
class LateAndOld:
    """What a fleet of the earlier survey sends, whichever is asked by now."""

    reports: tuple[tuple[int, int, int], ...] = ((0, 0, 0),)
    windows: int = 0

    def run(self, world: World) -> None:
        Late(self.reports, self.windows).of(world.first, world)
