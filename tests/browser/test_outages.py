"""What the page says of real outages: a worker that is killed, one that cannot count, a Kafka that hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis as redis_client

from streams.local.kafka import ApacheKafka
from streams.local.redis import Redis
from streams.store.redis_rights import redis_rights
from tests.browser.pipeline import Pipeline, chromium
from tests.browser.site import PATIENCE_MS, PATIENCE_SECONDS, Watched, explained, health_tiles, wait_for_live
from tests.support.deadline import until
from tests.support.processes import hung
from tests.support.services import fresh_name, running
from tests.support.telling import Tells

SURVEY = Path(__file__).parent / "surveys" / "browser.toml"
ROW = "Kafka away, one of several workers dead, or estimates behind, seen on the page"
BEHIND_SECONDS = 15
"""From this lag on the tile is red, for a survey with short windows."""


def allow(client: Any, *keys: str) -> None:
    """Give the user of the second worker the documented rights, for these keys only."""
    right = redis_rights("")["thaw worker, thaw rebuild, thaw topics migrate"]
    rule = ["resetkeys", *keys, "resetchannels", "-@all", *right.commands]
    client.execute_command("ACL", "SETUSER", "second", "on", ">secret", *rule)


def test_a_dead_worker_one_that_cannot_count_and_a_hung_kafka_are_shown_and_pass(
    other_kafka: ApacheKafka, tmp_path: Path, tells: Tells
) -> None:
    """The second worker lives and may not write counts any more, as if its part of a cluster were away."""
    prefix = fresh_name() + "."
    with chromium() as browser, running(Redis) as redis, redis_client.Redis.from_url(redis.url) as client:
        allow(client, f"~{prefix}*")
        pipeline = Pipeline(other_kafka.address, redis.url, prefix, tmp_path, [SURVEY])
        try:
            first = pipeline.worker("first")
            # It waits for the whole test: nobody would start it again.
            redis_of_second = f"redis://second:secret@{redis.address}/0"
            second = pipeline.worker("second", THAW_REDIS=redis_of_second, THAW_PATIENCE_SECONDS="3600")
            _, url = pipeline.exporter()
            pipeline.fleet("--devices", "2000", "--seed", "3", "--no-truth")
            page = browser.new_context(locale="en-US").new_page()
            page.set_default_timeout(PATIENCE_MS)
            watched = Watched(page, url)
            page.goto(url)
            wait_for_live(page)

            def tile(name: str, state: str, *words: str) -> bool:
                found = health_tiles(page)[name]
                return found[0] == state and all(word in " ".join(found[1:]) for word in words)

            both = (first, second)
            until(
                lambda: all("assigned" in one.log.read_text() for one in both), PATIENCE_SECONDS, "both to have reports"
            )
            with explained(page):
                until(lambda: tile("workers", "ok", "2 workers"), PATIENCE_SECONDS, "two workers", poll_seconds=0.2)
                page.wait_for_selector('.survey-card[data-freshness="fresh"]')
                allow(client, f"~{prefix}thaw:v1:{{workers}}:*", f"%R~{prefix}*")
                first.kill()
                tells.begin()
                tells.seen(ROW, "tile of workers", lambda: tile("workers", "warn", "1 of 2", "first"), poll_seconds=0.2)
                until(lambda: tile("lag", "bad", "behind"), PATIENCE_SECONDS, "a red tile of lag", poll_seconds=0.2)
                assert "Estimates are " in page.inner_text("#banner")
                with hung(other_kafka.child):
                    tells.begin()
                    tells.seen(ROW, "tile of workers", lambda: tile("workers", "bad", "Kafka"), poll_seconds=0.2)
                    assert "Kafka does not answer second" in page.inner_text("#banner")
                allow(client, f"~{prefix}*")
                pipeline.worker("first")
                until(lambda: tile("workers", "ok", "2 workers"), PATIENCE_SECONDS, "both again", poll_seconds=0.2)
                wait_for_live(page)
                watched.assert_quiet()
        finally:
            pipeline.stop()
