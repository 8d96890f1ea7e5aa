"""The messages of fetch batches in one buffer, for the compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np

from streams.kafka.messages import FetchBatch, RecordRun, RunRecords
from streams.worker.record_walk import gather
from streams.worker.words import Ints, Words


@dataclass(frozen=True)
class Joined:
    """All messages of a batch in one buffer, each starting at a multiple of 8, and what is known of each."""

    words: Words
    starts: Ints
    lengths: Ints
    timestamps_ms: Ints
    partitions: Ints

    @classmethod
    def of(cls, batches: Sequence[FetchBatch]) -> Joined:
        """Join the messages of batches with at least one record each."""
        runs = [run for batch in batches for run in _runs(batch)]
        lengths = np.maximum(np.concatenate([run.lengths for run in runs]), 0)
        room = lengths + -lengths % 8
        starts = np.cumsum(room) - room
        words: Words = np.zeros(int(room.sum()) // 8, dtype=np.uint64)
        out, at = words.view(np.uint8), 0
        for run in runs:
            end = at + len(run)
            gather(np.frombuffer(run.raw, dtype=np.uint8), run.starts, lengths[at:end], out, starts[at:end])
            at = end
        # Read from Kafka or translated, they have one type: the loops are compiled for one.
        words.setflags(write=False)
        return cls(
            words=words,
            starts=starts,
            lengths=lengths,
            timestamps_ms=np.concatenate([run.timestamps_ms for run in runs]),
            partitions=np.repeat([batch.partition for batch in batches], [len(batch.records) for batch in batches]),
        )

    @property
    def values(self) -> Sequence[bytes]:
        """The messages."""
        return _Values(self.words, self.starts, self.lengths)


class _Values(Sequence[bytes]):
    """Messages in a joined buffer, each taken out when it is asked for."""

    def __init__(self, words: Words, starts: Ints, lengths: Ints) -> None:
        self._bytes, self._starts, self._lengths = words.view(np.uint8), starts, lengths

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, place: int) -> bytes: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[bytes]: ...

    def __getitem__(self, place: int | slice) -> bytes | Sequence[bytes]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        start = int(self._starts[place])
        return self._bytes[start : start + int(self._lengths[place])].tobytes()


def _runs(batch: FetchBatch) -> Sequence[RecordRun]:
    return batch.records.runs if isinstance(batch.records, RunRecords) else [RecordRun.of(batch.records)]
