"""From messages to changes, without I/O: check every frame, group reports by log, fold them into tables.

A frame is accepted or refused as a whole: one invalid report makes its frame a dead letter, since the sender is broken
and its other reports cannot be trusted more. Other frames of the message are not affected. Where a frame cannot be
delimited (`magic`, `length` of the header), the dead letter holds the rest of the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from producers.survey.lookup import SurveyLookup
from producers.survey.survey import Survey
from producers.wire.layout import DIGEST_BYTES, HEADER_BYTES, SMALLEST_REPORT_BYTES
from producers.wire.shards import partition_of
from streams.kafka.messages import FetchBatch
from streams.store.contract import Change, Shortened
from streams.store.counters import REASONS, UNDECODABLE, UNKNOWN_SURVEY, Counters
from streams.store.log_content import Loaded, is_piece, piece_count
from streams.store.shape import GRACE_MS, Key, Shape
from streams.worker import kernels
from streams.worker.contents import keys_of, valid_answers, without_key
from streams.worker.joined import Joined
from streams.worker.key_chains import wrong_keys
from streams.worker.record_walk import warm_up_walk
from streams.worker.table import Table, patches, tally_bytes
from streams.worker.versions import translate
from streams.worker.words import Ints, Words

_CODE: Final = {reason: code for code, reason in enumerate(("", *REASONS))}
"""0 is a good frame."""
_EXPIRED: Final = len(REASONS) + 1
_PACK_CODES: Final = np.array([_CODE[reason] for reason in kernels.PACK_FAULTS])
_REWRITE_ENTRIES: Final = 256
EXPIRED: Final = "expired"
"""Why a frame in `Checked.expired` is not counted."""


class DeadLetter(NamedTuple):
    """What could not be right: where it was, the reason (one of ALL_REASONS), and the original bytes."""

    topic: str
    partition: int
    offset: int
    reason: str
    frame: bytes
    last_offset: int | None = None
    """Of a record batch that cannot be decoded; `offset` is its first."""
    detail: str = ""
    """What the reason alone does not tell."""


@dataclass
class Checked:
    """What is in a batch of messages: good reports by log (packed, one a row, in order), and everything else."""

    reports: dict[Key, Words] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)
    """By survey id."""
    tiers: dict[str, tuple[Survey, ...]] = field(default_factory=dict)
    """By survey id: what tiers may know of it; `streams.worker.tiers` adds their reports."""
    sent_ms: dict[tuple[str, int], int] = field(default_factory=dict)
    """By survey id and window: when the youngest good frame was sent, as it claims."""
    frames_sent_ms: dict[tuple[str, int], Ints] = field(default_factory=dict)
    """By survey id and window: when each good frame was sent, as it claims."""
    frames: dict[Key, Ints] = field(default_factory=dict)
    """The good frames of each log, in the order of its reports, as `kernels.scan_frames` writes them; messages are
    numbered over all batches."""
    keys: dict[Key, NDArray[np.uint8]] = field(default_factory=dict)
    """If asked for, of logs of withdrawable surveys: the key of each report and the last three bytes of its token."""
    dead_letters: list[DeadLetter] = field(default_factory=list)
    expired: list[DeadLetter] = field(default_factory=list)
    """Frames that came too late, if asked for; they are counted and no dead letters."""
    refused: dict[tuple[str, int | None], Counters] = field(default_factory=dict)
    """Rejected and expired reports, by survey id, and by window where the frame's window can be trusted."""

    def refuse(self, survey_id: str, window_ms: int | None, counters: Counters) -> None:
        """Add to the counters of a survey, or of one of its windows."""
        place = survey_id, window_ms
        self.refused[place] = self.refused.get(place, Counters()) + counters


