"""The types of the public API for where an estimate comes from, or why there is none; rules as in `api`."""

from __future__ import annotations

from typing import Literal

import msgspec


class Proof(msgspec.Struct, frozen=True):
    """Where the counts of an estimate come from, for `thaw verify`. Hashes are SHA-256, in hexadecimal."""

    thaw: str
    """The version that counted."""
    survey: str
    topic: str
    topic_id: str
    offsets: list[int]
    """By partition of the topic: the estimate contains everything below this offset, and nothing else."""
    tally: str
    winners: str | None
    """Of the reports that count, one per token; null while it is being computed."""
    shard_offsets: dict[int, int]
    """Offsets of shards that were read further, or less far, than the others of their partition."""


class Withheld(msgspec.Struct, frozen=True):
    """Why a window has no estimate although answers are counted."""

    reason: Literal["crowd", "unsettled"]
    """crowd: fewer devices than the survey's minimum; unsettled: only the total of the settled window is published."""
    devices: int
    """Devices whose answers are counted."""
    least_devices: int
    """Devices from which on the survey publishes a window."""
    text: str
    """What is said in place of an estimate."""
