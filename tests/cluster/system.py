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
from tests.support.redis_cluster import ClusterRedis, RedisCluster

GAP_SECONDS: Final = 20.0
"""While workers are restarted one by one, estimates must change at least this often, and three times the longest pause
that was seen before that: on a busy computer everything takes longer. Windows are 4 s long; a worker that was asked to
stop is back within a session, and the others go on meanwhile."""
CALM_CHANGES: Final = 4
"""So many changes of estimates are watched before workers are restarted."""
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
        self._watched_since: float | None = None
        self._changed_at, self._looked_at, self._digest = 0.0, 0.0, b""
        self.gap_seconds, self.calm_seconds, self.changes = 0.0, 0.0, 0
        self.gaps: list[tuple[float, float]] = []
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
        """Note from now on how long no estimate changes, or stop; first while nothing is done to the workers."""
        now = time.monotonic()
        if watched:
            self._watched_since, self._changed_at, self.changes = now, now, 0
            self.wait(lambda: self.changes >= CALM_CHANGES, "estimates to change")
            self.calm_seconds = max(self.calm_seconds, self.gap_seconds)
            self.gap_seconds, self._changed_at = 0.0, time.monotonic()
        else:
            self.gap_seconds = max(self.gap_seconds, now - self._changed_at)
            self._watched_since = None
            self.gaps.append((self.gap_seconds, GAP_SECONDS + 3 * self.calm_seconds))

    def look_after(self) -> None:
        """Start again what has ended, and look whether estimates change."""
        super().look_after()
        now = time.monotonic()
        if self._watched_since is None or now - self._looked_at < _LOOK_SECONDS:
            return
        self._looked_at = now
        digest = self._newest_estimates()
        if digest not in (b"", self._digest):
            self.gap_seconds = max(self.gap_seconds, now - self._changed_at)
            self._changed_at, self._digest = now, digest
            self.changes += 1

    def _newest_estimates(self) -> bytes:
        """Return a digest of the newest estimates of all surveys; empty if they cannot be read."""
        try:
            windows = [
                (survey.id, start)
                for survey in self.surveys
                for start in self.store.estimates.window_starts(survey.id)[-3:]
            ]
            found = self.store.estimates.read_many(windows)
        except StoreError:
            return b""
        return hashlib.sha256(repr((windows, found)).encode()).digest()

    def faults(self) -> list[str]:
        """Return what went wrong beside counts: a gap in estimates."""
        told = "no estimate changed for {:.1f} s (at most {:.1f} s) while workers were restarted one by one"
        return [*super().faults(), *(told.format(gap, most) for gap, most in self.gaps if gap > most)]
