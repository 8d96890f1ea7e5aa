"""Whether the topic of reports is the one that the stored offsets and counts came from."""

from __future__ import annotations

import logging

from streams.kafka.topic_state import TopicState
from streams.settings import Settings
from streams.store.redis import RedisStore
from streams.store.redis_sources import RedisSources, Source

logger = logging.getLogger(__name__)


class OtherClusterError(RuntimeError):
    """The stored offsets and counts belong to another cluster; the message says what to do."""


def source_of(state: TopicState) -> Source:
    """Return the source that a state of the topic describes."""
    return Source(state.cluster_id, state.topic_id)


def take_source(sources: RedisSources, settings: Settings, topic: str, state: TopicState, *, shards: int) -> None:
    """Check that the stored offsets are those of a topic of reports; start over if it was deleted and made again.

    Raises:
        OtherClusterError: they are those of another cluster.
        StoreUnavailableError: the store does not answer.
    """
    source = source_of(state)
    noted = sources.claim(topic, source)
    if noted.agrees(source):
        return
    _check_cluster(sources, settings, topic, noted, source, "both would be added together")
    logger.warning(
        "%s was deleted and made again; its stored offsets are forgotten, and it is read from its start", topic
    )
    sources.start_over(topic, source, partitions=max(settings.partitions, state.partitions), shards=shards)


def counted_since(store: RedisStore, settings: Settings, state: TopicState | None) -> int | None:
    """Return since when reports of this topic are counted (ms); None if all counts came from it, as far as is known.

    Raises:
        OtherClusterError: the counts are those of another cluster.
        StoreUnavailableError: the store does not answer.
    """
    if state is None:
        return None
    topic, source = settings.reports_topic, source_of(state)
    noted = store.sources.noted(topic)
    if noted is not None:
        _check_cluster(store.sources, settings, topic, noted, source, "counting again from there would remove them all")
    return store.sources.counted_since(topic, source, store.now_ms())


def _check_cluster(
    sources: RedisSources, settings: Settings, topic: str, noted: Source, source: Source, danger: str
) -> None:
    if noted.cluster_id != source.cluster_id:
        raise OtherClusterError(
            f"Redis has counts and offsets of Kafka cluster {noted.cluster_id} under THAW_PREFIX "
            f"{settings.prefix!r}, and THAW_KAFKA is cluster {source.cluster_id}; {danger}: "
            f"set another THAW_PREFIX, or, if that cluster is gone for good, delete the key "
            f"{sources.key(topic)}"
        )
