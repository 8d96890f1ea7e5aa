"""The short form of `make chaos`, and the faults that chance would bring too seldom, one by one.

Failure: a tally that differs from the oracle's in any number; a rung that a device drew twice or that never arrived; a
worker that ends for another reason than a stop signal, a kill, or status 75 (safe to restart). Not a failure: anything
that takes long.
"""

from __future__ import annotations

import random
import re
import signal
import urllib.request
from pathlib import Path

import numpy as np
import pytest

from streams.local.process import free_ports
from streams.local.redis import Redis
from streams.settings import DriverName
from tests.chaos import aof
from tests.chaos.__main__ import main
from tests.chaos.replica import cut_off_replica, take_over
from tests.chaos.soak import Point, curve, flat, rss_mib
from tests.chaos.system import DRIVERS
from tests.integration.workers import System
from tests.support.deadline import END_SECONDS, until
from tests.support.services import running
from tests.support.telling import Tells

pytestmark = pytest.mark.real


PARTS = {
    "faust": ("worker", "tear", "device", "fleet", "corrupt-log", "gateway"),
    # What a driver has to do with; the others were killed above.
    "plain": ("worker", "broker", "zombie"),
}


@pytest.mark.parametrize("driver", DRIVERS)
def test_kills_of_every_part_lose_nothing_and_count_nothing_twice(
    kafka: str, driver: DriverName, capsys: pytest.CaptureFixture[str]
) -> None:
    """`kafka` only so that a machine without Java skips with the reason; chaos has a broker of its own to kill."""
    kinds = PARTS[driver]
    arguments = ["--kills", str(len(kinds)), "--seed", "4", "--devices", "1000", "--agents", "200", "--burst", "0.6"]
    assert main([*arguments, "--driver", driver, "--kinds", *kinds]) == 0, capsys.readouterr()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"kills {len(kinds)}, reports ")
    assert ", lost 0, double 0, recovery " in last


def handled(port: int) -> float:
    """Return how many reports a worker has counted to the end: stored, marked and acknowledged."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=END_SECONDS) as answer:
        found = re.search(r"^thaw_worker_reports_total (\S+)", answer.read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_a_worker_at_rest_reads_again_what_a_power_cut_took(kafka: str, topic_prefix: str, tmp_path: Path) -> None:
    """No report comes afterwards that would make it look."""
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        reports = system.reports(20_000)
        [port] = free_ports(1)
        with system.worker(port=port) as worker:
            system.produce(reports.messages(8, limit_bytes=4_096))
            system.wait_for_tally(reports.tally(), worker)
            until(lambda: handled(port) == 20_000, 30, "the last batch to be over")
            redis.kill()
            assert aof.cut_anywhere(redis.folder, random.Random(1)) > 0
            redis.start()
            assert system.tally() != reports.tally(), "the cut took something"
            assert worker.wait(END_SECONDS), "it notices by itself"
            assert worker.returncode == 75
            assert "stored offset regressed" in worker.log.read_text()
        with system.worker() as again:
            system.wait_for_tally(reports.tally(), again)
            until(lambda: not system.store.queue.entries(), 30, "all estimates")


def test_a_worker_reads_again_what_a_stale_replica_never_had(
    kafka: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        first, second = system.reports(10_000), system.reports(10_000, seed=2)
        with system.worker() as worker:
            system.produce(first.messages(8, limit_bytes=4_096))
            system.wait_for_tally(first.tally(), worker)
            with cut_off_replica(redis, lambda condition, what: until(condition, 60, what)) as replica:
                system.produce(second.messages(8, limit_bytes=4_096))
                system.wait_for_tally(first.tally() + second.tally(), worker)
                take_over(redis, replica)
            redis.start()
            tells.begin()
            assert system.tally() == first.tally(), "the replica lacks the second half"
            assert worker.wait(END_SECONDS), "it notices without another report"
            assert worker.returncode == 75
            tells.log("Failover to a stale replica", worker, "stored offset regressed")
        with system.worker() as again:
            system.wait_for_tally(first.tally() + second.tally(), again)


def test_an_estimate_is_computed_although_a_power_cut_took_its_mark(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Exactly the mark and what came after it is gone: no offset tells, no report comes again."""
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        # One message is one batch: its counts, then its mark.
        some = {0: system.reports(1_000).messages(8)[0]}
        assert len(some[0]) == 1
        with system.worker(tick_ms=600_000) as worker:
            system.produce(some)
            until(system.store.queue.entries, 60, "the mark")
            counted = system.tally()
            worker.kill()
        redis.kill()
        path = aof.aof_file(redis.folder)
        raw = path.read_bytes()
        marks = [found for found in aof.commands(raw) if b"{dirty}:windows" in raw[found.start : found.end]]
        with path.open("r+b") as file:
            file.truncate(min(found.start for found in marks))
        redis.start()
        assert system.tally() == counted
        assert system.store.queue.entries() == []
        with system.worker() as again:
            until(lambda: system.store.estimates.read(system.survey.id, system.window_ms), 60, "an estimate")
            again.check()


def test_a_redis_that_does_not_answer_stops_the_reading_and_not_only_the_counting(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Back pressure: far more than fits into the queues waits in Kafka, and not in the worker's memory."""
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        reports = system.reports(200_000)
        messages = reports.messages(8)
        with system.worker() as worker:
            system.produce(messages)
            system.wait_for_tally(reports.tally(), worker)
            before = rss_mib(worker.pid)
            redis.child.send_signal(signal.SIGSTOP)
            sent_mib = 0.0
            while sent_mib < 300:
                system.produce(messages)
                sent_mib += sum(len(value) for values in messages.values() for value in values) / 2**20
            until(lambda: "retrying, last batch not acknowledged" in worker.log.read_text(), 60, "the worker to wait")
            seen = [rss_mib(worker.pid)]

            def at_rest() -> bool:
                seen.append(rss_mib(worker.pid))
                return len(seen) > 20 and max(seen[-20:]) - min(seen[-20:]) < 1.0

            until(at_rest, 60, "memory that no longer changes", poll_seconds=0.1)
            assert max(seen) - before < 200, (
                f"{sent_mib:.0f} MiB wait; memory went from {before:.0f} to {max(seen):.0f}"
            )
            redis.child.send_signal(signal.SIGCONT)
            last = system.reports(1_000, seed=2)
            system.produce(last.messages(8))
            system.wait_for_tally(reports.tally() + last.tally(), worker, seconds=120)


def test_a_leak_would_show() -> None:
    rng = np.random.default_rng(1)
    steady = [Point(second, 200 + rng.uniform(-3, 3), second) for second in range(90)]
    leaking = [Point(second, 200 + second * 0.6, second) for second in range(90)]
    warming = [Point(second, 200 + 60 * min(second, 20) / 20, second) for second in range(90)]
    assert flat(steady)
    assert flat(warming)
    assert not flat(leaking)
    assert "    89 s   253.4 MiB           89 ####" in curve(leaking)
