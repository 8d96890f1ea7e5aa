"""What the counts must be, from the topic alone, in plain Python that shares nothing with the code it judges.

`lost` are tokens whose stored answer is not the one that counts, of those that the broker has, and tokens that the
broker acknowledged and does not have. `backlog` are those that it has behind a transaction that nobody ended: they can
be neither read nor counted until someone ends it. `double` are users in a tally beyond its distinct tokens. `unequal`
are windows whose tally differs from the oracle's in any number, `stale` those whose stored estimate is not one of that
tally.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from estimators.tally import Tally
from producers.survey.survey import Survey
from streams.local.demo_report import WindowJournal, read_journals
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


def judged_as(surveys: Iterable[Survey]) -> dict[bytes, Survey]:
    """Return the survey as whose answers those of frames with a digest count."""
    return {digest: survey for survey in surveys for digest in survey.digests}


def fold(messages: Iterable[bytes], surveys: Sequence[Survey]) -> tuple[Windows, int]:
    """Return the report that counts per token of every window, and the number of reports."""
    windows: Windows = {}
    known, seen = judged_as(surveys), 0
    by_id = {survey.id: survey for survey in surveys}
    for message in messages:
        for survey_id, window_ms, token, rung, answer in reports(message, known):
            survey = by_id[survey_id]
            raw = answer.to_bytes(survey.mechanism.answer.width, "little")
            for name in _audiences(survey, rung):
                best = windows.setdefault((name, window_ms), {})
                best[token] = winner(token, best.get(token), (rung, raw))
            seen += 1
    return windows, seen


def _audiences(survey: Survey, rung: int) -> list[str]:
    """Return the ids under which a report of this rung counts: those of tiers that may know it, and the survey's."""
    withdrawn = rung == survey.mechanism.rungs
    told = [tier.id for tier in survey.tier_surveys if withdrawn or rung <= tier.highest_rung]
    return [survey.id, *told]


def tally_of(survey: Survey, best: Best) -> Tally:
    """Count one answer per token."""
    answer = survey.mechanism.answer
    tally = Tally.empty(survey.mechanism.rungs + survey.withdrawable, 1, answer.cells)
    for rung, raw in best.values():
        number = int.from_bytes(raw, "little")
        tally.users[rung, 0] += 1
        cells = [number] if answer.kind == "index" else [bit for bit in range(answer.size) if number >> bit & 1]
        tally.counts[rung, 0, cells] += 1
    return tally


@dataclass
class Verdict:
    """How the store compares with the oracle."""

    windows: int = 0
    reports: int = 0
    tokens: int = 0
    lost: int = 0
    backlog: int = 0
    double: int = 0
    unequal: list[str] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)


def judge(
    store: Store, surveys: Sequence[Survey], windows: Windows, journals: Path, waiting: Windows | None = None
) -> Verdict:
    """Compare every window that the broker has reports of; `waiting` are those behind a transaction."""
    verdict = Verdict(windows=len(windows))
    by_id = {one.id: one for survey in surveys for one in (survey, *survey.tier_surveys)}
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
        record = None if payload is None else decode_estimate(payload)
        users = [] if record is None else record.users_per_rung
        if record is not None and survey.withdrawable:
            users = [*users, record.withdrawn or 0]
        if users != found.users.sum(axis=1).tolist():
            verdict.stale.append(f"{name} (estimate of {users}, tally of {found.users.sum(axis=1).tolist()})")
    for journal in read_journals(journals):
        window = (journal.survey_id, journal.window_ms)
        missing = _missing(journal, windows.get(window, {}))
        waits = (waiting or {}).get(window, {})
        behind = sum(waits.get(token, _NONE)[0] >= rung for token, rung in missing.items())
        verdict.lost += len(missing) - behind
        verdict.backlog += behind
    return verdict


def _lower(store: Store, survey: Survey, window_ms: int, best: Best) -> int:
    """Count the tokens whose stored answer, read back from the log, is not the one that counts."""
    shape = Shape.of(survey)
    keys = [Key(survey.id, window_ms, shard) for shard in range(survey.shards)]
    stored: Best = {}
    for key, loaded in store.log.load(keys, shape, Table.of_log, whole=True).items():
        log = unpack(loaded.entries, shape)
        for token, rung, answer in zip(log.tokens, log.rungs, log.answers, strict=True):
            place = token.tobytes() + key.shard.to_bytes(2, "little")
            stored[place] = winner(place, stored.get(place), (int(rung), answer.tobytes()))
    lost = 0
    for token, pair in best.items():
        shard = int.from_bytes(token[13:], "little") % survey.shards
        lost += stored.get(token[:13] + shard.to_bytes(2, "little")) != pair
    return lost


def _missing(journal: WindowJournal, best: Best) -> dict[bytes, int]:
    """Return the tokens of which the broker acknowledged a rung that cannot be read, with that rung."""
    return {
        token.tobytes(): rung
        for tokens, acked in zip(journal.tokens, journal.acked, strict=True)
        for token, rung in zip(tokens, acked.tolist(), strict=True)
        if rung >= 0 and best.get(token.tobytes(), _NONE)[0] < rung
    }
