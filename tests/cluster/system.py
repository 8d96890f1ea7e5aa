"""The system that cluster tests break: three brokers, three masters of Redis with a replica each, three workers."""

from __future__ import annotations

import hashlib
import time
from typing import Final

from streams.local.service import Program
from streams.settings import Settings
from streams.store.contract import StoreError
from tests.chaos.system import System
from tests.cluster.brokers import Broker, brokers, start_together
from tests.cluster.gaps import Gap, Watch, told
from tests.support.redis_cluster import ClusterRedis, RedisCluster

_LOOK_SECONDS: Final = 0.25


class ClusterSystem(System):
    """A `System` on clusters. Its single `kafka` and `redis` do not exist: faults name a node."""

    worker_count = 3
    # Sixteen processes on a small computer: no more than must be counted to see a loss.
    tick_ms = 1_000
    survey_names = ("FLEET", "AGENTS")

    def start_services(self) -> Settings:
        """Start the clusters; return the settings with which they are reached."""
        folder = self.supervisor.folder
        self.brokers = brokers(folder)
        self.nodes = RedisCluster(folder / "redis", replicas=True)
        start_together(self.brokers)
        for service in (*self.brokers, *self.nodes.nodes):
            self.supervisor.add(service)
        self.nodes.join()
        self._watches: dict[str, Watch] = {}
        self._looked_at = 0.0
        self.gaps: list[Gap] = []
        """Of each survey and rolling restart."""
        kafka = ",".join(broker.address for broker in self.brokers)
        return Settings(kafka=kafka, redis=self.nodes.url, replication=3)

    def services_alive(self) -> bool:
        """Tell whether all nodes run, every slot is served and every replica follows."""
        members: list[Program] = [*self.brokers, *self.nodes.nodes]
        return all(member.alive() for member in members) and self.nodes.is_whole()

    def running_brokers(self) -> list[Broker]:
        """Return the brokers that run."""
        return [broker for broker in self.brokers if broker.alive()]

    def running_masters(self) -> list[ClusterRedis]:
        """Return the nodes of Redis that are in charge of slots."""
        return self.nodes.masters()

    # Gaps in estimates.

    def watch_estimates(self, watched: bool) -> None:
        """Note from now on how long no estimate of a survey changes, or stop."""
        if watched:
            now = time.monotonic()
            self._watches = {one.id: Watch(one.name, one.windows.size_ms / 1_000, now) for one in self.surveys}
            self.wait(lambda: all(watch.is_calm for watch in self._watches.values()), "estimates to change")
            for watch in self._watches.values():
                watch.calm_ends(time.monotonic())
        else:
            self.gaps += [watch.gap(time.monotonic()) for watch in self._watches.values()]
            self._watches = {}

    def look_after(self) -> None:
        """Start again what has ended, and look whether estimates change."""
        super().look_after()
        now = time.monotonic()
        if not self._watches or now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        for survey, digest in self._newest_estimates().items():
            self._watches[survey].look(digest, now)

    def _newest_estimates(self) -> dict[str, bytes]:
        """Return a digest of the newest estimates of each survey that has some; nothing if they cannot be read."""
        try:
            windows = {survey.id: self.store.estimates.window_starts(survey.id)[-3:] for survey in self.surveys}
            return {
                survey: hashlib.sha256(
                    repr((starts, self.store.estimates.read_many([(survey, start) for start in starts]))).encode()
                ).digest()
                for survey, starts in windows.items()
                if starts
            }
        except StoreError:
            return {}

    def faults(self) -> list[str]:
        """Return what went wrong beside counts: gaps in estimates."""
        return [*super().faults(), *(str(gap) for gap in self.gaps if gap.seconds > gap.most)]

    def notes(self) -> list[str]:
        """Return what was measured beside recovery: the largest gap in estimates."""
        return told(self.gaps)
