"""The token: guesses are limited and logged once, and a comparison tells nothing by its time."""

from __future__ import annotations

import hmac
import logging
from typing import Any

import pytest

from streams.exporter.guard import GUESSES, MOST_ADDRESSES, PENALTY_SECONDS, Guesses
from tests.support.clock import ManualClock
from tests.support.exporter import NOW_MS, Client, converse
from tests.support.memory_store import MemoryStore
from tests.support.surveys import survey

TOKEN = "correct-horse-battery"


class Time:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def talk_to(conversation: Any) -> Any:
    return converse(MemoryStore(ManualClock(NOW_MS)), [survey()], conversation, token=TOKEN)


async def status(client: Client, token: str | None) -> int:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return (await client.get("/api/v1/surveys", headers=headers)).status


def test_after_a_few_guesses_no_token_of_that_address_is_looked_at(caplog: pytest.LogCaptureFixture) -> None:
    async def talk(client: Client) -> tuple[list[int], int, int, int]:
        tried = [await status(client, f"guess-{number}") for number in range(500)]
        right = await client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert 1 <= int(right.headers["Retry-After"]) <= PENALTY_SECONDS
        return tried, right.status, await status(client, None), (await client.get("/healthz")).status

    with caplog.at_level(logging.WARNING, logger="streams.exporter"):
        tried, right, without, probe = talk_to(talk)
    assert tried == [401] * GUESSES + [429] * (500 - GUESSES)
    assert (right, without, probe) == (429, 401, 200)
    assert [record.getMessage() for record in caplog.records] == [
        "127.0.0.1 sent a wrong token",
        f"127.0.0.1 sent {GUESSES} different wrong tokens; its tokens are not looked at for 60 s",
    ]
    assert "guess" not in caplog.text, "what was sent may be nearly right"


def test_a_wrong_setting_is_not_a_guess_and_locks_nobody_out() -> None:
    async def talk(client: Client) -> set[int]:
        wrong = {await status(client, "token-of-last-year") for _ in range(5 * GUESSES)}
        without = {await status(client, None) for _ in range(5 * GUESSES)}
        assert await status(client, TOKEN) == 200
        return wrong | without

    assert talk_to(talk) == {401}


def test_the_penalty_ends_and_guessing_again_starts_it_again(caplog: pytest.LogCaptureFixture) -> None:
    time = Time()
    guesses = Guesses(time)
    for number in range(GUESSES):
        assert guesses.blocked("10.0.0.1") == 0
        guesses.wrong("10.0.0.1", b"%d" % number)
        time.now += 1
    assert guesses.blocked("10.0.0.1") == PENALTY_SECONDS - 1
    assert guesses.blocked("10.0.0.2") == 0, "another address"
    time.now += PENALTY_SECONDS
    assert guesses.blocked("10.0.0.1") == 0
    caplog.clear()
    guesses.wrong("10.0.0.1", b"again")
    assert caplog.messages == ["10.0.0.1 was refused 1 times while it was blocked", "10.0.0.1 sent a wrong token"]


def test_a_host_with_many_addresses_is_one_guesser() -> None:
    guesses = Guesses(Time())
    for number in range(GUESSES):
        guesses.wrong(f"2001:db8::{number:x}", b"%d" % number)
    assert guesses.blocked("2001:db8::ffff") > 0
    assert guesses.blocked("2001:db8:0:1::1") == 0


def test_guessers_do_not_fill_the_memory() -> None:
    guesses = Guesses(Time())
    for number in range(MOST_ADDRESSES + 100):
        guesses.wrong(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", b"x")
    assert len(guesses._guessers) == MOST_ADDRESSES


def test_tokens_are_compared_in_constant_time_and_length(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[int, int]] = []

    def compare(first: bytes, second: bytes) -> bool:
        compared.append((len(first), len(second)))
        return first == second

    monkeypatch.setattr(hmac, "compare_digest", compare)

    async def talk(client: Client) -> list[int]:
        return [await status(client, token) for token in ("c", "correct-horse", TOKEN, TOKEN * 9)]

    assert talk_to(talk) == [401, 401, 200, 401]
    assert compared == [(32, 32)] * 4
