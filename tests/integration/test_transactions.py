"""Records behind a transaction that nobody ends: told, not lost, and counted when someone does as the runbook says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streams.local.process import free_ports
from tests.chaos.transactions import Place, places, read_all
from tests.integration.test_poison import metric, parts
from tests.integration.workers import System
from tests.support.deadline import until
from tests.support.hanging import leave_hanging, transactions_tool
from tests.support.telling import Tells

pytestmark = pytest.mark.real


def test_what_waits_behind_a_hanging_transaction_is_told_and_counted_when_it_is_aborted(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path, tells: Tells
) -> None:
    system = System(kafka, redis_url, topic_prefix, tmp_path)
    system.create_topics()
    before, never, behind = parts(system.reports(3_000), 3)
    topic = system.settings.reports_topic
    [port] = free_ports(1)
    with system.worker(port=port) as worker:
        system.produce(before.messages(8))
        system.wait_for_tally(before.tally(), worker)
        offset = leave_hanging(kafka, f"{topic}-other", topic, 3, never.messages(8)[3])
        tells.begin()
        system.produce(behind.messages(8))
        tells.log("A transaction that stays open", worker, "records wait behind a transaction")
        assert f"--topic {topic} --partition 3`, which shows the offset {offset};" in worker.log.read_text()
        until(lambda: metric(port, "thaw_worker_lag_records") == 0, 30, "all that can be read")
        assert metric(port, "thaw_worker_transaction_open_seconds") > 5
        waiting = len(never.messages(8)[3]) + len(behind.messages(8)[3])
        until(lambda: metric(port, "thaw_worker_uncommitted_records") == waiting, 30, "all that waits as a metric")

        def heard() -> bool:
            [beat] = system.store.heartbeats.read()
            return beat.uncommitted_records == waiting

        until(heard, 30, "all that waits in the heartbeat")
        # What chaos sees of it: one partition that cannot be read to its end, and messages that nobody lost.
        found = places(system.settings)
        assert found[3] == Place(offset, offset + waiting)
        assert all(place.stable == place.end for partition, place in found.items() if partition != 3)
        committed, held = read_all(system.settings)
        assert (len(held), len(committed)) == (waiting, sum(place.stable for place in found.values()))
        # The remedy.
        hanging = transactions_tool(kafka, "find-hanging", "--topic", topic, "--max-transaction-timeout", "0")
        assert re.search(rf"^{topic}\s+3\s.*\s{offset}\s", hanging, re.MULTILINE), hanging
        transactions_tool(kafka, "abort", "--topic", topic, "--partition", "3", "--start-offset", str(offset))
        system.wait_for_tally(before.tally() + behind.tally(), worker)
        until(
            lambda: "no record waits behind a transaction any more" in worker.log.read_text(), 30, "its end to be told"
        )
        assert metric(port, "thaw_worker_uncommitted_records") == 0