def check(
    batches: Sequence[FetchBatch],
    surveys: SurveyLookup,
    partitions: int,
    now_ms: int,
    *,
    broker_ms: int | None = None,
    keep_expired: bool = False,
    keep_keys: bool = False,
) -> Checked:
    """Sort the reports of fetch batches: good ones by (survey, window, shard), dead letters, counters of refused ones.

    Args:
        batches: messages of any partitions of one topic.
        surveys: where digests are looked up; asked once per digest.
        partitions: number of partitions of the topic; `partition_of` says which shards belong to each.
        now_ms: the time now, for the lookup of surveys.
        broker_ms: the broker's time, `now_ms` if not given. A report is judged by its record's timestamp; only if its
            window's keys are gone by the broker's time does it count as expired in spite of having come in time.
        keep_expired: also return the bytes of expired frames.
        keep_keys: also return the keys of reports that have some, and the ends of their tokens.

    Long because it is one table of frames from the first step to the last.
    """
    checked = Checked()
    broker_ms = now_ms if broker_ms is None else broker_ms
    _refuse_undecodable(checked, batches)
    batches = [batch for batch in batches if batch.records]
    if not batches:
        return checked
    joined = Joined.of(batches)
    room = int(joined.lengths.sum()) // HEADER_BYTES + len(joined.starts)
    frames = np.zeros((room, kernels.FRAME_FIELDS), dtype=np.int64)
    digests = np.zeros(room, dtype=np.uint64)
    rows = kernels.scan_frames(joined.words, joined.starts, joined.lengths, frames, digests)
    frames, digests = frames[:rows], digests[:rows]
    origins = frames[:, [kernels.START, kernels.LENGTH]].copy()
    words = translate(
        joined.values, joined.starts, joined.words, frames, digests, lambda digest: surveys.get(digest, now_ms)
    )
    codes = frames[:, kernels.FAULT].copy()
    ids = np.full(rows, UNKNOWN_SURVEY, dtype=object)

    known: dict[str, tuple[Survey, list[np.uint64]]] = {}
    for digest in np.unique(digests[codes == kernels.GOOD]):
        found = surveys.get(int(digest).to_bytes(DIGEST_BYTES, "little"), now_ms)
        if found is None:
            codes[(digests == digest) & (codes == kernels.GOOD)] = _CODE["survey"]
            continue
        # Frames of a survey and of one that it continues are of the same logs. Its file may have come just now.
        survey, own = known.get(found.id, (found, []))
        known[found.id] = max(survey, found, key=lambda one: len(one.continued)), [*own, digest]

    for survey, own in known.values():
        chosen = np.flatnonzero(np.isin(digests, own) & (codes == kernels.GOOD))
        ids[chosen] = survey.id
        checked.shapes[survey.id], checked.tiers[survey.id] = Shape.of(survey), survey.tier_surveys
        message = frames[chosen, kernels.MESSAGE]
        codes[chosen] = _judge(
            survey, frames[chosen], joined.timestamps_ms[message], joined.partitions[message], partitions, broker_ms
        )
        chosen = chosen[codes[chosen] == kernels.GOOD]
        if len(chosen):
            timestamps = joined.timestamps_ms[frames[chosen, kernels.MESSAGE]]
            _take(checked, survey, words, frames, timestamps, chosen, codes)
    if keep_keys:
        checked.keys = keys_of(checked.frames, checked.shapes, words)

    for row in np.flatnonzero(codes):
        frames[row, [kernels.START, kernels.LENGTH]] = origins[row]
        _refuse(checked, batches, joined, frames[row], int(codes[row]), ids[row], keep_expired=keep_expired)
    return checked


def _judge(survey: Survey, frames: Ints, timestamps: Ints, partition: Ints, partitions: int, broker_ms: int) -> Ints:
    """Return the code of each frame of one survey, from its header alone.

    Nothing is added to a frame's window, which may be any 64-bit number: sums could wrap around.
    """
    window, shard = frames[:, kernels.WINDOW_MS], frames[:, kernels.SHARD]
    lengths, which = np.unique(frames[:, kernels.COUNT], return_inverse=True)
    expected_bytes = np.array([survey.layout.frame_bytes(count) for count in lengths.tolist()])[which]
    in_time_ms = survey.windows.size_ms + survey.retention_ms
    late = (window <= timestamps - in_time_ms) | (timestamps >= survey.stops_ms)
    return np.asarray(
        np.select(
            [
                frames[:, kernels.LENGTH] != expected_bytes,
                shard >= survey.shards,
                partition_of(shard, partitions) != partition,
                window % survey.windows.step_ms != 0,
                window > timestamps + survey.skew_ms,
                frames[:, kernels.VERSION] != survey.layout.version,
                late | (window <= broker_ms - in_time_ms - GRACE_MS),
            ],
            [*(_CODE[reason] for reason in ("length", "shard", "partition", "window", "future", "key")), _EXPIRED],
            default=kernels.GOOD,
        ),
        dtype=np.int64,
    )


def _opened(survey: Survey, window: Ints, timestamps: Ints) -> Ints:
    """Return how many rungs were open, or nearly so, when frames of these windows came, by the broker's time.

    Rung 0 is open since the start of its window; whether that has come is judged before, as `future`.
    """
    since_end_ms = timestamps - survey.windows.size_ms - window
    return 1 + np.searchsorted(np.array(survey.accepted_ms), since_end_ms, side="right").astype(np.int64)


