"""An export read like the topics that it was made of, so that whatever counts from Kafka can count from files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow.parquet

from producers.survey.survey import Survey
from streams.kafka.messages import FetchBatch, Record
from streams.kafka.reader import Held
from streams.repair.export_files import ESTIMATES, REFUSED, REPORTS, ExportFolder, Part, placed
from streams.repair.export_rows import messages_of
from streams.store.counters import UNDECODABLE
from streams.store.shape import Key


class ExportedReports:
    """A `Bus` of the reports of one survey, judged again by whoever reads it: refused frames are given back as well.

    Frames that could not be delimited, and those of other surveys, are refused again. Batches that could not be decoded
    are left out.
    """

    def __init__(self, folder: ExportFolder, parts: Sequence[Part], survey: Survey) -> None:
        self._folder, self._parts, self._survey = folder, parts, survey
        self._read = 0

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic."""
        return self._parts[-1].reports.partitions

    @property
    def topic_id(self) -> str:
        """The id that the brokers gave the topic; empty where they give none."""
        return self._parts[-1].reports.topic_id

    def held(self) -> dict[int, Held]:
        """Return what the export has of each partition without a gap."""
        return self._parts[-1].reports.held()

    def read(self) -> Iterator[list[FetchBatch]]:
        """Return what was not returned before, one part at a time."""
        for part in self._parts[self._read :]:
            self._read += 1
            yield self._batches(part)

    def _batches(self, part: Part) -> list[FetchBatch]:
        source = part.reports
        records: list[list[Record]] = [[] for _ in range(source.partitions)]
        for file in part.files:
            place = self._folder.path / file.path
            if file.path.startswith(f"{REFUSED}/"):
                for row in pyarrow.parquet.ParquetFile(place).read().to_pylist():
                    if row["topic"] == source.topic and row["reason"] != UNDECODABLE:
                        refused = Record(row["kafka_offset"], row["broker_ms"], row["frame"])
                        records[row["kafka_partition"]].append(refused)
            elif file.path.startswith(f"{REPORTS}/survey={self._survey.id}/"):
                where = placed(file.path)
                key = Key(self._survey.id, int(where["window_ms"]), int(where["shard"]))
                table = pyarrow.parquet.ParquetFile(place).read()
                for partition, message in messages_of(self._survey, key, table):
                    records[partition].append(message)
        return [
            FetchBatch(source.topic, partition, start, end, sorted(some, key=lambda record: record.offset))
            for partition, (start, end, some) in enumerate(zip(source.start, source.end, records, strict=True))
            if end > start
        ]


class ExportedEstimates:
    """A `Bus` of all exported estimates."""

    def __init__(self, folder: ExportFolder, parts: Sequence[Part]) -> None:
        self._folder, self._parts = folder, parts

    def held(self) -> dict[int, Held]:
        """Return what the export has of each partition without a gap."""
        return self._parts[-1].estimates.held()

    def read(self) -> Iterator[list[FetchBatch]]:
        """Return everything."""
        for part in self._parts:
            source = part.estimates
            records: list[list[Record]] = [[] for _ in range(source.partitions)]
            for place in self._folder.files([part], ESTIMATES):
                columns = ["kafka_partition", "kafka_offset", "broker_ms", "record"]
                for row in pyarrow.parquet.ParquetFile(place).read(columns=columns).to_pylist():
                    records[row["kafka_partition"]].append(Record(row["kafka_offset"], row["broker_ms"], row["record"]))
            yield [
                FetchBatch(source.topic, partition, start, end, sorted(some, key=lambda record: record.offset))
                for partition, (start, end, some) in enumerate(zip(source.start, source.end, records, strict=True))
                if end > start
            ]
