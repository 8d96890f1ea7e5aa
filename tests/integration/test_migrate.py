"""A live pipeline moves to a topic with more partitions: nothing is lost, doubled, or stopped."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from streams.connections import librdkafka_options
from streams.kafka.topics import Topics
from streams.settings import Settings
from streams.store.redis_sources import NEVER_MS, Source
from streams.windows.record import decode_estimate
from tests.integration.workers import Reports, System, run_thaw
from tests.support.deadline import until

pytestmark = pytest.mark.real

OLD, NEW = 8, 16
NAME = f"thaw.reports.v1.p{NEW}"


class Load:
    """Sends reports in small frames, without end, to the topic that is current."""

    def __init__(self, system: System) -> None:
        self._system = system
        self.settings, self.partitions = system.settings, OLD
        self.sent: list[Reports] = []
        self._stop = threading.Event()
        self._producer = Producer(librdkafka_options(system.settings))
        self._lock = threading.Lock()

    @contextmanager
    def running(self) -> Iterator[Load]:
        with ThreadPoolExecutor(1) as pool:
            load = pool.submit(self._run)
            try:
                yield self
            finally:
                self._stop.set()
                load.result()  # what failed in its thread fails the test

    def switch(self, settings: Settings) -> None:
        """Send to another topic from now on, and some of what was sent before once more."""
        with self._lock:
            self.settings, self.partitions = settings, settings.partitions
            for reports in self.sent[-3:]:
                self._send(reports)

    def end(self) -> None:
        self._stop.set()

    def _run(self) -> None:
        for seed in itertools.count(1):
            reports = self._system.reports(2_000, seed=seed)
            with self._lock:
                self._send(reports)
                self.sent.append(reports)
            if self._stop.wait(0.1):
                return

    def _send(self, reports: Reports) -> None:
        for partition, values in reports.messages(self.partitions, limit_bytes=1_024).items():
            for value in values:
                self._producer.produce(self.settings.reports_topic, value, partition=partition)
        assert self._producer.flush(60) == 0


def test_a_pipeline_moves_to_more_partitions_under_load(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Long because it is one story: each step begins in the state that the one before left."""
    system = System(kafka, redis_url, topic_prefix, tmp_path)
    system.create_topics()
    old, store = system.settings, system.store
    both = replace(old, reports=NAME, partitions=NEW, draining="thaw.reports.v1")
    told = {"THAW_REPORTS": NAME, "THAW_PARTITIONS": str(NEW)}
    draining = told | {"THAW_DRAINING": "thaw.reports.v1"}
    load = Load(system)

    def more_counted() -> None:
        users = system.tally().total_users
        until(lambda: system.tally().total_users > users, 60, "counting to go on")

    with ExitStack() as stack:
        workers = {name: stack.enter_context(system.worker(instance=name)) for name in ("one", "two")}

        def restart(name: str, env: dict[str, str]) -> None:
            workers[name].terminate(60)
            more_counted()
            values: dict[str, Any] = {key.removeprefix("THAW_").lower(): value for key, value in env.items()}
            workers[name] = stack.enter_context(system.worker(instance=name, **values))
            until(lambda: "assigned" in workers[name].log.read_text(), 60, f"partitions for {name}")
            more_counted()

        stack.enter_context(load.running())
        until(lambda: system.tally().total_users > 0, 60, "the first reports counted")
        dry = run_thaw(old, "topics", "migrate", "--to", str(NEW), "--dry-run")
        assert (dry.returncode, both.reports_topic in Topics(old).partitions()) == (0, False), dry.stderr
        begun = run_thaw(old, "topics", "migrate", "--to", str(NEW))
        assert begun.returncode == 0, begun.stderr
        assert f"{both.reports_topic}: created, {NEW} partitions" in begun.stdout
        assert f"THAW_REPORTS={NAME} THAW_PARTITIONS={NEW} THAW_DRAINING=thaw.reports.v1" in begun.stdout
        assert Topics(old).partitions()[both.reports_topic] == NEW
        for name in workers:
            restart(name, draining)
        waiting = run_thaw(old, "topics", "migrate", **draining)
        assert waiting.returncode == 75, waiting.stderr
        assert "something still sends to it" in waiting.stdout
        load.switch(both)
        more_counted()
        until(
            lambda: run_thaw(old, "topics", "migrate", "--quiet", "1s", **draining).returncode == 0,
            60,
            "the old topic to be drained",
        )
        early = run_thaw(old, "topics", "migrate", "--finish", "--quiet", "1s", **draining)
        assert early.returncode == 1
        assert "one, two still read it: restart them without THAW_DRAINING" in early.stderr
        assert _since(system, both.reports_topic) == NEVER_MS, "no estimate can say what it contains"
        for name in workers:
            restart(name, told)

        def forgotten() -> dict[str, Any] | None:
            told = run_thaw(old, "topics", "migrate", "--quiet", "1s", "--json", **draining)
            # Nothing is printed while a group has no coordinator.
            found: dict[str, Any] = json.loads(told.stdout) if told.stdout else {"readers": told.stderr}
            return None if found["readers"] else found

        left = until(forgotten, 60, "the group to forget the members that read both topics")
        assert (left["drained"], left["waiting"]) == (True, 0)
        done = run_thaw(old, "topics", "migrate", "--finish", "--quiet", "1s", **draining)
        assert (done.returncode, done.stdout) == (0, f"{old.reports_topic}: deleted\n"), done.stderr
        more_counted()
        load.end()
        until(lambda: old.reports_topic not in Topics(old).partitions(), 60, "the old topic to be gone")
        assert 0 < _since(system, both.reports_topic) < NEVER_MS
        expected = system.reports(0).tally()
        for reports in load.sent:
            expected += reports.tally()
        system.wait_for_tally(expected, workers["one"])
        until(lambda: not store.queue.entries(), 60, "estimates of everything")
        payload = store.estimates.read(system.survey.id, system.window_ms)
        assert payload is not None
        record = decode_estimate(payload)
        assert (record.users, record.proof) == (expected.total_users, None), "its reports came from two topics"
    assert run_thaw(old, "topics", "migrate", **draining).returncode == 1, "nothing is left to drain"
    assert run_thaw(both, "topics", "create", **told).returncode == 0, "the topics are those of the new settings"


def _since(system: System, topic: str) -> int:
    sources = system.store.sources
    noted = sources.noted(topic)
    assert isinstance(noted, Source)
    since_ms = sources.counted_since(topic, noted, system.store.now_ms())
    assert since_ms is not None
    return since_ms
