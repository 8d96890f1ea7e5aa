"""What a stored estimate says of the reports it was computed from, so that others can count them again.

docs/verify.md defines every hash; `thaw verify` (streams/repair/verify.py) compares them with its own count.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
from collections.abc import Iterable, Sequence
from functools import cache

import msgspec
import numpy as np

from estimators.tally import Tally
from producers.survey.publication import EVERYTHING
from producers.survey.survey import Survey, canonical_json
from producers.wire.layout import WORD_BYTES
from producers.wire.shards import partition_of

_DOMAIN = b"winning reports 1\n"


class Proof(msgspec.Struct, frozen=True):
    """Hashes are SHA-256, in hexadecimal."""

    thaw: str
    """The version that counted."""
    survey: str
    """Hash of the survey: all that reports are judged, counted and estimated by, and the question."""
    topic: str
    topic_id: str
    """The id that the brokers gave the topic; empty where they give none."""
    offsets: list[int]
    """By partition of the topic: the estimate contains everything below this offset, and nothing else."""
    tally: str
    """Hash of the tally."""
    winners: str | None
    """Hash of the reports that count, one per token; null while it is being computed."""
    shard_offsets: dict[int, int] = {}
    """The same offsets for shards that were read further, or less far, than the others of their partition."""

    def offset(self, shard: int) -> int:
        """Return the offset below which the reports of a shard are counted."""
        return self.shard_offsets.get(shard, self.offsets[partition_of(shard, len(self.offsets))])


@cache
def version() -> str:
    """Return the version of this installation."""
    return importlib.metadata.version("thaw")


def survey_hash(survey: Survey) -> str:
    """Return the hash of all that reports are judged, counted and estimated by, and the question."""
    form = {
        "decoding": survey.decoding_hash.hex(),
        "question": survey.question,
        "opens_ms": survey.opens_ms,
        "retention_ms": survey.retention_ms,
        "skew_ms": survey.skew_ms,
        "method": survey.method,
        "alpha": survey.alpha,
        "population": survey.population,
        "rungs": survey.rungs,
    }
    # Absent where everything is published: proofs of earlier versions stay valid.
    if survey.publication != EVERYTHING:
        form["publication"] = [survey.publication.least_devices, survey.publication.totals_only]
    if survey.registry.expires_ms is not None:
        form["expires_ms"] = survey.registry.expires_ms
    if survey.candidates:
        form["candidates"] = survey.candidates_hash
    return hashlib.sha256(canonical_json(form)).hexdigest()


def tally_hash(tally: Tally) -> str:
    """Return the hash of a tally."""
    return hashlib.sha256(tally.to_bytes()).hexdigest()


def shard_digest(entries: bytes, entry_bytes: int) -> bytes:
    """Return the hash of the entries of one shard, one per token, which does not depend on their order.

    >>> shard_digest(b"0123456789abcdef" b"fedcba9876543210", 16) == shard_digest(
    ...     b"fedcba9876543210" b"0123456789abcdef", 16
    ... )
    True
    """
    words = np.frombuffer(entries, dtype=np.uint64).reshape(-1, entry_bytes // WORD_BYTES)
    # Tokens are random, so their first bytes decide; entries that share them are compared as a whole.
    first = words[:, 0].byteswap()
    order = np.argsort(first)
    in_order = first[order]
    if (in_order[1:] == in_order[:-1]).any():
        order = np.argsort(np.frombuffer(entries, dtype=f"S{entry_bytes}"))
    return hashlib.sha256(words.take(order, axis=0).tobytes()).digest()


def winners_hash(digests: Iterable[bytes]) -> str:
    """Return the hash of all winning reports of a window, from the digests of its shards in their order."""
    return hashlib.sha256(_DOMAIN + b"".join(digests)).hexdigest()


def split_offsets(by_shard: Sequence[int], partitions: int) -> tuple[list[int], dict[int, int]]:
    """Return the highest offset of each partition's shards, and the offsets of shards that have another one.

    >>> split_offsets([7, 9, 7, 8], 2)
    ([7, 9], {3: 8})
    """
    offsets = [max(by_shard[partition::partitions], default=0) for partition in range(partitions)]
    others = {shard: at for shard, at in enumerate(by_shard) if at != offsets[partition_of(shard, partitions)]}
    return offsets, others
