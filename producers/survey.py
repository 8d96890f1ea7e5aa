"""Surveys: a question, its values, its mechanism, its ladder, its windows; one TOML file each."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from estimators.mechanism import Mechanism
from producers.windows import Windows
from producers.wire import Layout


@dataclass(frozen=True)
class Survey:
    """A checked survey. Device, worker, exporter and command line all use this object.

    ladder is mechanism.ladder; opens_ms[i] is when rung i opens after the end of the window (opens_ms[0] is 0 and
    means: when the value is taken). Schedule, question, retention, skew and budget are not part of the id: they may
    change without making old answers undecodable.
    """

    name: str
    question: str
    mechanism: Mechanism
    opens_ms: tuple[int, ...]
    jitter_ms: int
    windows: Windows
    retention_ms: int
    skew_ms: int
    lifetime_epsilon: float
    shards: int
    method: str
    alpha: float
    population: str
    accept_risk: str

    @cached_property
    def _hash(self) -> bytes:
        decoding = {
            "mechanism": self.mechanism.canonical(),
            "answer": [self.mechanism.answer.kind, self.mechanism.answer.size],
            "groups": self.mechanism.groups,
            "rungs": self.mechanism.rungs,
            "window": [self.windows.size_ms, self.windows.step_ms],
            "shards": self.shards,
        }
        return hashlib.sha256(canonical_json(decoding)).digest()

    @property
    def id(self) -> str:
        """The name and 8 hex digits of all that decoding depends on."""
        return f"{self.name}-{self._hash[:4].hex()}"

    @property
    def digest(self) -> bytes:
        """The 8 bytes that frames carry."""
        return self._hash[:8]

    @property
    def layout(self) -> Layout:
        """How reports of this survey lie on the wire."""
        return Layout(self.mechanism.answer.width, self.mechanism.groups > 1)


def canonical_json(data: Any) -> bytes:
    """Return JSON with sorted keys and no spaces: the same data always gives the same bytes."""
    return msgspec.json.encode(data, order="deterministic")
