"""From reports to messages: frames per (survey, window, shard), messages per partition, and the transport of them.

A transport promises only this: what it reports as acknowledged is with the broker. Everything else may arrive twice or
in another order; the tally is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from producers.wire.frames import Reports, encode, pack_messages
from producers.wire.layout import PACK_BYTES, Layout
from producers.wire.shards import partition_of, shards_of


class TransportError(RuntimeError):
    """The broker did not acknowledge. Whether it has the messages is unknown; send the same bytes again.

    wait_seconds is how long the other side asked to wait before that, 0 if it did not. confirmed: the places of the
    messages that were acknowledged nonetheless, where they were sent in several parts.
    """

    def __init__(self, message: str, wait_seconds: float = 0.0) -> None:
        super().__init__(message)
        self.wait_seconds = wait_seconds
        self.confirmed: frozenset[int] = frozenset()


class RefusedError(TransportError):
    """Some messages were refused, and nothing was taken of the others but those that `confirmed` names.

    refused: the reason by the place of each message that will never be taken. postponed: the places of those that may
    be taken later.
    """

    def __init__(self, message: str, refused: Mapping[int, str], postponed: frozenset[int] = frozenset()) -> None:
        super().__init__(message)
        self.refused, self.postponed = refused, postponed


class Message(NamedTuple):
    """One record: its partition and its frames back to back."""

    partition: int
    value: bytes


class Transport(Protocol):
    """Carries messages to the partitions of the reports topic."""

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic; `partition_of` says which shards belong to each.

        Raises:
            TransportError: the broker did not say so.
        """
        ...

    def send(self, messages: Sequence[Message]) -> None:
        """Return when the broker has all messages.

        Raises:
            RefusedError: some of them are not taken; send the others again.
            TransportError: the broker did not acknowledge them.
        """
        ...


class FramedSurvey(Protocol):
    """What framing needs to know about a survey."""

    @property
    def digest(self) -> bytes:
        """The bytes that frames carry to name it."""
        ...

    @property
    def shards(self) -> int:
        """Number of shards."""
        ...

    @property
    def layout(self) -> Layout:
        """Width of an answer and which columns are present."""
        ...


def frames_of(
    survey: FramedSurvey,
    window_ms: int,
    sent_ms: int,
    tokens: NDArray[np.uint8],
    answers: NDArray[Any],
    rungs: NDArray[np.uint8],
    groups: NDArray[np.uint16] | None = None,
    keys: NDArray[np.uint8] | None = None,
    *,
    partitions: int,
    limit_bytes: int = PACK_BYTES,
) -> dict[int, list[bytes]]:
    """Group many reports of one survey and window into messages, by partition.

    tokens (n, 16); answers (n,) symbols in the dtype of the wire or (n, width) packed bits; rungs (n,); groups (n,),
    ignored where the survey has one group; keys (n, 16), for withdrawable surveys. The caller makes sure that no two
    copies of one device are among them. Reports of one shard keep their order. The cost is a sort by shard and one copy
    of every column; Python works per frame, not per report.
    """
    layout = survey.layout
    columns = answer_bytes(answers, layout.width)
    shards = shards_of(tokens, survey.shards).astype(np.uint16)
    order = np.argsort(shards, kind="stable")
    tokens, columns, rungs = _gather(tokens, order), _gather(columns, order), rungs[order]
    picked = groups[order] if layout.grouped and groups is not None else None
    unlocking = None if keys is None else _gather(keys, order)
    ends = np.cumsum(np.bincount(shards, minlength=survey.shards))
    most = max(layout.fitting(limit_bytes), 1)
    frames: dict[int, list[bytes]] = {}
    digest, start = survey.digest, 0
    for shard, end in enumerate(ends.tolist()):
        for first in range(start, end, most):
            part = slice(first, min(first + most, end))
            reports = Reports(
                tokens[part],
                columns[part],
                rungs[part],
                None if picked is None else picked[part],
                None if unlocking is None else unlocking[part],
            )
            frame = encode(digest, window_ms, sent_ms, shard, reports, layout)
            frames.setdefault(partition_of(shard, partitions), []).append(frame)
        start = end
    return {partition: pack_messages(packed, limit_bytes) for partition, packed in sorted(frames.items())}


def answer_bytes(answers: NDArray[Any], width: int) -> NDArray[np.uint8]:
    """Return answers as rows of `width` bytes: little-endian symbols, or bit vectors as they are."""
    if answers.ndim == 2:
        return np.ascontiguousarray(answers, dtype=np.uint8)
    symbols = np.ascontiguousarray(answers.astype(f"<u{width}", copy=False))
    return symbols.view(np.uint8).reshape(len(answers), width)


def _gather(rows: NDArray[np.uint8], order: NDArray[np.intp]) -> NDArray[np.uint8]:
    """Return rows in the given order; whole rows are moved as one item, several times faster than byte by byte."""
    width = rows.shape[1]
    if width == 0 or len(rows) == 0:
        return rows
    items = np.ascontiguousarray(rows).view(f"V{width}").ravel()
    return items[order].view(np.uint8).reshape(len(order), width)
