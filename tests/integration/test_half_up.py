"""Services that answer and cannot work: one clear line with the remedy, again and again, and then it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis as Client

from streams.local.process import free_ports
from streams.local.redis import Redis
from tests.integration.workers import System, run_thaw
from tests.support.deadline import until
from tests.support.redis_cluster import RedisCluster
from tests.support.services import running, started
from tests.support.telling import Tells

pytestmark = pytest.mark.real


def test_a_worker_waits_for_a_replica_to_become_a_master(
    kafka: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    [nobody] = free_ports(1)
    with running(Redis) as redis:
        system = System(kafka, redis.url, topic_prefix, tmp_path)
        system.create_topics()
        with Client.from_url(redis.url) as client:
            client.replicaof("127.0.0.1", nobody)
        with system.worker() as worker:
            until(worker.log.read_text, 60, "the worker to begin")
            tells.begin()
            said = "is a replica, which takes no writes; name its master"
            tells.log("`THAW_REDIS` names a replica", worker, said)
            with Client.from_url(redis.url) as client:
                client.replicaof("NO", "ONE")
            reports = system.reports(1_000)
            system.produce(reports.messages(8))
            system.wait_for_tally(reports.tally(), worker)
        assert "Traceback" not in worker.log.read_text()


def test_a_cluster_of_redis_that_lacks_a_master_is_told_until_it_is_whole(
    kafka: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    with started(lambda: RedisCluster(tmp_path / "cluster", secured=True)) as cluster:
        system = System(kafka, cluster.url, topic_prefix, tmp_path, redis_ca=cluster.ca_file)
        system.create_topics()
        first, second = system.reports(1_000), system.reports(1_000, seed=2)
        with system.worker() as worker:
            system.produce(first.messages(8))
            system.wait_for_tally(first.tally(), worker)
            lost = cluster.nodes[1]
            # In order, so that it is not of the disk whether the worker must read anything again.
            lost.terminate()
            tells.begin()
            system.produce(second.messages(8))
            tells.log("A cluster of Redis lacks a master", worker, "start the nodes that are down")
            until(lambda: not _whole(cluster), 60, "the others to notice")
            told = run_thaw(system.settings, "estimates", "--json")
            assert told.returncode == 75
            [line] = [line for line in told.stderr.splitlines() if "is not complete" in line]
            assert "start the nodes that are down" in line
            lost.start()
            until(cluster.is_whole, 60, "every slot to be served")
            system.wait_for_tally(first.tally() + second.tally(), worker)
        assert run_thaw(system.settings, "estimates", "--json").returncode == 0
        assert "Traceback" not in worker.log.read_text()


def _whole(cluster: RedisCluster) -> bool:
    return "ok" in str(cluster.nodes[0].ask("CLUSTER", "INFO")).partition("cluster_slots")[0]
