"""Mixing: reports of many requests become new frames in which nothing tells who sent together.

Every report leaves its frame. Reports of one survey, window and rung are put in a random order and cut into frames by
shard; frames of one partition are put in a random order too. `sent` becomes the public moment at which the rung opened.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from producers.survey.survey import Survey
from producers.wire.frames import Reports, pack_messages
from producers.wire.shards import partition_of
from producers.wire.transport import Message, frames_of
from streams.gateway.judge import Taken


def mixed(taken: Iterable[Taken], partitions: int) -> list[Message]:
    """Return the reports of these frames as new messages, by partition.

    Reports of mechanisms with several copies of a device stay alone in their frames: two copies in one frame would be
    linked. Frames of a version that this release does not write stay as they are, in another order.
    """
    frames: dict[int, list[bytes]] = {}
    windows: dict[tuple[bytes, int], list[Taken]] = {}
    for frame in taken:
        if frame.header.version != frame.survey.layout.version:
            frames.setdefault(partition_of(frame.header.shard, partitions), []).append(bytes(frame.raw))
        else:
            windows.setdefault((frame.survey.digest, frame.header.window_ms), []).append(frame)
    for (_, window_ms), together in windows.items():
        survey = together[0].survey
        reports = _joined([frame.reports for frame in together])
        for chosen in _parts(survey, reports):
            rung = int(reports.rungs[chosen[0]])
            sent_ms = survey.public_ms(window_ms, rung)
            made = frames_of(
                survey.form(rung),
                window_ms,
                sent_ms,
                reports.tokens[chosen],
                reports.answers[chosen],
                reports.rungs[chosen],
                None if reports.groups is None else reports.groups[chosen],
                None if reports.keys is None else reports.keys[chosen],
                partitions=partitions,
            )
            for partition, messages in made.items():
                frames.setdefault(partition, []).extend(messages)
    return [
        Message(partition, message)
        for partition, some in sorted(frames.items())
        for message in pack_messages(_shuffled(some))
    ]


def _parts(survey: Survey, reports: Reports) -> Iterable[NDArray[np.int64]]:
    """Yield the reports that may share frames, in random order: those of one rung, or each alone."""
    order = _random_order(len(reports))
    if survey.mechanism.copies > 1:
        yield from np.split(order, len(order))
        return
    for rung in np.unique(reports.rungs):
        yield order[reports.rungs[order] == rung]


def _joined(parts: Sequence[Reports]) -> Reports:
    """Return the reports of several frames of one survey as one."""
    groups = [part.groups for part in parts if part.groups is not None]
    keys = [part.keys for part in parts if part.keys is not None]
    return Reports(
        np.concatenate([part.tokens for part in parts]),
        np.concatenate([part.answers for part in parts]),
        np.concatenate([part.rungs for part in parts]),
        np.concatenate(groups) if groups else None,
        np.concatenate(keys) if keys else None,
    )


def _random_order(count: int) -> NDArray[np.int64]:
    """Return a random order from the system's secure bits; equal keys, whose order is known, are one in 2^64 pairs."""
    return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64).argsort()


def _shuffled(frames: Sequence[bytes]) -> list[bytes]:
    return [frames[place] for place in _random_order(len(frames)).tolist()]
