"""What the counts must be, from the topic alone, in plain Python that shares nothing with the code it judges.

`lost` are tokens whose stored answer is not the one that counts, of those that the broker has, and tokens that the
broker acknowledged and does not have. `double` are users in a tally beyond its distinct tokens. `unequal` are windows
whose tally differs from the oracle's in any number, `stale` those whose stored estimate is not one of that tally.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from confluent_kafka import Consumer, KafkaError, TopicPartition

from estimators.tally import Tally
from producers.survey.survey import Survey
from streams.connections import librdkafka_options
from streams.local.demo_report import WindowJournal, read_journals
from streams.settings import Settings
from streams.store.contract import Store
from streams.store.shape import Key, Shape
from streams.windows.record import decode_estimate
from streams.worker.table import Table, unpack
from tests.support.precedence import Ranked, winner

Best = dict[bytes, Ranked]
"""The rung and answer of each token that count."""
_NONE: Ranked = (-1, b"")
Windows = dict[tuple[str, int], Best]

_FRAME = struct.Struct("<3sBI8sqqHI2x")


def reports(raw: bytes, surveys: Mapping[bytes, Survey]) -> Iterator[tuple[str, int, bytes, int, int]]:
    """Yield survey id, window, token, rung and answer of every report of a message of good frames without groups."""
    position = 0
    while position < len(raw):
        _, _, length, digest, window_ms, _, _, count = _FRAME.unpack_from(raw, position)
        survey, width = surveys[digest], surveys[digest].mechanism.answer.width
        tokens = position + _FRAME.size
        answers = tokens + 16 * count
        rungs = answers + width * count + -width * count % 8
        for i in range(count):
            answer = int.from_bytes(raw[answers + width * i : answers + width * (i + 1)], "little")
            yield survey.id, window_ms, raw[tokens + 16 * i : tokens + 16 * (i + 1)], raw[rungs + i], answer
        position += length


def fold(messages: Iterable[bytes], surveys: Sequence[Survey]) -> tuple[Windows, int]:
    """Return the report that counts per token of every window, and the number of reports."""
    windows: Windows = {}
    known, seen = {survey.digest: survey for survey in surveys}, 0
    widths = {survey.id: survey.mechanism.answer.width for survey in surveys}
    for message in messages:
        for survey_id, window_ms, token, rung, answer in reports(message, known):
            best = windows.setdefault((survey_id, window_ms), {})
            raw = answer.to_bytes(widths[survey_id], "little")
            best[token] = winner(token, best.get(token), (rung, raw))
            seen += 1
    return windows, seen


def tally_of(survey: Survey, best: Best) -> Tally:
    """Count one answer per token."""
    answer = survey.mechanism.answer
    tally = Tally.empty(survey.mechanism.rungs, 1, answer.cells)
    for rung, raw in best.values():
        number = int.from_bytes(raw, "little")
        tally.users[rung, 0] += 1
        cells = [number] if answer.kind == "index" else [bit for bit in range(answer.size) if number >> bit & 1]
        tally.counts[rung, 0, cells] += 1
    return tally


def read_topic(settings: Settings) -> Iterator[bytes]:
    """Yield every committed message that the broker has, partition after partition."""
    options = {"group.id": "chaos-oracle", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer(librdkafka_options(settings) | options | {"isolation.level": "read_committed"})
    topic = settings.reports_topic
    try:
        for partition in range(settings.partitions):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30.0)
            consumer.assign([TopicPartition(topic, partition, 0)])
            position = 0
            while position < end:
                message = consumer.poll(30.0)
                error = None if message is None else message.error()
                if message is None or (error is not None and error.code() != KafkaError._PARTITION_EOF):
                    raise RuntimeError(f"{topic}[{partition}]@{position}: cannot be read back: {error or message}")
                if error is not None:
                    # The end comes with the next offset, behind what was aborted and the marks of transactions.
                    position = message.offset() or 0
                    continue
                position = (message.offset() or 0) + 1
                yield message.value() or b""
    finally:
        consumer.close()


@dataclass
class Verdict:
    """How the store compares with the oracle."""

    windows: int = 0
    reports: int = 0
    tokens: int = 0
    lost: int = 0
    double: int = 0
    unequal: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


def judge(store: Store, surveys: Sequence[Survey], windows: Windows, journals: Path) -> Verdict:
    """Compare every window that the broker has reports of."""
    verdict = Verdict(windows=len(windows))
    by_id = {survey.id: survey for survey in surveys}
    for (survey_id, window_ms), best in sorted(windows.items()):
        survey, shape, name = by_id[survey_id], Shape.of(by_id[survey_id]), f"{survey_id}:{window_ms}"
        found = store.estimates.tally(survey_id, window_ms, survey.shards, shape)
        expected = tally_of(survey, best)
        verdict.tokens += len(best)
        verdict.lost += _lower(store, survey, window_ms, best)
        verdict.double += max(found.total_users - len(best), 0)
        if found != expected:
            difference = int(np.abs(found.counts - expected.counts).sum())
            verdict.unequal.append(f"{name} ({found.total_users} users of {len(best)}, {difference} counts differ)")
        payload = store.estimates.read(survey_id, window_ms)
        users = [] if payload is None else decode_estimate(payload).users_per_rung
        if users != found.users.sum(axis=1).tolist():
            verdict.stale.append(f"{name} (estimate of {users}, tally of {found.users.sum(axis=1).tolist()})")
    for journal in read_journals(journals):
        verdict.lost += _missing(journal, windows.get((journal.survey_id, journal.window_ms), {}))
    return verdict


def _lower(store: Store, survey: Survey, window_ms: int, best: Best) -> int:
    """Count the tokens whose stored answer, read back from the log, is not the one that counts."""
    shape = Shape.of(survey)
    keys = [Key(survey.id, window_ms, shard) for shard in range(survey.shards)]
    stored: Best = {}
    for key, loaded in store.log.load(keys, shape, Table.of_log).items():
        log = unpack(loaded.entries, shape)
        for token, rung, answer in zip(log.tokens, log.rungs, log.answers, strict=True):
            place = token.tobytes() + key.shard.to_bytes(2, "little")
            stored[place] = winner(place, stored.get(place), (int(rung), answer.tobytes()))
    lost = 0
    for token, pair in best.items():
        shard = int.from_bytes(token[13:], "little") % survey.shards
        lost += stored.get(token[:13] + shard.to_bytes(2, "little")) != pair
    return lost


def _missing(journal: WindowJournal, best: Best) -> int:
    """Count the tokens of which the broker acknowledged a rung that it does not have."""
    return sum(
        best.get(token.tobytes(), _NONE)[0] < rung
        for tokens, acked in zip(journal.tokens, journal.acked, strict=True)
        for token, rung in zip(tokens, acked.tolist(), strict=True)
        if rung >= 0
    )
