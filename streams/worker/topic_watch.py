"""Watches the topic of reports beside the reading of it, and says what reading alone would not tell, or too late.

Retention that deleted unread records, partitions that were added, a topic that was deleted and made again, another
cluster behind the same Redis keys, timestamps that are not the broker's: each is logged and exported within seconds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Literal, get_args

from streams.kafka.topic_state import TopicState, TopicWatch
from streams.kafka.topics import TopicError
from streams.store.contract import StoreUnavailableError
from streams.store.redis_sources import RedisSources
from streams.worker.handler import BatchHandler
from streams.worker.topic_source import source_of
from streams.worker_metrics import WorkerMetrics

logger = logging.getLogger(__name__)

WATCH_SECONDS: Final = 3.0
IDLE_LOOKS: Final = 4
"""Looks without a partition before the group is asked again. Fewer: an ordinary start asks twice."""

Fault = Literal["missing", "create_time"]
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)

Exit = Callable[[str], object]
"""Ends the process for this reason; it is safe to restart."""


class ReportsTopicWatch:
    """Compares the state of a topic with what the worker has read, every few seconds, from a thread.

    Args:
        topic: the topic of reports, or the one that is being drained.
        partitions: how many it had when the worker began to read it.
        watch: asks the brokers.
        sources: which topic the stored offsets belong to.
        handler: what counts its reports.
        metrics: where faults are counted.
        exit_process: ends the process.
        rejoin: asks the group for partitions again.
        draining: whether the topic may go away.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        watch: TopicWatch,
        sources: RedisSources,
        handler: BatchHandler,
        metrics: WorkerMetrics,
        exit_process: Exit,
        rejoin: Callable[[], None],
        *,
        draining: bool = False,
    ) -> None:
        self._topic, self._partitions, self._draining = topic, partitions, draining
        self._watch, self._sources = watch, sources
        self._handler, self._metrics, self._exit = handler, metrics, exit_process
        self._rejoin, self._idle_looks = rejoin, 0
        self._topic_id = ""
        self._faults: set[Fault] = set()

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        while not stop.is_set():
            try:
                state = self._watch.look()
                if state is None:
                    return
                self.compare(state)
            except (TopicError, StoreUnavailableError) as error:
                # Whoever needs them says that they are down.
                logger.debug("topic not watched: %s", error)
            stop.wait(WATCH_SECONDS)

    def compare(self, state: TopicState) -> None:
        """Act on one state."""
        topic = self._topic
        if self._draining and not state.partitions:
            self._exit(f"{topic}, which was being drained, is gone; unset THAW_DRAINING")
        self._note("missing", not state.partitions, f"{topic} is gone; create it with `thaw topics create`")
        if not state.partitions:
            return
        if state.partitions != self._partitions:
            self._exit(
                f"{topic} has {state.partitions} partitions now, THAW_PARTITIONS is {self._partitions}; set it to what "
                "the topic has on workers and tools, then `thaw deadletters replay --reason partition`; "
                "`thaw topics migrate` moves to more partitions without this"
                if not self._draining
                else f"{topic}, which is drained, has {state.partitions} partitions now and had {self._partitions}"
            )
        source = source_of(state)
        noted = self._sources.claim(topic, source)
        began = source._replace(topic_id=self._topic_id)
        if not (began.agrees(source) and noted.agrees(source)):
            self._exit(f"{topic} is not the topic that this worker began to read (it was made again)")
        self._topic_id = state.topic_id
        by_broker = self._stamped_by_broker(state)
        self._note(
            "create_time",
            not by_broker,
            f"{topic} has message.timestamp.type CreateTime: devices' clocks decide which reports are late or early; "
            "set it to LogAppendTime (`thaw topics create` names what differs)",
        )
        self._handler.topic_looked_at(replace(state, log_append_time=by_broker))
        if not self._draining:
            self._watch_assignment()

    def _stamped_by_broker(self, state: TopicState) -> bool:
        """Tell by the topic's setting, or by the records that were fetched: to read those is all a worker may do."""
        seen = self._handler.stamped_by_broker()
        told = state.log_append_time if state.log_append_time is not None else seen
        return "create_time" not in self._faults if told is None else told

    def _watch_assignment(self) -> None:
        """Ask once for partitions if there are none.

        A worker that was gone for a moment gets back what the group had given it, without a new assignment. If that was
        made while the topic was missing, it is nothing.
        """
        self._idle_looks = 0 if self._handler.assigned else self._idle_looks + 1
        if self._idle_looks == IDLE_LOOKS:
            logger.info("no partition of %s is assigned; asking the group again", self._topic)
            self._rejoin()

    def _note(self, fault: Fault, present: bool, text: str) -> None:
        self._metrics.topic_fault.labels(fault).set(int(present))
        if present and fault not in self._faults:
            logger.error("%s", text)
        elif not present and fault in self._faults:
            logger.warning("%s: no longer %s", self._topic, fault)
        (self._faults.add if present else self._faults.discard)(fault)
