"""Compares what Redis has counted with a count of an export by another engine, and the estimates that follow from it.

Redis says of every shard below which offset everything is counted. The export is counted up to exactly there, so
workers may run meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow.parquet

from estimators.tally import Tally
from producers.survey.survey import Survey
from producers.wire.frames import Header, headers
from producers.wire.shards import partition_of
from streams.repair.engines import Cut, Engine, Window, tallies
from streams.repair.export_files import REFUSED, REPORTS, ExportError, ExportFolder, Part, Rules, placed
from streams.repair.recount import holds_all
from streams.repair.verify import Part as Differing
from streams.repair.verify import Status, Verdict, other_numbers, stored
from streams.store.contract import Store, StoreCorruptError
from streams.store.shape import Shape
from streams.store.shard_counts import ShardCounts
from streams.windows.proof import Proof, tally_hash
from streams.windows.record import EstimateRecord

_COUNTED, _ESTIMATED = 0, 1
"""Looks at a window: as far as it is counted, and as far as its stored estimate says it was."""
UNKNOWN: Final = "survey"
"""Why frames of a survey are refused that was not known when they were exported."""
MISPLACED: Final = "partition"
"""Why reports are refused that were sent before partitions were added to the topic."""


@dataclass
class _Window:
    """What Redis has of a window."""

    survey: Survey
    window_ms: int
    tally: Tally
    cuts: list[Cut] = field(default_factory=list)
    record: EstimateRecord | None = None
    look: int = _COUNTED
    """At which the stored estimate was computed."""


class ExportComparison:
    """Compares windows.

    Args:
        folder: the export.
        parts: its parts.
        store: what has counted.
        surveys: the surveys that are compared.
        engine: what counts the export.
        topic: the topic that the store counts from.
        since_ms: since when reports of this topic are counted; None if no others ever were.
        window_ms: only windows that start there.
    """

    def __init__(
        self,
        folder: ExportFolder,
        parts: Sequence[Part],
        store: Store,
        surveys: Sequence[Survey],
        engine: Engine,
        *,
        topic: str,
        since_ms: int | None = None,
        window_ms: int | None = None,
    ) -> None:
        self._folder, self._parts, self._store, self._surveys, self._engine = folder, parts, store, surveys, engine
        self._topic, self._since_ms, self._window_ms = topic, since_ms, window_ms
        self._source = parts[-1].reports
        if self._source.topic != topic:
            raise ExportError(f"the export is of topic {self._source.topic}, and Redis counts {topic}; set THAW_PREFIX")
        self._misplaced = self._refused(MISPLACED)
        self._files: dict[str, list[Path]] = {}
        self._starts: dict[str, set[int]] = {}
        for part in parts:
            for file in part.files:
                if file.path.startswith(f"{REPORTS}/"):
                    where = placed(file.path)
                    self._files.setdefault(where["survey"], []).append(folder.path / file.path)
                    self._starts.setdefault(where["survey"], set()).add(int(where["window_ms"]))

    def run(self) -> list[tuple[Survey, list[Verdict]]]:
        """Count all windows with one query for each kind of answer, and compare. Oldest window first."""
        waiting: list[_Window] = []
        verdicts: dict[str, list[Verdict]] = {survey.id: [] for survey in self._surveys}
        unknown = {digest for digest, _ in self._refused(UNKNOWN)}
        for survey in self._surveys:
            for found in self._windows(survey, unknown):
                if isinstance(found, _Window):
                    waiting.append(found)
                else:
                    verdicts[survey.id].append(found)
        shapes = {survey.id: Shape.of(survey) for survey in self._surveys}
        cuts = [cut for one in waiting for cut in one.cuts]
        counted = tallies(self._engine, self._files, self._folder.path / REPORTS, cuts, shapes)
        for one in waiting:
            verdicts[one.survey.id].append(self._verdict(one, counted))
        return [
            (survey, sorted(some, key=lambda verdict: verdict.window_ms))
            for survey in self._surveys
            if (some := verdicts[survey.id])
        ]

    def _windows(self, survey: Survey, unknown: set[bytes]) -> list[_Window | Verdict]:
        shape, now_ms, estimates = Shape.of(survey), self._store.now_ms(), self._store.estimates
        exported = {at for at in self._starts.get(survey.id, ()) if shape.expires_ms(at) > now_ms}
        starts = {*estimates.window_starts(survey.id), *exported}
        wanted = sorted(at for at in starts if self._window_ms in (None, at))
        records = stored(estimates, [survey])
        doubt = self._doubt(survey, unknown)
        found: list[_Window | Verdict] = []
        for window_ms in wanted:
            if doubt:
                found.append(Verdict(window_ms, "unchecked", 0, {}, doubt))
            else:
                found.append(self._look(survey, shape, window_ms, records.get((survey.id, window_ms))))
        return found

    def _doubt(self, survey: Survey, unknown: set[bytes]) -> str:
        """Say why the reports of a survey in the export are not those that its file lets count; empty if they are."""
        again = "export again into another folder"
        if not unknown.isdisjoint(survey.digests):
            return f"reports were exported while the survey was not known; {again}"
        rules = {part.surveys[survey.id] for part in self._parts if survey.id in part.surveys}
        if rules - {Rules.of(survey)}:
            return f"schedule, retention or skew of the survey file have changed since it was exported; {again}"
        return ""

    def _refused(self, reason: str) -> set[tuple[bytes, int]]:
        """Return the survey digests and windows of frames that were refused for this reason."""
        found: set[tuple[bytes, int]] = set()
        for part in self._parts:
            if reason not in part.refused:
                continue
            for file in self._folder.files([part], REFUSED):
                rows = pyarrow.parquet.ParquetFile(file).read(columns=["reason", "frame"]).to_pylist()
                for header in (next(headers(row["frame"])) for row in rows if row["reason"] == reason):
                    if isinstance(header, Header):
                        found.add((header.digest, header.window_ms))
        return found

    def _look(self, survey: Survey, shape: Shape, window_ms: int, record: EstimateRecord | None) -> _Window | Verdict:
        partitions = self._source.partitions
        try:
            counts = self._store.estimates.counts(survey.id, window_ms, shape, topic=self._topic, partitions=partitions)
        except StoreCorruptError as error:
            return Verdict(window_ms, "different", 0, {"tally": f"{error}; `thaw rebuild {survey.id}` repairs it"})
        tally = sum((shard.tally for shard in counts), Tally.empty(shape.rungs, shape.groups, shape.size))
        reason = self._unchecked(counts)
        if reason:
            return Verdict(window_ms, "unchecked", tally.total_users, {}, reason)
        found = _Window(survey, window_ms, tally, record=record)
        found.cuts += [Cut(_COUNTED, survey.id, window_ms, shard, one.offset) for shard, one in enumerate(counts)]
        proof = None if record is None else record.proof
        if proof is None or self._other(proof):
            found.record = None  # it does not say from which reports it was computed
        elif proof.tally != tally_hash(tally):
            found.look = _ESTIMATED
            found.cuts += [
                Cut(_ESTIMATED, survey.id, window_ms, shard, proof.offset(shard)) for shard in range(survey.shards)
            ]
        return found

    def _unchecked(self, counts: Sequence[ShardCounts]) -> str:
        """Say why counts cannot be compared with the export; empty if they can."""
        if not any(one.offset for one in counts):
            return "Redis has counted nothing of the topic"
        if any(one.stamp and one.limit is None for one in counts):
            return "it is not known which offsets Redis has counted"
        if not all(one.exact for one in counts):
            return "workers are counting it at this moment; try again"
        for shard, one in enumerate(counts):
            partition = partition_of(shard, self._source.partitions)
            if one.offset > self._source.end[partition]:
                return (
                    f"partition {partition} of the export ends at offset {self._source.end[partition]}, and Redis has "
                    f"counted up to {one.offset}; run `thaw export` again"
                )
        return ""

    def _other(self, proof: Proof) -> bool:
        """Tell whether the offsets of an estimate are not those of the export, or lie behind its end."""
        ends = self._source.end
        if len(proof.offsets) != len(ends) or any(at > end for at, end in zip(proof.offsets, ends, strict=True)):
            return True
        return bool(proof.topic_id and self._source.topic_id and proof.topic_id != self._source.topic_id)

    def _verdict(self, one: _Window, counted: Mapping[Window, Tally]) -> Verdict:
        right = counted[_COUNTED, one.survey.id, one.window_ms]
        found: dict[Differing, str] = {}
        if right.to_bytes() != one.tally.to_bytes():
            found["tally"] = f"Redis has {one.tally.total_users:,} users, the export {right.total_users:,}" + (
                "" if right.total_users != one.tally.total_users else " with other answers or rungs"
            )
        identical, counted_by = True, ""
        if one.record is not None and one.record.proof is not None:
            counted_by = one.record.proof.thaw
            tally = counted[one.look, one.survey.id, one.window_ms]
            numbers, identical = other_numbers(one.survey, one.record, tally)
            if numbers:
                found["estimate"] = numbers
        missing = self._missing(one) if found else ""
        status: Status = "unchecked" if missing else "different" if found else "equal"
        return Verdict(one.window_ms, status, one.tally.total_users, found, missing, True, identical, counted_by)

    def _missing(self, one: _Window) -> str:
        """Say what the export lacks of a window that does not agree; empty if it should have everything."""
        if any((digest, one.window_ms) in self._misplaced for digest in one.survey.digests):
            return "partitions were added to the topic, and reports from before lie where they do not belong now"
        for partition, held in self._source.held().items():
            if not holds_all(held, one.survey, one.window_ms, self._since_ms):
                return (
                    f"the export has partition {partition} without a gap from offset {held.first_offset} on, and "
                    "reports of this window may have been before it"
                )
        return ""
