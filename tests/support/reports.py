"""Reports, frames and an oracle for tests of folding and storing."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from estimators.mechanism import Answer, Guarantee, Specification
from estimators.tally import Tally
from producers.survey.editions import by_digest, newest
from producers.survey.survey import Survey
from producers.survey.windows import Windows
from producers.wire import frames as wire
from producers.wire.layout import KEY_BYTES, TOKEN_BYTES
from producers.wire.shards import partition_of
from streams.kafka.messages import FetchBatch, Record
from streams.store.shape import Shape
from tests.support.keys import chain_of, hashed, key_of
from tests.support.precedence import Ranked, winner

WINDOW_MS = 60_000
WINDOW = 4_000_000_020_000 // WINDOW_MS * WINDOW_MS
"""In the future, so that keys that expire soon after it are not gone in a real Redis yet."""
NOW_MS = WINDOW + WINDOW_MS + 20_000
"""In the next window: all rungs of WINDOW are open."""
TOPIC = "thaw.reports.v1"


class AnyAnswer(Specification):
    """A mechanism of which only the form of the answers matters."""

    name = "any_answer"
    source = "tests"
    guarantee = Guarantee("none", "none")

    def __init__(self, kind: Any, size: int, *, rungs: int = 4, groups: int = 1) -> None:
        self.answer, self.groups = Answer(kind, size), groups
        self.ladder, self.labels = tuple(float(i + 1) for i in range(rungs)), ("a", "b")

    @classmethod
    def build(cls, values: Sequence[str], ladder: Sequence[float], parameters: Mapping[str, Any]) -> NoReturn:
        raise NotImplementedError

    @property
    def epsilons(self) -> tuple[float, ...]:
        return self.ladder

    def canonical(self) -> dict[str, Any]:
        return {"name": self.name}


class TwoPlanes(AnyAnswer):
    """Key-value answers as two bit planes: a key that is absent has no value bit."""

    def __init__(self, keys: int, *, rungs: int = 3) -> None:
        super().__init__("bits", 2 * keys, rungs=rungs)
        self._keys = keys

    def valid(self, answers: NDArray[Any]) -> NDArray[np.bool_]:
        bits = np.unpackbits(answers, axis=1, bitorder="little", count=2 * self._keys)
        return np.asarray(
            super().valid(answers) & ~((bits[:, : self._keys] == 0) & (bits[:, self._keys :] == 1)).any(1)
        )


def survey_of(mechanism: Specification, *, name: str = "test", shards: int = 4, retention_ms: int = 600_000) -> Survey:
    return Survey(
        name=name,
        question="?",
        mechanism=mechanism,
        opens_ms=tuple(range(0, 4_000 * mechanism.rungs, 4_000)),
        jitter_ms=0,
        windows=Windows(WINDOW_MS, WINDOW_MS),
        retention_ms=retention_ms,
        skew_ms=5_000,
        lifetime_epsilon=100.0,
        shards=shards,
        method="stratified",
        alpha=0.05,
        population="fleet",
        accept_risk="",
    )


CATEGORICAL = survey_of(AnyAnswer("index", 5), name="categorical")
WIDE_INDEX = survey_of(AnyAnswer("index", 70_000, rungs=2), name="wide")
BITS_IN_GROUPS = survey_of(AnyAnswer("bits", 128, rungs=3, groups=2), name="bits")
KEY_VALUE_INDEX = survey_of(AnyAnswer("index", 3 * 100, rungs=3), name="keyvalue")
KEY_VALUE_PLANES = survey_of(TwoPlanes(10), name="planes")
WITHDRAWABLE = replace(survey_of(AnyAnswer("index", 6, rungs=3), name="withdrawable"), withdrawable=True)
WITHDRAWABLE_BITS = replace(
    survey_of(AnyAnswer("bits", 20, rungs=2, groups=2), name="withdrawable_bits"), withdrawable=True
)
SURVEYS = (
    CATEGORICAL,
    WIDE_INDEX,
    BITS_IN_GROUPS,
    KEY_VALUE_INDEX,
    KEY_VALUE_PLANES,
    WITHDRAWABLE,
    WITHDRAWABLE_BITS,
)


_USERS: dict[bytes, tuple[int, int]] = {}
"""Shard and number of chained tokens."""


class SurveyDict:
    """Surveys that are all known from the start."""

    def __init__(self, *surveys: Survey) -> None:
        self._surveys = by_digest(surveys)

    def add(self, survey: Survey) -> None:
        """Add a survey, as a file does that comes later."""
        self._surveys = by_digest([*self._surveys.values(), survey])

    def get(self, digest: bytes, now_ms: int) -> Survey | None:  # noqa: ARG002  # always known
        return self._surveys.get(digest)

    def surveys(self, now_ms: int) -> Sequence[Survey]:  # noqa: ARG002  # always known
        return [one for survey in newest(self._surveys.values()).values() for one in (survey, *survey.tier_surveys)]


class Report(NamedTuple):
    """One report as a device sends it."""

    token: bytes
    rung: int
    answer: bytes
    group: int = 0


def shard_of(token: bytes, survey: Survey) -> int:
    return int.from_bytes(token[13:], "little") % survey.shards


def token_in(shard: int, number: int, survey: Survey, window_ms: int = WINDOW) -> bytes:
    """Return token `number` of a shard; it depends on the window where answers can be withdrawn."""
    if survey.withdrawable:
        return _chained(shard, number, survey, window_ms)
    return random.Random(number).randbytes(13) + (shard + survey.shards * (number % 5)).to_bytes(3, "little")


@cache
def _chained(shard: int, number: int, survey: Survey, window_ms: int) -> bytes:
    for attempt in itertools.count():
        secret = random.Random(f"{number} {attempt}").randbytes(16)
        chain = chain_of(secret, survey.mechanism.rungs, survey.digest, window_ms)
        token = hashed(0, survey.digest, window_ms, chain[0])
        if shard_of(token, survey) == shard:
            _USERS[token] = shard, number
            return token
    raise AssertionError


def random_reports(
    survey: Survey, users: int, count: int, rng: random.Random, shard: int | None = None
) -> list[Report]:
    """Return reports of few users, so that all kinds of repetition and contradiction happen."""
    reports = []
    for _ in range(count):
        user = rng.randrange(users)
        place = user % survey.shards if shard is None else shard
        token, rung = token_in(place, user, survey), rng.randrange(survey.mechanism.rungs)
        report = Report(token, rung, random_answer(survey, rng), rng.randrange(survey.mechanism.groups))
        reports.append(withdrawal(survey, token) if survey.withdrawable and rng.random() < 0.1 else report)
    return reports


def of_window(survey: Survey, reports: Iterable[Report], window_ms: int) -> list[Report]:
    """Return the reports as the same users send them for another window: where tokens are chained they differ."""
    if not survey.withdrawable:
        return list(reports)
    return [report._replace(token=token_in(*_USERS[report.token], survey, window_ms)) for report in reports]


def withdrawal(survey: Survey, token: bytes) -> Report:
    """Return the report that withdraws the answer of a token."""
    return Report(token, survey.mechanism.rungs, bytes(survey.mechanism.answer.width))


def random_answer(survey: Survey, rng: random.Random) -> bytes:
    answer = survey.mechanism.answer
    if answer.kind == "index":
        return rng.randrange(answer.size).to_bytes(answer.width, "little")
    bits = rng.getrandbits(answer.size)
    if isinstance(survey.mechanism, TwoPlanes):
        keys = answer.size // 2
        bits &= ~(~bits << keys)
    return bits.to_bytes(answer.width, "little")


def frame_of(
    survey: Survey,
    reports: Sequence[Report],
    *,
    window_ms: int = WINDOW,
    sent_ms: int = NOW_MS,
    shard: int | None = None,
) -> bytes:
    """Return one frame; all reports must be of one shard unless a lie is wanted."""
    columns = wire.Reports(
        tokens=np.frombuffer(b"".join(report.token for report in reports), np.uint8).reshape(-1, TOKEN_BYTES),
        answers=np.frombuffer(b"".join(report.answer for report in reports), np.uint8).reshape(len(reports), -1),
        rungs=np.array([report.rung for report in reports], dtype=np.uint8),
        groups=np.array([report.group for report in reports], dtype=np.uint16) if survey.layout.grouped else None,
        keys=_keys(reports) if survey.withdrawable else None,
    )
    where = shard_of(reports[0].token, survey) if shard is None else shard
    return wire.encode(survey.digest, window_ms, sent_ms, where, columns, survey.layout)


def _keys(reports: Sequence[Report]) -> NDArray[np.uint8]:
    keys = b"".join(key_of(report.token, report.rung) for report in reports)
    return np.frombuffer(keys, np.uint8).reshape(-1, KEY_BYTES)


def messages_of(
    survey: Survey, reports: Iterable[Report], *, partitions: int, window_ms: int = WINDOW
) -> dict[int, bytes]:
    """Return one message for each partition, with one frame for each run of reports of one shard."""
    messages: dict[int, list[bytes]] = {}
    by_shard: dict[int, list[Report]] = {}
    for report in reports:
        by_shard.setdefault(shard_of(report.token, survey), []).append(report)
    for shard, some in by_shard.items():
        messages.setdefault(partition_of(shard, partitions), []).append(frame_of(survey, some, window_ms=window_ms))
    return {partition: b"".join(frames) for partition, frames in messages.items()}


def batch_of(*values: bytes | None, partition: int = 0, start: int = 0, timestamp_ms: int = NOW_MS) -> FetchBatch:
    """Return a batch of messages at consecutive offsets."""
    records = [Record(start + i, timestamp_ms, value) for i, value in enumerate(values)]
    return FetchBatch(TOPIC, partition, start, start + len(values), records)


def oracle(survey: Survey, reports: Iterable[Report]) -> Tally:
    """Return the tally of a *set* of reports: of each token the one that `tests.support.precedence` says."""
    groups, best = survey.mechanism.groups, dict[bytes, Ranked]()
    for report in reports:
        tail = report.group.to_bytes(2, "little") if groups > 1 else b""
        name = report.token[:13] + bytes([shard_of(report.token, survey)])
        best[name] = winner(report.token, best.get(name), (report.rung, report.answer + tail))
    answer = survey.mechanism.answer
    tally = Tally.empty(survey.mechanism.rungs + survey.withdrawable, groups, answer.cells)
    for rung, raw in best.values():
        number, group = int.from_bytes(raw[: answer.width], "little"), int.from_bytes(raw[answer.width :], "little")
        tally.users[rung, group] += 1
        cells = [number] if answer.kind == "index" else [bit for bit in range(answer.size) if number >> bit & 1]
        tally.counts[rung, group, cells] += 1
    return tally


def packed(survey: Survey, reports: Sequence[Report]) -> NDArray[np.uint64]:
    """Return reports as the log holds them, one a row."""
    shape = Shape.of(survey)
    rows = [
        report.token[:13]
        + bytes([report.rung + 1])
        + report.answer
        + (report.group.to_bytes(2, "little") if shape.groups > 1 else b"")
        for report in reports
    ]
    joined = b"".join(row.ljust(shape.entry_bytes, b"\0") for row in rows)
    return np.frombuffer(joined, dtype=np.uint64).reshape(len(reports), shape.entry_words)
