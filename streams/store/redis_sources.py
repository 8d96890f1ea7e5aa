"""Which Kafka cluster and topic the stored offsets belong to, and which ones the counts came from, in Redis.

Offsets of another cluster, or of a topic that was deleted and made again, mean other records. Counts of two clusters
under one prefix would be added together. What a topic that was made again does not hold may still have been counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from streams.store.redis_connection import RedisConnection, Script
from streams.store.shape import KEEP_MS

NEVER_MS: Final = 1 << 52
"""Later than any time: reports of another topic are still counted."""
_CLAIM: Final = Script("claim_source")
_NOTE: Final = Script("note_source")


class Source(NamedTuple):
    """A Kafka cluster and a topic in it, by the ids that the cluster gave them; empty where it gives none."""

    cluster_id: str
    topic_id: str

    def agrees(self, other: Source) -> bool:
        """Tell whether both may be the same topic of the same cluster; an id that is not known agrees with any."""
        return self.cluster_id == other.cluster_id and (
            self.topic_id == other.topic_id or not self.topic_id or not other.topic_id
        )

    def encode(self) -> str:
        """Return it as it is stored."""
        return f"{self.cluster_id} {self.topic_id}"

    @classmethod
    def decode(cls, raw: bytes) -> Source:
        """Read what `encode` returned."""
        cluster_id, _, topic_id = raw.decode("utf-8", "replace").partition(" ")
        return cls(cluster_id, topic_id)


class RedisSources:
    """Notes the source of each topic's offsets."""

    def __init__(self, connection: RedisConnection) -> None:
        self._connection, self._client = connection, connection.client

    def key(self, topic: str) -> str:
        """Return the key of a topic's note, for messages to an operator."""
        return f"{self._connection.base}source:{topic}"

    def _all_key(self, topic: str) -> str:
        return f"{self._connection.base}sources:{topic}"

    def claim(self, topic: str, source: Source) -> Source:
        """Note a source unless another one is noted; return what is noted now."""
        noted = Source.decode(self._connection.run([(_CLAIM, (self.key(topic),), (source.encode(), KEEP_MS))])[0])
        if noted == source:
            self._note(topic, source)
        return noted

    def _note(self, topic: str, source: Source) -> None:
        self._connection.run([(_NOTE, (self._all_key(topic),), (source.encode(), KEEP_MS))])

    def noted(self, topic: str) -> Source | None:
        """Return which source the offsets of a topic belong to; None if none is noted."""
        with self._connection.calling():
            raw = self._client.get(self.key(topic))
        return None if raw is None else Source.decode(raw)

    def counted_since(self, topic: str, source: Source, now_ms: int) -> int | None:
        """Return since when reports of this source are counted (ms, by Redis' clock); None if no others ever were.

        Earlier ones may have been counted from a topic that no longer exists. A source that no worker has noted is
        counted from `now_ms` on.
        """
        noted = self.noted(topic)
        with self._connection.calling():
            found = self._client.zrange(self._all_key(topic), 0, -1, withscores=True)
        sources = [(Source.decode(raw), int(score)) for raw, score in found]
        others = [one for one in (noted, *(one for one, _ in sources)) if one is not None and not one.agrees(source)]
        if not others:
            return None
        return min([since_ms for one, since_ms in sources if one.agrees(source)], default=now_ms)

    def share(self, topic: str, source: Source, other: Source) -> None:
        """Note that reports of another topic are counted beside those of this one, until `settle` is called."""
        self._put(topic, {other.encode(): 0, source.encode(): NEVER_MS})

    def settle(self, topic: str, source: Source, now_ms: int) -> None:
        """Note that from now on reports of this topic alone are counted."""
        self._put(topic, {source.encode(): now_ms})

    def _put(self, topic: str, since_ms: Mapping[str, int]) -> None:
        key = self._all_key(topic)
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            pipe.zadd(key, dict(since_ms))
            pipe.pexpire(key, KEEP_MS)
            pipe.execute()

    def start_over(self, topic: str, source: Source, *, partitions: int, shards: int) -> None:
        """Forget the offsets of a topic that was made again, and note its new source."""
        self._note(topic, source)
        with self._connection.calling(), self._client.pipeline(transaction=False) as pipe:
            for partition in range(partitions):
                for shard in range(shards):
                    pipe.delete(self._connection.offset_key(topic, partition, shard))
            pipe.set(self.key(topic), source.encode(), px=KEEP_MS)
            pipe.execute()