def _take(
    checked: Checked, survey: Survey, words: Words, frames: Ints, timestamps: Ints, chosen: Ints, codes: Ints
) -> None:
    """Pack the reports of these frames, refuse frames with impossible or early ones, group the rest by log."""
    order = np.lexsort((frames[chosen, kernels.SHARD], frames[chosen, kernels.WINDOW_MS]))
    chosen, timestamps = chosen[order], timestamps[order]
    shape = checked.shapes[survey.id]
    counts = frames[chosen, kernels.COUNT]
    packed: Words = np.empty((int(counts.sum()), shape.entry_words), dtype=np.uint64)
    faults = np.zeros(len(chosen), dtype=np.int64)
    kernels.pack_frames(
        words,
        frames[chosen, kernels.START],
        counts,
        frames[chosen, kernels.SHARD],
        shape.width,
        shape.rungs,
        shape.groups,
        shape.shards,
        _opened(survey, frames[chosen, kernels.WINDOW_MS], timestamps),
        -1 if shape.withdrawal is None else shape.withdrawal,
        packed,
        faults,
    )
    faults = _PACK_CODES[faults]
    _note_faults(faults, counts, ~valid_answers(survey, packed, shape), "answer")
    if shape.withdrawable:
        _note_faults(faults, counts, without_key(survey, words, frames[chosen], packed, shape), "key")
    if faults.any():
        codes[chosen] = faults
        good = faults == kernels.GOOD
        packed, chosen, counts = packed[np.repeat(good, counts)], chosen[good], counts[good]
        if not len(chosen):
            return
    _group(checked, survey.id, frames[chosen], counts, packed)


def _group(checked: Checked, survey_id: str, frames: Ints, counts: Ints, packed: Words) -> None:
    """Cut the packed reports of frames that are sorted by (window, shard) where the log changes."""
    window, shard = frames[:, kernels.WINDOW_MS], frames[:, kernels.SHARD]
    firsts = np.flatnonzero(np.concatenate(([True], (np.diff(window) != 0) | (np.diff(shard) != 0))))
    sent = np.maximum.reduceat(frames[:, kernels.SENT_MS], firsts)
    ends = np.append(np.cumsum(counts)[firsts[1:] - 1], len(packed))
    begin = 0
    for window_ms, number, sent_ms, end, some in zip(
        window[firsts].tolist(),
        shard[firsts].tolist(),
        sent.tolist(),
        ends.tolist(),
        np.split(frames, firsts[1:]),
        strict=True,
    ):
        checked.reports[Key(survey_id, window_ms, number)] = packed[begin:end]
        checked.frames[Key(survey_id, window_ms, number)] = some
        youngest = checked.sent_ms.get((survey_id, window_ms))
        checked.sent_ms[survey_id, window_ms] = sent_ms if youngest is None else max(youngest, sent_ms)
        begin = end
    cuts = np.flatnonzero(np.diff(window)) + 1
    for window_ms, moments in zip(
        window[np.append(0, cuts)].tolist(), np.split(frames[:, kernels.SENT_MS], cuts), strict=True
    ):
        checked.frames_sent_ms[survey_id, window_ms] = moments


def _note_faults(faults: Ints, counts: Ints, wrong: NDArray[np.bool_], reason: str) -> None:
    """Note a fault of frames with a wrong report that have no fault yet."""
    if wrong.any():
        found = np.unique(np.searchsorted(np.cumsum(counts), np.flatnonzero(wrong), side="right"))
        faults[found] = np.where(faults[found] == kernels.GOOD, _CODE[reason], faults[found])


def _refuse_undecodable(checked: Checked, batches: Sequence[FetchBatch]) -> None:
    for batch in batches:
        for found in batch.undecodable:
            checked.refuse(UNKNOWN_SURVEY, None, Counters(rejected={UNDECODABLE: 1}))
            place = batch.topic, batch.partition, found.first_offset
            checked.dead_letters.append(DeadLetter(*place, UNDECODABLE, found.raw, found.last_offset, found.fault))


