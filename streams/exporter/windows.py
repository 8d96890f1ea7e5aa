"""Windows as the API gives them, encoded once for everybody who asks."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import msgspec

from producers.survey.survey import Survey
from streams.exporter.api import (
    AlertBound,
    DerivedEstimate,
    Truth,
    ValueEstimate,
    Window,
)
from streams.exporter.api_proof import Proof, Withheld
from streams.exporter.api_survey import UnexplainedShare
from streams.exporter.reader import decoded_record
from streams.store.truth import Truth as TrueShares
from streams.windows.candidates import aligned
from streams.windows.proof import Proof as StoredProof
from streams.windows.record import EstimateRecord
from streams.windows.record import UnexplainedShare as StoredUnexplained
from streams.windows.record import Withheld as StoredWithheld
from streams.windows.settled import WindowState, settles_ms, window_state

KEPT_BYTES: Final = 16 << 20
"""Encoded windows that are kept. Fewer than viewers look at: each look encodes them again; more: memory."""


class EncodedWindow(NamedTuple):
    """A window of the API, ready to be sent."""

    survey: str
    window_start_ms: int
    body: bytes
    """JSON of `api.Window`; the same object as long as nothing about the window changes."""


@dataclass(frozen=True, eq=False)
class _Kept:
    """An encoded window and what it was made of."""

    survey: Survey
    digest: bytes
    """Of the stored estimate."""
    truth: TrueShares | None
    head: EstimateRecord
    """The estimate without its numbers."""
    state: WindowState
    body: bytes


class Moment(NamedTuple):
    """When windows are looked at: the state of a window depends on it."""

    now_ms: int
    counted_ms: int | None
    """The time before which all reports are counted."""


class WindowEncoder:
    """Encodes windows, and keeps what it encoded while nothing about the window changes. Any thread may call it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, int], _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def encode(
        self, survey: Survey, start_ms: int, payload: bytes, truth: TrueShares | None, moment: Moment
    ) -> EncodedWindow | None:
        """Encode the stored estimate of a window; None if it cannot be read."""
        place, digest = (survey.id, start_ms), blake2b(payload, digest_size=16).digest()
        with self._lock:
            kept = self._kept.get(place)
            if kept is not None and kept.survey is survey and (kept.digest, kept.truth) == (digest, truth):
                self._kept.move_to_end(place)
                if window_state(survey, kept.head, *moment) == kept.state:
                    return EncodedWindow(*place, kept.body)
        record = decoded_record(survey.id, start_ms, payload)
        if record is None:
            return None
        state = window_state(survey, record, *moment)
        window = window_of(
            msgspec.structs.replace(record, values=aligned(survey, record)),
            _truth(survey, truth),
            state,
            settles_ms(survey, start_ms),
            copies=survey.mechanism.copies,
        )
        head = msgspec.structs.replace(record, values=[], views=[], alerts=[], derived=[])
        body = msgspec.json.encode(window)
        self._keep(place, _Kept(survey, digest, truth, head, state, body))
        return EncodedWindow(*place, body)

    def _keep(self, place: tuple[str, int], new: _Kept) -> None:
        with self._lock:
            before = self._kept.pop(place, None)
            self._kept[place] = new
            self._bytes += len(new.body) - (0 if before is None else len(before.body))
            while self._bytes > KEPT_BYTES:
                self._bytes -= len(self._kept.popitem(last=False)[1].body)


def _truth(survey: Survey, truth: TrueShares | None) -> Truth | None:
    if truth is None or len(truth.shares) != len(survey.mechanism.labels):
        return None
    return Truth(list(truth.shares), truth.devices, truth.settled)


def window_of(
    record: EstimateRecord, truth: Truth | None, state: WindowState, settles: int, *, copies: int = 1
) -> Window:
    """Convert a stored estimate to its API type."""
    return Window(
        version=record.version,
        survey=record.survey,
        window_start_ms=record.window_start_ms,
        window_end_ms=record.window_end_ms,
        read_ms=record.read_ms,
        computed_ms=record.computed_ms,
        users=record.users,
        users_per_rung=record.users_per_rung,
        epsilons=record.epsilons,
        method=record.method,
        population=record.population,
        alpha=record.alpha,
        homogeneity_p=record.homogeneity_p,
        notes=record.notes,
        values=[
            ValueEstimate(
                value=row.value,
                estimate=row.estimate,
                variance=row.variance,
                lower=row.lower,
                upper=row.upper,
                simultaneous_lower=row.simultaneous_lower,
                simultaneous_upper=row.simultaneous_upper,
                always_valid_lower=row.always_valid_lower,
                always_valid_upper=row.always_valid_upper,
            )
            for row in record.values
        ],
        alerts=[
            AlertBound(
                value=bound.value, side=bound.side, threshold=bound.threshold, alpha=bound.alpha, bound=bound.bound
            )
            for bound in record.alerts
        ],
        truth=truth,
        state=state,
        settles_ms=settles,
        assumption=record.assumption,
        contradicted=record.contradicted,
        proof=_proof(record.proof),
        withheld=_withheld(record.withheld),
        unexplained=_unexplained(record.unexplained),
        devices=round(record.users / copies),
        withdrawn=record.withdrawn,
        derived=[DerivedEstimate(**msgspec.structs.asdict(one)) for one in record.derived],
    )


def _withheld(withheld: StoredWithheld | None) -> Withheld | None:
    if withheld is None:
        return None
    return Withheld(withheld.reason, withheld.devices, withheld.least_devices, withheld.sentence)


def _unexplained(stored: StoredUnexplained | None) -> UnexplainedShare | None:
    if stored is None:
        return None
    return UnexplainedShare(stored.estimate, stored.variance, stored.lower, stored.upper)


def _proof(stored: StoredProof | None) -> Proof | None:
    if stored is None:
        return None
    return Proof(
        thaw=stored.thaw,
        survey=stored.survey,
        topic=stored.topic,
        topic_id=stored.topic_id,
        offsets=stored.offsets,
        tally=stored.tally,
        winners=stored.winners,
        shard_offsets=stored.shard_offsets,
    )
