"""Writes the topics of reports and estimates as Parquet, each offset exactly once (streams/repair/export_files.py).

Reports are judged by the code of the workers (`streams.worker.fold.check`) when they are exported: what counts and what
does not are separate tables, so that no other engine needs the rules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow.parquet

from producers.clock import Clock, system_clock
from producers.survey.lookup import SurveyLookup
from producers.survey.survey import Survey
from streams.kafka.messages import FetchBatch
from streams.kafka.reader import Bus
from streams.repair.export_files import (
    ESTIMATES,
    FORMAT,
    REFUSED,
    REPORTS,
    ExportedFile,
    ExportError,
    ExportFolder,
    Part,
    Rules,
    Source,
    part_name,
    reports_path,
)
from streams.repair.export_rows import Traced, estimate_tables, refused_table, report_table, traced
from streams.repair.rebuild import Progress
from streams.store.shape import Key, Shape
from streams.windows.proof import version
from streams.worker.fold import check

PART_BYTES: Final = 128 << 20
"""Bytes of messages in a part. Smaller: more and smaller files, which engines read slowly; larger: more memory, and
more to do again after a kill."""


class _Remembered:
    """Finds surveys, and keeps those it found."""

    def __init__(self, surveys: SurveyLookup) -> None:
        self._surveys = surveys
        self.found: dict[str, Survey] = {}

    def get(self, digest: bytes, now_ms: int) -> Survey | None:
        survey = self._surveys.get(digest, now_ms)
        if survey is not None:
            self.found[survey.id] = survey
        return survey


class _Position:
    """How far a topic was exported, and what of it the next part holds."""

    def __init__(self, topic: str, topic_id: str, partitions: int, last: Source | None) -> None:
        self._topic, self._topic_id = topic, topic_id
        self.start = [0] * partitions if last is None else list(last.end)
        self.end = list(self.start)
        self._missing = [0] * partitions
        self._first: list[tuple[int, int | None]] = [(0, None)] * partitions if last is None else list(last.first)

    def taken(self, batches: Sequence[FetchBatch], bus: Bus) -> None:
        """Note what was read; gaps are what the brokers deleted before it could be."""
        for partition, held in bus.held().items():
            if held.first_offset > self.end[partition]:
                self._missing[partition] += held.first_offset - self.end[partition]
                self.end[partition] = held.first_offset
                self._first[partition] = held.first_offset, None
        for batch in batches:
            self.end[batch.partition] = batch.next_offset
            offset, first_ms = self._first[batch.partition]
            if first_ms is None and batch.records:
                self._first[batch.partition] = offset, batch.records[0].timestamp_ms

    @property
    def moved(self) -> bool:
        """Tell whether there is something for a part."""
        return self.end != self.start

    def source(self) -> Source:
        """Return it for the manifest."""
        return Source(
            self._topic, self._topic_id, list(self.start), list(self.end), list(self._missing), list(self._first)
        )

    def committed(self) -> None:
        """Go on behind the part."""
        self.start, self._missing = list(self.end), [0] * len(self.end)


@dataclass
class _Waiting:
    """What was read and is not committed."""

    reports: dict[Key, list[Traced]] = field(default_factory=dict)
    refused: list[Any] = field(default_factory=list)
    """Tables."""
    estimates: dict[str, list[Any]] = field(default_factory=dict)
    """Tables by survey id."""
    reasons: Counter[str] = field(default_factory=Counter)
    size_bytes: int = 0


class Exporter:
    """Continues an export.

    Args:
        folder: where it is written; taken with `ExportFolder.writing`.
        parts: what it has so far.
        reports: the topic of reports, read from where the export ends (`starts`).
        estimates: the topic of estimates, likewise.
        surveys: where surveys are looked up.
        topics: names of the two topics, and the ids that the brokers gave them.
        tell: called as it goes on with the number of records read.
    """

    def __init__(
        self,
        folder: ExportFolder,
        parts: Sequence[Part],
        reports: Bus,
        estimates: Bus,
        surveys: SurveyLookup,
        *,
        topics: Mapping[str, tuple[str, str]],
        clock: Clock = system_clock,
        tell: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._folder, self._buses, self._clock, self._tell = (
            folder,
            {REPORTS: reports, ESTIMATES: estimates},
            clock,
            tell,
        )
        self._surveys, self._waiting = _Remembered(surveys), _Waiting()
        last = {REPORTS: parts[-1].reports, ESTIMATES: parts[-1].estimates} if parts else {}
        self._at = {
            kind: _Position(*topics[kind], len(bus.held()), last.get(kind)) for kind, bus in self._buses.items()
        }
        self._number = len(parts)
        self.records = 0
        """Records read so far."""
        self.written: list[Part] = []

    def run(self) -> list[Part]:
        """Export all up to the ends that the topics have at this moment; return the new parts.

        Estimates come first, so that every exported estimate is computed from reports that are exported too.
        """
        for kind, take in ((ESTIMATES, self._take_estimates), (REPORTS, self._take_reports)):
            bus, at = self._buses[kind], self._at[kind]
            for batches in bus.read():
                at.taken(batches, bus)
                take(batches)
                self.records += sum(len(batch.records) for batch in batches)
                self._tell(Progress(self.records, 0, None))
                if self._waiting.size_bytes >= PART_BYTES:
                    self._commit()
            at.taken([], bus)
        # An export of empty topics is one too: its first part says so.
        if any(at.moved for at in self._at.values()) or not self._number:
            self._commit()
        return self.written

    def _take_reports(self, batches: Sequence[FetchBatch]) -> None:
        waiting, partitions = self._waiting, len(self._at[REPORTS].end)
        # No window is gone for an export: who counts it leaves out those that are.
        checked = check(
            batches, self._surveys, partitions, self._clock(), broker_ms=0, keep_expired=True, keep_keys=True
        )
        for key, piece in traced(batches, checked):
            waiting.reports.setdefault(key, []).append(piece)
        self._refuse(batches, [*checked.dead_letters, *checked.expired])
        waiting.size_bytes += sum(len(record.value or b"") for batch in batches for record in batch.records)

    def _take_estimates(self, batches: Sequence[FetchBatch]) -> None:
        tables, refused = estimate_tables(batches)
        for survey_id, table in tables.items():
            self._waiting.estimates.setdefault(survey_id, []).append(table)
        self._refuse(batches, refused)
        self._waiting.size_bytes += sum(len(record.value or b"") for batch in batches for record in batch.records)

    def _refuse(self, batches: Sequence[FetchBatch], refused: Sequence[Any]) -> None:
        if refused:
            self._waiting.refused.append(refused_table(batches, refused))
            self._waiting.reasons.update(letter.reason for letter in refused)

    def _commit(self) -> None:
        """Write what waits as a part."""
        waiting, number = self._waiting, self._number + 1
        files: list[ExportedFile] = []

        def write(path: str, table: Any) -> int:
            pyarrow.parquet.write_table(table, self._folder.temporary(len(files)), compression="zstd")
            files.append(ExportedFile(path, table.num_rows))
            return int(table.num_rows)

        rows = dict.fromkeys((REPORTS, REFUSED, ESTIMATES), 0)
        for key, pieces in sorted(waiting.reports.items()):
            shape = Shape.of(self._surveys.found[key.survey_id])
            rows[REPORTS] += write(reports_path(*key, number), report_table(pieces, shape))
        if waiting.refused:
            rows[REFUSED] += write(f"{REFUSED}/{part_name(number)}", pyarrow.concat_tables(waiting.refused))
        for survey_id, tables in sorted(waiting.estimates.items()):
            path = f"{ESTIMATES}/survey={survey_id}/{part_name(number)}"
            rows[ESTIMATES] += write(path, pyarrow.concat_tables(tables))
        part = Part(
            format=FORMAT,
            part=number,
            thaw=version(),
            reports=self._at[REPORTS].source(),
            estimates=self._at[ESTIMATES].source(),
            surveys={name: Rules.of(survey) for name, survey in sorted(self._surveys.found.items())},
            rows=rows,
            refused=dict(sorted(waiting.reasons.items())),
            files=files,
        )
        self._folder.commit(part)
        for at in self._at.values():
            at.committed()
        self._waiting, self._number, self._surveys.found = _Waiting(), number, {}
        self.written.append(part)


def starts(source: Source | None) -> dict[int, int]:
    """Return by partition where an export goes on; empty: at the start."""
    return {} if source is None else dict(enumerate(source.end))


def check_source(source: Source | None, topic: str, topic_id: str, ends: Mapping[int, int]) -> None:
    """Check that an export was made of this topic as it is now.

    Raises:
        ExportError: it was not.
    """
    if source is None:
        return
    elsewhere = "; export into another folder"
    if source.topic != topic:
        raise ExportError(f"the export is of topic {source.topic}, and the settings say {topic}{elsewhere}")
    if source.topic_id and topic_id and source.topic_id != topic_id:
        raise ExportError(f"{topic} was deleted and made again since it was exported{elsewhere}")
    if source.partitions != len(ends):
        raise ExportError(f"{topic} has {len(ends)} partitions, and {source.partitions} were exported{elsewhere}")
    for partition, end in enumerate(source.end):
        if ends[partition] < end:
            raise ExportError(
                f"{topic}[{partition}] ends at offset {ends[partition]}, and the export has it up to {end}: it lost "
                f"records, or was made again{elsewhere}"
            )
