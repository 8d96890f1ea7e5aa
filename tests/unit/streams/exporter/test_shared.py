"""Answers that many ask for at once: made once, until the store was looked at again; sent from shared bytes."""

import asyncio
import gzip
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from streams.exporter import shared
from streams.exporter.shared import PIECE_BYTES, SharedAnswers
from streams.store.contract import StoreUnavailableError
from tests.support.clock import ManualClock
from tests.support.exporter import MINUTE_MS, NOW_MS, Client, converse, record_of, save
from tests.support.memory_store import MemoryStore
from tests.support.surveys import WEEK, survey


async def in_thread(function: Callable[[], Any]) -> Any:
    return await asyncio.to_thread(function)


def test_one_question_is_read_once_until_the_next_look() -> None:
    made = 0

    def make() -> bytes:
        nonlocal made
        made += 1
        return b"answer %d" % made

    async def ask() -> list[bytes | None]:
        answers = SharedAnswers(in_thread)
        found = list(await asyncio.gather(*(answers.answer(("a",), make, gzip=False) for _ in range(20))))
        found.append(await answers.answer(("a",), make, gzip=False))
        answers.forget()
        found.append(await answers.answer(("a",), make, gzip=False))
        packed = await answers.answer(("a",), make, gzip=True)
        assert packed is not None
        return [*found, gzip.decompress(packed)]

    assert asyncio.run(ask()) == [b"answer 1"] * 21 + [b"answer 2", b"answer 3"]


def test_a_failure_is_told_to_all_who_wait_and_then_forgotten() -> None:
    away = True

    def make() -> bytes:
        if away:
            raise StoreUnavailableError("no route")
        return b"back"

    async def ask() -> tuple[list[Any], bytes | None]:
        nonlocal away
        answers = SharedAnswers(in_thread)
        waiting = [answers.answer(("a",), make, gzip=False) for _ in range(3)]
        failed = await asyncio.gather(*waiting, return_exceptions=True)
        away = False
        return list(failed), await answers.answer(("a",), make, gzip=False)

    failed, answer = asyncio.run(ask())
    assert [str(error) for error in failed] == ["no route"] * 3
    assert answer == b"back"


def test_answers_beyond_the_bound_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "KEPT_BYTES", 10)
    made: list[int] = []

    def make(number: int) -> bytes:
        made.append(number)
        return b"123456"

    async def ask() -> None:
        answers = SharedAnswers(in_thread)
        for number in (1, 2, 1, 2):
            await answers.answer((number,), partial(make, number), gzip=False)

    asyncio.run(ask())
    assert made == [1, 2, 2], "the first is kept, the second is one too many"


def test_a_large_answer_comes_whole_packed_or_not() -> None:
    store = MemoryStore(ManualClock(NOW_MS))
    colour = survey()
    for age in range(100):
        save(store, record_of(colour, WEEK - age * MINUTE_MS, [0.5, 0.3, 0.2]))
    path = f"/api/v1/surveys/{colour.id}/windows?limit=100"

    async def talk(client: Client) -> tuple[bytes, bytes, str, str]:
        plain = await client.get(path, headers={"Accept-Encoding": "identity"})
        packed = await client.get(path, headers={"Accept-Encoding": "gzip"})
        head = await client.head(path)
        assert head.status == 200
        assert await head.read() == b""
        return await plain.read(), await packed.read(), plain.headers["Vary"], packed.headers["Content-Encoding"]

    plain, packed, vary, encoding = converse(store, [colour], talk)
    assert len(plain) > 2 * PIECE_BYTES
    assert (plain, vary, encoding) == (packed, "Accept-Encoding", "gzip")
    assert len(json.loads(plain)["windows"]) == 100
