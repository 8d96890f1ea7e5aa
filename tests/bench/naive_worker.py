"""python -m tests.bench.naive_worker KAFKA REDIS_URL TOPIC FOLDER: what the pipeline is compared to.

A plain Faust agent: one JSON report a message, one HINCRBY a report. It counts duplicates twice, cannot take an earlier
answer back, and loses what fails; it does much less than a worker of ours.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import faust
import redis.asyncio


def main(kafka: str, redis_url: str, topic: str, folder: str) -> None:
    """Count until told to stop."""
    store = redis.asyncio.Redis.from_url(redis_url)
    app = faust.App(
        Path(folder).name,
        broker=f"kafka://{kafka}",
        consumer_auto_offset_reset="earliest",
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        autodiscover=False,
        datadir=folder,
    )

    async def count(reports: Any) -> None:
        async for report in reports:
            await store.hincrby(f"{topic}:{report['window_ms']}:{report['rung']}", report["answer"], 1)

    app.agent(app.topic(topic, value_serializer="json"), name="count")(count)
    faust.Worker(app, quiet=True, loglevel="warning").execute_from_commandline()


if __name__ == "__main__":
    main(*sys.argv[1:])
