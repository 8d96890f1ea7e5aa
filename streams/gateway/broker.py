"""The gateway's way to Kafka: messages out, acknowledgements back into the event loop, the broker's clock beside them.

librdkafka works in threads of its own; one more thread serves its callbacks.
"""

from __future__ import annotations

import asyncio
import logging
import math
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Producer
from confluent_kafka import Message as Delivered

from producers.clock import Clock, system_clock
from producers.wire.layout import MAX_MESSAGE_BYTES, SCHEMA_HEADER
from producers.wire.transport import Message
from streams.kafka.errors import DENIED, Troubles
from streams.kafka.watch import ANSWER_SECONDS, ASK_SECONDS
from streams.logs import FailureLog, StateLog
from streams.settings import Settings

logger = logging.getLogger(__name__)

ACKNOWLEDGE_MS: Final = 10_000
"""How long a broker may take. Longer: clients wait and memory stays taken; shorter: an election of a leader fails
requests that would have been confirmed."""
OFFSET_MS: Final = 60_000
"""How long a comparison with the broker's clock holds. Longer: a wrong one is used longer; shorter: a gateway with few
requests judges by its own clock."""
_POLL_SECONDS: Final = 0.1
_NO_CONTACT: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT})
"""Behind these librdkafka hides wrong passwords, certificates that are not trusted, and brokers that are away."""


class NotAcknowledgedError(RuntimeError):
    """No broker acknowledged in time. Whether it has the messages is unknown; the client sends them again."""


class Broker:
    """Sends messages to the partitions of the reports topic. Use it from one event loop, between `start` and `stop`."""

    def __init__(self, settings: Settings, clock: Clock = system_clock) -> None:
        self._topic, self._clock = settings.reports_topic, clock
        self._troubles = Troubles(settings)
        options: dict[str, Any] = {
            # No producer id beside the records; duplicates are counted once anyway.
            "enable.idempotence": False,
            "acks": "all",
            "linger.ms": 2,
            "message.timeout.ms": ACKNOWLEDGE_MS,
            "message.max.bytes": 2 * MAX_MESSAGE_BYTES,
            "queue.buffering.max.messages": 1_000_000,
            "allow.auto.create.topics": False,
        }
        self._producer = self._troubles.client(Producer, **options)
        self.partitions: int | None = None
        """Partitions of the topic; None until a broker has said so."""
        self.up = math.nan
        """1 if a broker acknowledged or answered when it was last used, 0 if it did not, NaN before that."""
        self._offsets: deque[tuple[int, int]] = deque(maxlen=256)
        self._state = StateLog(logger, "Kafka (for reports)")
        self._failures = FailureLog(logger, "serving the acknowledgements of Kafka")
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="acknowledgements", daemon=True)
        self._watch: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve acknowledgements, and look for the topic."""
        self._thread.start()
        self._watch = asyncio.create_task(self._look())

    async def stop(self) -> None:
        """End the threads; messages on their way are given up."""
        if self._watch is not None:
            self._watch.cancel()
            await asyncio.gather(self._watch, return_exceptions=True)
        self._stopped.set()
        await asyncio.to_thread(self._thread.join)

    async def send(self, messages: Sequence[Message]) -> None:
        """Return when the brokers have all messages.

        Raises:
            NotAcknowledgedError: they have not in time, or refuse one.
        """
        if not messages:
            return
        expected = len(messages)
        loop, done = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()
        outcomes: list[KafkaError | None] = []

        def arrived(error: KafkaError | None, delivered: Delivered) -> None:
            try:
                if error is None:
                    self._compare(delivered)
            finally:
                loop.call_soon_threadsafe(note, error)

        def note(error: KafkaError | None) -> None:
            outcomes.append(error)
            if len(outcomes) == expected and not done.done():
                done.set_result(None)

        try:
            for message in messages:
                self._producer.produce(
                    self._topic,
                    value=message.value,
                    partition=message.partition,
                    headers=[SCHEMA_HEADER],
                    on_delivery=arrived,
                )
        except (BufferError, KafkaException) as error:
            raise self._failed(str(error)) from error
        del messages  # librdkafka has copies
        await done
        failed = next((error for error in outcomes if error is not None), None)
        if failed is not None:
            raise self._failed(self._explained(failed, "write"))
        self._well()

    def now_ms(self) -> int:
        """Return the broker's time: never later than it is, and the gateway's own where none is known.

        An acknowledgement arrives after the moment it tells, so that the largest difference is the closest.
        """
        own_ms = self._clock()
        return own_ms + (self.offset_ms() or 0)

    def offset_ms(self) -> int | None:
        """Return how far the broker's clock is ahead of this one, at least; None if that was not seen lately."""
        own_ms = self._clock()
        lately = [offset for seen_ms, offset in tuple(self._offsets) if abs(own_ms - seen_ms) <= OFFSET_MS]
        return max(lately, default=None)

    def _compare(self, delivered: Delivered) -> None:
        kind, stamp_ms = delivered.timestamp()
        if kind == TIMESTAMP_LOG_APPEND_TIME:
            own_ms = self._clock()
            self._offsets.append((own_ms, stamp_ms - own_ms))

    def _failed(self, why: str) -> NotAcknowledgedError:
        self.up = 0.0
        self._state.down(why)
        return NotAcknowledgedError(why)

    def _explained(self, error: KafkaError, action: str) -> str:
        """Return what is wrong as a sentence with its remedy."""
        if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return f"there is no topic {self._topic}; create it with `thaw topics create`"
        if error.code() == KafkaError._MSG_TIMED_OUT and not self._troubles.known:
            return (
                f"reports were not acknowledged in {ACKNOWLEDGE_MS // 1_000} s; check that the brokers run, and "
                f"min.insync.replicas of them for {self._topic}"
            )
        if error.code() in DENIED or error.code() in _NO_CONTACT:
            return str(self._troubles.explained(error, f"{action} the topic {self._topic}"))
        return error.str()

    def _well(self) -> None:
        self.up = 1.0
        self._troubles.forget()
        self._state.up()

    def _serve(self) -> None:
        while not self._stopped.is_set():
            try:
                self._producer.poll(_POLL_SECONDS)
            except Exception as error:
                self._failures.met(error)  # without this thread every request would wait for ever

    async def _look(self) -> None:
        while True:
            try:
                found: Any = await asyncio.to_thread(self._producer.list_topics, self._topic, timeout=ANSWER_SECONDS)
                topic = found.topics[self._topic]
                if topic.error is not None or not topic.partitions:
                    raise KafkaException(topic.error or KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
                self.partitions = len(topic.partitions)
                if self.up != 1.0:
                    self._well()
            except KafkaException as error:
                self._failed(self._explained(error.args[0], "describe"))
            await asyncio.sleep(ASK_SECONDS)
