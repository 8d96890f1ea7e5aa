"""Producers of other makes: every codec, and transactions that are committed or aborted."""

from __future__ import annotations

import logging
import random
from typing import Final

import numpy as np
from confluent_kafka import KafkaException, Producer

from producers.clock import system_clock
from producers.survey.survey import Survey
from producers.wire.transport import frames_of
from streams.connections import librdkafka_options
from streams.settings import Settings

logger = logging.getLogger(__name__)

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
TRANSACTION: Final = 0.4
"""Chance that a producer uses a transaction."""
ABORTED: Final = 0.5
"""Chance that a transaction is aborted: none of its reports may count."""
_REPORTS: Final = 200
_SECONDS: Final = 10.0


def send_some(settings: Settings, survey: Survey, rng: random.Random) -> str:
    """Send reports of new devices with a codec, now and then in a transaction; return what was done.

    A broker that is away at the wrong moment leaves a transaction open, which the broker aborts after ten seconds.
    """
    codec = rng.choice(CODECS)
    options = librdkafka_options(settings) | {"compression.type": codec, "message.timeout.ms": 10_000}
    transaction = rng.random() < TRANSACTION
    if transaction:
        options |= {"transactional.id": f"chaos-{rng.randbytes(4).hex()}", "transaction.timeout.ms": 10_000}
    producer = Producer(options)
    aborted = transaction and rng.random() < ABORTED
    try:
        if transaction:
            producer.init_transactions(_SECONDS)
            producer.begin_transaction()
        for partition, values in _messages(settings, survey, rng).items():
            for value in values:
                producer.produce(settings.reports_topic, value, partition=partition)
        if aborted:
            producer.flush(_SECONDS)
            producer.abort_transaction(_SECONDS)
        elif transaction:
            producer.commit_transaction(_SECONDS)
        else:
            producer.flush(_SECONDS)
    except KafkaException as error:
        return f"{codec}, {error}"
    return codec + (", aborted" if aborted else ", committed" if transaction else "")


def _messages(settings: Settings, survey: Survey, rng: random.Random) -> dict[int, list[bytes]]:
    draw = np.random.default_rng(rng.randrange(2**32))
    now_ms = system_clock()
    return frames_of(
        survey,
        survey.windows.latest(now_ms),
        now_ms,
        draw.integers(0, 256, size=(_REPORTS, 16), dtype=np.uint8),
        draw.integers(0, len(survey.mechanism.labels), size=_REPORTS).astype(np.uint8),
        np.zeros(_REPORTS, dtype=np.uint8),
        partitions=settings.partitions,
    )
