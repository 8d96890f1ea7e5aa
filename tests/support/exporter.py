"""The exporter's HTTP application on a store in memory, for tests without a network between."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp.test_utils import TestClient, TestServer

from producers.survey.survey import Survey
from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from streams.exporter.views import Views
from streams.store.contract import Store
from streams.store.heartbeats import Heartbeat
from streams.store.truth import Truth as TrueShares
from streams.windows.history import encode_point
from streams.windows.record import EstimateRecord, ValueEstimate
from tests.support.clock import ManualClock
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK

MINUTE_MS = 60_000
NOW_MS = WEEK + 10_000

Client = TestClient[Any, Any]
Conversation = Callable[[Client], Awaitable[Any]]


class Known:
    """A list of surveys that never changes."""

    def __init__(self, *surveys: Survey) -> None:
        self._surveys = surveys

    def surveys(self, now_ms: int) -> Sequence[Survey]:  # noqa: ARG002
        return self._surveys


class FixedTruths:
    """The truth of a simulated fleet by window."""

    def __init__(self, truths: Mapping[int, TrueShares]) -> None:
        self._truths = truths

    def read_many(self, survey_id: str, starts: Sequence[int]) -> dict[int, TrueShares]:  # noqa: ARG002  # protocol
        return {start_ms: self._truths[start_ms] for start_ms in starts if start_ms in self._truths}


class FixedHeartbeats:
    """Heartbeats of workers that do not change."""

    def __init__(self, *heartbeats: Heartbeat) -> None:
        self._heartbeats = heartbeats

    def read(self) -> list[Heartbeat]:
        return list(self._heartbeats)


def record_of(
    known: Survey,
    window_ms: int,
    estimates: Sequence[float | None],
    *,
    users: int = 100,
    half: float = 0.1,
    read_ms: int = NOW_MS - 500,
) -> EstimateRecord:
    """Return a record with these estimates, computed just before NOW_MS unless `read_ms` says otherwise."""
    rows = [
        ValueEstimate(
            label, share, 0.01, None if share is None else share - half, None if share is None else share + half
        )
        for label, share in zip(known.mechanism.labels, estimates, strict=True)
    ]
    return EstimateRecord(
        version=1,
        survey=known.id,
        window_start_ms=window_ms,
        window_end_ms=window_ms + known.windows.size_ms,
        read_ms=read_ms,
        computed_ms=read_ms + 100,
        users=users,
        users_per_rung=[users - 30, 20, 10],
        epsilons=[0.5, 1.0, 2.0],
        method="pooled",
        population="fleet",
        alpha=0.05,
        homogeneity_p=None,
        notes=[],
        values=rows,
    )


def save(store: MemoryStore, record: EstimateRecord) -> None:
    """Store a record and the point of its history."""
    place = record.survey, record.window_start_ms
    secret = store.queue.lock(*place, 1_000)
    assert secret is not None
    expires_ms = NOW_MS + 600 * MINUTE_MS
    assert store.estimates.save(*place, secret, record.encode(), expires_ms, point=encode_point(record))
    store.queue.unlock(*place, secret)


def converse(store: Store, surveys: Sequence[Survey], conversation: Conversation, **options: Any) -> Any:
    """Run a conversation with the exporter; options go to `make_app`, `truths` and `heartbeats` to the views."""

    async def talk() -> Any:
        clock = ManualClock(NOW_MS)
        truths, heartbeats = options.pop("truths", None), options.pop("heartbeats", None)
        reader = Reader(store, Known(*surveys), heartbeats=heartbeats, clock=clock)
        views = Views(reader, truths=truths, clock=clock)
        app = make_app(reader, value_limit=100, views=views, **options)
        async with TestClient(TestServer(app)) as client:
            return await conversation(client)

    return asyncio.run(talk())
