"""Asks the brokers every other second whether they answer, for the worker's metrics and heartbeat.

A consumer does not tell a broker that hangs from a topic without news, and a producer notices only when it sends.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from confluent_kafka import Consumer
from prometheus_client import Gauge

from streams.failures import OutsideError
from streams.kafka.errors import Troubles
from streams.logs import StateLog
from streams.settings import Settings

logger = logging.getLogger(__name__)

ASK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 3.0
"""Longer than this is down. Shorter: a broker that elects a leader looks down; longer: operators learn of it later."""


def watch_kafka(settings: Settings, up: Gauge, stop: threading.Event) -> None:
    """Set the gauge to 1 while the brokers answer and to 0 while they do not, until `stop` is set.

    A consumer asks for one topic, which it never creates. DescribeCluster of an admin client would be shorter, but
    aborts the whole process in librdkafka 2.16 when a broker that hung answers again.
    """
    troubles = Troubles(settings)
    client = troubles.client(Consumer, **{"group.id": f"{settings.prefix}thaw-readers"})
    state = StateLog(logger, "Kafka")

    def ask(seconds: float) -> object:
        return client.list_topics(settings.reports_topic, timeout=seconds)

    while not stop.is_set():
        try:
            troubles.asked(client, ask, ANSWER_SECONDS)
        except OutsideError as error:
            up.set(0)
            state.down(error)
        else:
            up.set(1)
            state.up()
        stop.wait(ASK_SECONDS)
    client.close()
