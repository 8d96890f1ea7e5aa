"""python -m tests.bench.engines.quixstreams_count KAFKA TOPIC MESSAGES FOLDER: the counting job with quixstreams.

Messages have the shard as key; the state of a key holds the answer of each token.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application

from tests.bench.engines.job import Counted, reports_of


def main(kafka: str, topic: str, messages: str, folder: str) -> None:
    """Count so many messages."""
    counted = Counted()
    app = Application(
        broker_address=kafka,
        consumer_group=topic,
        auto_offset_reset="earliest",
        state_dir=folder,
        loglevel="WARNING",
    )

    def count(message: bytes, state: Any) -> None:
        counted.begin()
        for token, rung, answer in reports_of(message):
            name = token.hex()
            held = state.get(name)
            old = None if held is None else (held[0], held[1])
            new = rung, answer
            counted.replace(old, new)
            if old is None or new > old:
                state.set(name, new)

    frames = app.dataframe(app.topic(topic, key_deserializer="bytes", value_deserializer="bytes"))
    frames.update(count, stateful=True)
    app.run(count=int(messages))
    counted.print()


if __name__ == "__main__":
    main(*sys.argv[1:])
