"""Memory that a large log needs: arguments and replies of Redis, and peaks beside what is settled.

One log of many users climbs a ladder, is rewritten on the way, and is loaded again by a second worker: all in a process
of its own, so that its peak can be told. `python -m tests.bench.memory URL` is that process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import redis

from producers.wire import frames as wire
from streams.local.redis import Redis
from streams.local.supervisor import Supervisor
from streams.store.contract import NO_STAMP
from streams.store.redis import RedisStore
from streams.store.shape import Shape
from streams.worker.applier import Applier
from streams.worker.fold import warm_up
from tests.bench.fold import batches, refuse
from tests.bench.goals import Measured, Result
from tests.bench.processes import peak_mib
from tests.chaos.soak import rss_mib
from tests.support.reports import NOW_MS, TOPIC, WINDOW, AnyAnswer, SurveyDict, survey_of

USERS: Final = 1_600_000
RUNGS: Final = 4
SURVEY: Final = survey_of(AnyAnswer("index", 100, rungs=RUNGS), name="bench-memory", shards=1)
MOST_MB, MOST_TIMES = 1.0, 1.3
PER_MESSAGE: Final = 1_000
_LOOK_EVERY: Final = 8


def results() -> Iterator[Measured]:
    """Run the worker's part in a process of its own beside a fresh Redis."""
    with Supervisor() as supervisor:
        server = supervisor.add(Redis(folder=supervisor.folder / "redis"))
        command = [sys.executable, "-m", "tests.bench.memory", server.url]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr[-3000:])
        found = json.loads(done.stdout)
    print(found, file=sys.stderr)
    yield Result("memory-argument", found["argument"] / 1e6, "MB", most=MOST_MB)
    yield Result("memory-reply", found["reply"] / 1e6, "MB", most=MOST_MB)
    yield Result("memory-redis-peak", found["redis_peak"] / found["redis_settled"], "times settled", most=MOST_TIMES)
    yield Result("memory-worker-peak", found["worker_peak"] / found["worker_settled"], "times settled", most=MOST_TIMES)
    yield Result("memory-redis-user", found["redis_settled"] / USERS, "bytes a user after all rungs")
    yield Result("memory-worker-user", found["table"] / USERS, "bytes a user")


class Watched:
    """Sizes of what goes to Redis and comes from it, taken where the client packs and parses."""

    def __init__(self) -> None:
        self.argument = self.reply = 0

    def watch(self, store: RedisStore) -> None:
        """Look at all commands of a store from now on."""
        client: Any = store._client
        kind = client.connection_pool.connection_class
        watched = self

        class Watching(kind):  # type: ignore[misc, valid-type]
            def pack_commands(self, commands: Any) -> Any:
                some = list(commands)
                for words in some:
                    watched.argument = max([watched.argument, *map(_size, words)])
                return super().pack_commands(some)

            def pack_command(self, *words: Any) -> Any:
                watched.argument = max([watched.argument, *map(_size, words)])
                return super().pack_command(*words)

            def read_response(self, *some: Any, **options: Any) -> Any:
                reply = super().read_response(*some, **options)
                watched.reply = max(watched.reply, _size(reply))
                return reply

        client.connection_pool.disconnect()
        client.connection_pool.connection_class = Watching


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return len(value) if isinstance(value, bytes | str) else 8


def _messages(rung: int) -> list[bytes]:
    tokens = np.random.default_rng(1).integers(0, 256, size=(USERS, 16), dtype=np.uint8)
    answers = np.random.default_rng([1, rung]).integers(0, 100, size=(USERS, 1), dtype=np.uint8)
    found = []
    for start in range(0, USERS, PER_MESSAGE):
        some = slice(start, start + PER_MESSAGE)
        count = len(answers[some])
        columns = wire.Reports(tokens[some], answers[some], np.full(count, rung, np.uint8), None)
        found.append(wire.encode(SURVEY.digest, WINDOW, NOW_MS, 0, columns, SURVEY.layout))
    return found


def _worker(store: RedisStore, committed: int) -> Applier:
    applier = Applier(store, SurveyDict(SURVEY), refuse, partitions=1, clock=lambda: NOW_MS)
    applier.assigned(TOPIC, {0: committed})
    return applier


def main(url: str) -> None:
    """Count, load again, and print sizes as JSON."""
    warm_up()
    watched = Watched()
    store = RedisStore.connect(url, prefix="memory:")
    watched.watch(store)
    applier, offset = _worker(store, 0), 0
    peak = 0
    with redis.Redis.from_url(url) as client:
        for rung in range(RUNGS):
            for number, batch in enumerate(batches({0: _messages(rung)}, start=offset)):
                applier.process(batch)
                if number % _LOOK_EVERY == 0:
                    peak = max(peak, int(client.info("memory")["used_memory_peak"]))
            offset += USERS // PER_MESSAGE
        table = applier.cached_bytes
        # Another worker takes the log over: it loads all of it.
        another = _worker(store, offset)
        del applier
        another.process(batches({0: _messages(0)[:1]}, start=offset)[0])
        assert another.cached_bytes == table
        settled = rss_mib(os.getpid())
        # As for the hash of the winners.
        stamps = [NO_STAMP] * SURVEY.shards
        [counts] = store.estimates.counts(SURVEY.id, WINDOW, Shape.of(SURVEY), topic=TOPIC, partitions=1, known=stamps)
        assert len(counts.entries or b"") >= USERS * Shape.of(SURVEY).entry_bytes
        memory = client.info("memory")
    sizes = {
        "argument": watched.argument,
        "reply": watched.reply,
        "redis_peak": max(peak, int(memory["used_memory_peak"])),
        "redis_settled": int(memory["used_memory"]),
        "worker_peak": peak_mib(os.getpid()),
        "worker_settled": settled,
        "table": table,
    }
    print(json.dumps(sizes))


def _main(arguments: Sequence[str]) -> int:
    main(*arguments)
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
