"""Mixing keeps every report, and nothing of the frames and requests they came in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from producers.survey.editions import by_digest
from producers.survey.survey import Survey
from producers.wire import frames as wire
from producers.wire.keys import key_chains
from producers.wire.shards import partition_of
from producers.wire.transport import Message, frames_of
from streams import gateway
from streams.gateway.broker import NotAcknowledgedError
from streams.gateway.judge import Taken, judge
from streams.gateway.limits import BURST_SECONDS, Memory, Rates
from streams.gateway.mixer import Mixer
from streams.gateway.mixing import mixed
from tests.support.continuing import LONGER, SHORT
from tests.support.surveys import WEEK, WINDOW_MS, survey

LATER = WEEK + WINDOW_MS + 60_000
"""All rungs of the window WEEK are open."""


WITHDRAWABLE = survey(shards="shards = 16\nwithdrawable = true")


class Known:
    """One survey by its digest."""

    def __init__(self, *surveys: Survey) -> None:
        self.surveys = by_digest(surveys)

    def get(self, digest: bytes, _now_ms: int) -> Survey | None:
        return self.surveys.get(digest)


def body(asked: Survey, count: int, *, seed: int, sent_ms: int = 12_345, window_ms: int = WEEK) -> bytes:
    rng = np.random.default_rng(seed)
    tokens, keys = rng.integers(0, 256, (count, 16), dtype=np.uint8), None
    answers, rungs = rng.integers(0, 3, count), rng.integers(0, 3 + asked.withdrawable, count).astype(np.uint8)
    if asked.withdrawable:
        chains = key_chains(tokens, asked.mechanism.rungs, asked.digest, window_ms)
        tokens, keys = chains[0], chains[rungs + 1, np.arange(count)]
        answers = np.where(rungs < asked.mechanism.rungs, answers, 0)
    frames = frames_of(asked, window_ms, sent_ms, tokens, answers.astype(np.uint8), rungs, keys=keys, partitions=1)
    return b"".join(message for messages in frames.values() for message in messages)


def taken(asked: Survey, raw: bytes) -> list[Taken]:
    judged = judge(raw, Known(asked), LATER)
    assert not judged.refused
    return judged.taken


def reports_in(asked: Survey, messages: Sequence[bytes]) -> list[tuple[bytes, int, int]]:
    """Return token, rung and answer of every report, in order."""
    found = []
    for message in messages:
        for header in wire.headers(message):
            assert isinstance(header, wire.Header)
            columns = wire.columns(message, header, asked.layout)
            found += [
                (token.tobytes(), int(rung), int(answer[0]))
                for token, rung, answer in zip(columns.tokens, columns.rungs, columns.answers, strict=True)
            ]
    return found


@pytest.mark.parametrize("asked", [survey(), WITHDRAWABLE], ids=["plain", "withdrawable"])
def test_every_report_is_in_its_partition_once_and_the_moment_of_sending_is_public(asked: Survey) -> None:
    bodies = [body(asked, 50, seed=seed, sent_ms=seed) for seed in range(20)]
    messages = mixed([frame for raw in bodies for frame in taken(asked, raw)], 5)
    assert sorted(reports_in(asked, [message.value for message in messages])) == sorted(reports_in(asked, bodies))
    for message in messages:
        for header in wire.headers(message.value):
            assert isinstance(header, wire.Header)
            assert partition_of(header.shard, 5) == message.partition
            (rung,) = set(wire.columns(message.value, header, asked.layout).rungs.tolist())
            assert header.sent_ms == (WEEK if rung in (0, 3) else asked.opening_ms(WEEK, rung))
    assert not judge(b"".join(message.value for message in messages), Known(asked), LATER).refused


def test_mixed_frames_do_not_tell_which_file_of_a_continued_survey_a_device_knows() -> None:
    raw = body(LONGER, 200, seed=1)
    messages = [message.value for message in mixed(taken(LONGER, raw), 3)]
    assert sorted(reports_in(LONGER, messages)) == sorted(reports_in(LONGER, [raw]))
    found = set()
    for message in messages:
        for header in wire.headers(message):
            assert isinstance(header, wire.Header)
            found |= {(header.digest, rung) for rung in wire.columns(message, header, LONGER.layout).rungs.tolist()}
    assert found == {(SHORT.digest, 0), (SHORT.digest, 1), (LONGER.digest, 2)}


def test_reports_of_one_request_do_not_stay_side_by_side() -> None:
    """Of 1,000 reports of one shard, the order is one of 1000!: that more than 20 keep their follower has p < 1e-15."""
    asked = survey(shards="shards = 1", ladder="ladder = [0.5]", opens='opens = ["0s"]')
    rng = np.random.default_rng(1)
    made = frames_of(
        asked,
        WEEK,
        0,
        rng.integers(0, 256, (1_000, 16), dtype=np.uint8),
        np.zeros(1_000, dtype=np.uint8),
        np.zeros(1_000, dtype=np.uint8),
        partitions=1,
    )[0]
    before = [report[0] for report in reports_in(asked, made)]
    after = [
        report[0] for report in reports_in(asked, [message.value for message in mixed(taken(asked, b"".join(made)), 1)])
    ]
    followers = dict(pairwise(before))
    assert sum(followers.get(first) == second for first, second in pairwise(after)) <= 20


class Sink:
    """Remembers what is sent, and fails when told to."""

    partitions: int | None = 3

    def __init__(self) -> None:
        self.sent: list[Sequence[Message]] = []
        self.fails = False

    async def send(self, messages: Sequence[Message]) -> None:
        if self.fails:
            raise NotAcknowledgedError("away")
        self.sent.append(messages)


def test_a_batch_ends_by_number_or_by_time_and_fails_for_all_of_its_requests() -> None:
    asked, sink = survey(), Sink()
    batches: list[int] = []
    one = taken(asked, body(asked, 10, seed=1))

    async def run() -> None:
        mixer = Mixer(sink, hold_ms=60_000, hold_reports=25, on_batch=batches.append)
        waiting = [mixer.put(one), mixer.put(one)]
        assert not sink.sent
        waiting.append(mixer.put(one))
        await asyncio.gather(*waiting)
        assert (len(sink.sent), batches) == (1, [3])
        sink.fails = True
        alone = mixer.put(one)
        mixer.flush()
        with pytest.raises(NotAcknowledgedError):
            await alone
        sink.fails, sink.partitions = False, None
        with pytest.raises(NotAcknowledgedError, match="partitions"):
            await _flushed(mixer, one)
        sink.partitions = 3
        short = Mixer(sink, hold_ms=1, hold_reports=1_000_000)
        await short.put(one)
        closing = mixer.put(one)
        await mixer.close()
        assert closing.done()
        await mixer.put(one)

    asyncio.run(run())
    assert len(sink.sent) == 4


async def _flushed(mixer: Mixer, one: list[Taken]) -> None:
    waiting = mixer.put(one)
    mixer.flush()
    await waiting


def test_memory_is_never_above_its_limit() -> None:
    memory = Memory(100)
    assert memory.take(60)
    assert not memory.take(41)
    assert memory.held_bytes == 60
    assert memory.take(40)
    memory.give_back(100)
    assert memory.held_bytes == 0


def test_a_sender_may_send_its_rate_and_a_burst_and_others_are_not_concerned() -> None:
    now = 0.0
    rates = Rates(lambda: now)
    assert rates.wait_seconds(b"a", 10 * BURST_SECONDS, 10) == 0
    wait = rates.wait_seconds(b"a", 1, 10)
    assert 0 < wait <= 1
    assert rates.wait_seconds(b"b", 1, 10) == 0
    now += wait
    assert rates.wait_seconds(b"a", 1, 10) == 0
    # A request larger than any burst passes once and is paid for afterwards.
    assert rates.wait_seconds(b"c", 1_000, 10) == 0
    assert rates.wait_seconds(b"c", 1, 10) == pytest.approx(90.1)
    assert rates.wait_seconds(b"a", 10**9, 0) == 0


def test_an_address_is_read_in_one_place_and_nothing_is_written() -> None:
    text = "".join(file.read_text() for file in Path(gateway.__path__[0]).glob("*.py"))
    assert ".write(" not in text
    # For the rates alone.
    assert text.count("request.remote") == 1
