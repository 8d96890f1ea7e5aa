"""Hundreds of old windows on real services: what people look at now does not wait behind them after a restart."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis as StrictRedis

from streams.local.redis import Redis
from streams.store.contract import StoreError
from streams.windows.record import decode_estimate
from streams.windows.settled import CURRENT_STEPS
from tests.integration.workers import Reports, System
from tests.support.deadline import END_SECONDS, until
from tests.support.services import running
from tests.support.surveys import survey_text

pytestmark = pytest.mark.real

OLD = 600
"""Old windows, which take a worker tens of seconds where none has an estimate."""


def restart(redis: Redis) -> None:
    redis.kill()
    redis.start()


def test_a_fresh_window_does_not_wait_for_hundreds_of_old_ones_after_a_restart_of_redis(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Long because it is one story: hundreds of windows are made before Redis is restarted below them."""
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path, text=survey_text(retention='retention = "30d"'))
        system.create_topics()
        survey, steps = system.survey, range(CURRENT_STEPS + 2, CURRENT_STEPS + 2 + OLD)
        old = [(survey.id, system.window_ms - step * survey.windows.step_ms) for step in steps]
        messages: dict[int, list[bytes]] = {}
        for seed, (_, window_ms) in enumerate(old):
            for partition, values in Reports.draw(survey, 1, seed=seed, window_ms=window_ms).messages(8).items():
                messages.setdefault(partition, []).extend(values)

        def left() -> int:
            """Return how many old windows wait for an estimate; all of them while nobody can tell."""
            try:
                return len({queued[:2] for queued in system.store.queue.entries()} & set(old))
            except StoreError:
                return OLD

        def counted() -> bool:
            worker.check()
            try:
                return system.store.log.counters(survey.id).applied == OLD
            except StoreError:
                return False

        def estimated(users: int) -> bool:
            worker.check()
            try:
                payload = system.store.estimates.read(survey.id, system.window_ms)
            except StoreError:
                return False
            return payload is not None and decode_estimate(payload).users == users

        with system.worker() as worker:
            system.produce(messages)
            until(counted, 60, "the old windows to be counted")
            worker.terminate(END_SECONDS)
        restart(redis)
        # How many of them were estimated meanwhile is chance; now all of them wait.
        with closing(StrictRedis.from_url(redis.url)) as client:
            keys = list(client.scan_iter(f"{topic_prefix}thaw:v1:{survey.id}:estimate:*", count=OLD))
            assert (client.delete(*keys) if keys else 0) == len(keys)
        fresh = system.reports(1_000)
        system.produce(fresh.messages(8))
        waiting: list[int] = []

        def fresh_is_estimated() -> bool:
            done = estimated(1_000)
            # A worker computes old ones before it has partitions, for as long as its group takes to form.
            if not waiting and system.tally().total_users:
                waiting.append(left())
            return done

        with system.worker() as worker:
            until(fresh_is_estimated, 120, "an estimate of the fresh window")
            assert left() > waiting[0] / 2, "it was computed before most of the old ones that waited with it"
            until(lambda: left() == 0, 240, "the old ones to be estimated as well")
            before = system.store.estimates.read_many(old)
            assert None not in before

            # All of them are queued again, and those whose counts are the same cost nothing that fresh ones wait for.
            restart(redis)
            system.produce(system.reports(1_000, seed=2).messages(8))
            until(lambda: estimated(2_000), 120, "another estimate of the fresh window")
            until(lambda: "queued" in worker.log.read_text(), 120, "all windows to be queued again")
            until(lambda: left() == 0, 240, "the old ones to be done again")
            assert system.store.estimates.read_many(old) == before
            assert system.tally() == fresh.tally() + system.reports(1_000, seed=2).tally()
            worker.check()