def _refuse(
    checked: Checked,
    batches: Sequence[FetchBatch],
    joined: Joined,
    frame: Ints,
    code: int,
    survey_id: str,
    *,
    keep_expired: bool,
) -> None:
    length, window_ms = int(frame[kernels.LENGTH]), int(frame[kernels.WINDOW_MS])
    # The header's count is only a claim where the length was not checked against a survey.
    claimed = min(int(frame[kernels.COUNT]), (length - HEADER_BYTES) // SMALLEST_REPORT_BYTES)
    reports = max(1, claimed)
    if code == _EXPIRED:
        checked.refuse(survey_id, window_ms, Counters(expired=reports))
        if not keep_expired:
            return
        reason, refused = EXPIRED, checked.expired
    else:
        reason, refused = REASONS[code - 1], checked.dead_letters
        trusted_ms = window_ms if code >= _CODE["rung"] else None
        checked.refuse(survey_id, trusted_ms, Counters(rejected={reason: reports}))
    message = int(frame[kernels.MESSAGE])
    start = int(frame[kernels.START] - joined.starts[message])
    original = joined.values[message][start : start + length]
    for batch in batches:
        if message < len(batch.records):
            offset = batch.records[message].offset
            refused.append(DeadLetter(batch.topic, batch.partition, offset, reason, original))
            return
        message -= len(batch.records)


@dataclass
class Cached:
    """A worker's copy of one log: its table, the stamp it stands on, how long the log is. May be dropped any time."""

    table: Table
    stamp: bytes
    log_entries: int
    segments: int

    @classmethod
    def of(cls, loaded: Loaded[Table]) -> Cached:
        """Start from what the store returned."""
        return cls(loaded.content, loaded.stamp, loaded.log_entries, loaded.segments)

    @property
    def is_long(self) -> bool:
        """Whether the log is more than twice its live size, and too large to be replaced by one segment."""
        table = self.table
        return self.log_entries > 2 * len(table) and not is_piece(len(table), table.shape.entry_bytes)

    def applied(self, change: Change, stamp: bytes) -> None:
        """Note that the store has made this change and what its stamp is now."""
        self.stamp, self.log_entries = stamp, change.log_entries
        if change.entries:
            added = piece_count(len(change.entries), change.shape.entry_bytes)
            self.segments = 1 if change.rewrite else self.segments + added

    def shortened(self, done: Shortened) -> None:
        """Note that the store has dropped entries that others have replaced."""
        self.stamp, self.segments = done.stamp, done.segments
        self.log_entries -= done.dropped


def fold(key: Key, cached: Cached, reports: Words, shape: Shape) -> Change:
    """Fold packed reports into a cached log and return what the store must do.

    The cached table is changed at once: unless the store then says that it made the change, the copy must be dropped.
    A log of more than twice its live size is replaced, if that is no more than a piece. `shape` says how long the
    window lives from now on; a survey may change that.
    """
    table = cached.table
    before = table.numbers.copy()
    folded = table.fold(reports)
    accepted = len(folded.accepted)
    log_entries = cached.log_entries + accepted
    # Never a log of a single segment: the store tells a half-made rewrite by the number of segments.
    due = log_entries > max(2 * len(table), _REWRITE_ENTRIES) and is_piece(len(table), shape.entry_bytes)
    rewrite = bool(accepted) and cached.segments >= 2 and due
    counters = Counters(accepted, folded.duplicate, folded.outdated, folded.conflicting)
    return Change(
        key=key,
        stamp=cached.stamp,
        entries=table.live() if rewrite else folded.accepted.tobytes(),
        rewrite=rewrite,
        log_entries=len(table) if rewrite else log_entries,
        patches=patches(before, table.numbers) if cached.stamp else [(0, table.tally().to_bytes())],
        tally_bytes=tally_bytes(shape),
        shape=shape,
        counters=counters,
    )


def warm_up() -> None:
    """Compile the inner loops before the first batch needs them: seconds the first time, then from a cache on disk."""
    warm_up_walk()
    none = np.zeros(0, dtype=np.int64)
    words = np.frombuffer(bytes(8), dtype=np.uint64)
    kernels.scan_frames(words, none, none, np.zeros((1, kernels.FRAME_FIELDS), dtype=np.int64), np.zeros(1, np.uint64))
    shape = Shape(kind="index", size=2, width=1, rungs=1, groups=1)
    packed: Words = np.zeros((0, shape.entry_words), dtype=np.uint64)
    kernels.pack_frames(words, none, none, none, 1, 1, 1, 1, none, -1, packed, none)
    wrong_keys(words, none, none, none, none, bytes(DIGEST_BYTES))
    table = Table(shape)
    patches(table.numbers, table.numbers)
    table.fold(packed)
    table.fold_log(b"")
    table.kept(b"")
    table.grow()
