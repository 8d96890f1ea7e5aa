"""The folder of an export: which files it has, which offsets they hold, and how a new part of it is committed.

    FOLDER/reports/survey=ID/window_ms=START/shard=N/part-000001.parquet   reports that count, one a row
    FOLDER/refused/part-000001.parquet                                     frames that do not, with the reason
    FOLDER/estimates/survey=ID/part-000001.parquet                         published estimates
    FOLDER/_thaw/part-000001.json                                          manifest: offsets and files of part 1
    FOLDER/_thaw/writing/                                                  files of a part that is not committed yet

An export is a sequence of parts. A part goes on at exactly the offsets at which the one before it ends, and is
committed in this order:

1. write its files into `_thaw/writing/`, and sync them to the disk;
2. write its manifest under a temporary name, sync it, rename it: from here on the part exists;
3. rename its files to where they belong.

Killed before step 2, nothing of the part exists, and the next run removes what was written; killed after it, the next
run does step 3 again. So every offset is in exactly one part, and who reads the folder never sees a report twice.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from producers.survey.survey import Survey
from streams.failures import OutsideError
from streams.kafka.reader import Held

FORMAT: Final = 1
"""Version of columns, names and manifest. A change that older programs cannot read needs another number."""
REPORTS: Final = "reports"
REFUSED: Final = "refused"
ESTIMATES: Final = "estimates"
_OWN: Final = "_thaw"
_WRITING: Final = "writing"


class ExportError(OutsideError):
    """A folder is no export, or cannot be continued; the message says what to do."""


class Source(msgspec.Struct, frozen=True):
    """A topic, and how much of it a part holds. Lists are by partition."""

    topic: str
    topic_id: str
    """The id that the brokers gave the topic; empty where they give none."""
    start: list[int]
    """The part holds every record from this offset on ..."""
    end: list[int]
    """... below this one ..."""
    missing: list[int]
    """... but for so many, which the brokers had deleted before they were read."""
    first: list[tuple[int, int | None]]
    """Where the unbroken sequence up to `end` begins: its first offset, and the broker's time of its first record."""

    @property
    def partitions(self) -> int:
        """Number of partitions."""
        return len(self.end)

    def held(self) -> dict[int, Held]:
        """Return what is held of each partition without a gap."""
        return {partition: Held(*first) for partition, first in enumerate(self.first)}


class ExportedFile(msgspec.Struct, frozen=True):
    """A file of a part: its place below the folder, and its number of rows."""

    path: str
    rows: int


class Rules(msgspec.Struct, frozen=True):
    """What a survey file says of which reports count, and may say otherwise later under the same id."""

    opens_ms: tuple[int, ...]
    retention_ms: int
    skew_ms: int
    expires_ms: int | None = None

    @classmethod
    def of(cls, survey: Survey) -> Rules:
        """Return the rules of a survey."""
        return cls(tuple(survey.opens_ms), survey.retention_ms, survey.skew_ms, survey.registry.expires_ms)


class Part(msgspec.Struct, frozen=True):
    """The manifest of a part."""

    format: int
    part: int
    thaw: str
    """The version that wrote it."""
    reports: Source
    estimates: Source
    surveys: dict[str, Rules]
    """By id: the rules by which reports of this part were judged."""
    rows: dict[str, int]
    """Number of rows by kind: reports, refused, estimates."""
    refused: dict[str, int]
    """Number of refused frames by reason."""
    files: list[ExportedFile]


class ExportFolder:
    """One export. Reading it needs no lock; `writing` takes one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def parts(self) -> list[Part]:
        """Return the parts in order; empty if nothing was exported yet.

        Raises:
            ExportError: a manifest is missing or cannot be read.
        """
        parts: list[Part] = []
        for number, file in enumerate(sorted((self.path / _OWN).glob("part-*.json")), 1):
            try:
                part = msgspec.json.decode(file.read_bytes(), type=Part)
            except msgspec.MsgspecError as error:
                raise ExportError(f"{file} is no manifest of an export: {error}; export into another folder") from error
            if part.format != FORMAT:
                raise ExportError(f"{file} has format {part.format}; this version reads {FORMAT}; update it")
            if part.part != number:
                raise ExportError(f"{self.path} lacks the manifest of part {number}; restore it, or export again")
            parts.append(part)
        return parts

    def committed(self) -> list[Part]:
        """Return the parts of an export that somebody wants to read.

        Raises:
            ExportError: there is none, or one of its files is missing.
        """
        parts = self.parts()
        if not parts:
            raise ExportError(f"{self.path} holds no export; make one with `thaw export {self.path}`")
        for part in parts:
            for file in part.files:
                if not (self.path / file.path).exists():
                    raise ExportError(
                        f"{self.path} lacks {file.path} of part {part.part}; finish it with `thaw export {self.path}`, "
                        "or export into another folder"
                    )
        return parts

    def files(self, parts: Sequence[Part], kind: str) -> list[Path]:
        """Return the committed files of one kind, REPORTS, REFUSED or ESTIMATES."""
        return [self.path / file.path for part in parts for file in part.files if file.path.startswith(f"{kind}/")]

    @contextmanager
    def writing(self) -> Iterator[list[Part]]:
        """Take the folder for writing, finish or remove what a killed run left, and return the parts it has.

        Raises:
            ExportError: another process writes into it, it holds something else, or a file is missing.
        """
        own = self.path / _OWN
        if self.path.is_dir() and not own.is_dir() and any(self.path.iterdir()):
            raise ExportError(f"{self.path} has files that are no export; choose an empty or a new folder")
        (own / _WRITING).mkdir(parents=True, exist_ok=True)
        with (own / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise ExportError(f"another `thaw export` writes into {self.path}; wait for its end") from error
            parts = self.parts()
            for part in parts:
                self._place(part)
            for leftover in [*(own / _WRITING).iterdir(), *own.glob("*.new")]:
                leftover.unlink()
            yield parts

    def temporary(self, number: int) -> Path:
        """Return where file `number` of the next part is written."""
        return self.path / _OWN / _WRITING / f"{number:06d}.parquet"

    def commit(self, part: Part) -> None:
        """Make a part whose files were all written, in the order of `part.files`, a part of the export."""
        own = self.path / _OWN
        for number in range(len(part.files)):
            _sync(self.temporary(number))
        _sync(own / _WRITING)
        new = own / f"part-{part.part:06d}.new"
        new.write_bytes(msgspec.json.format(msgspec.json.encode(part), indent=1))
        _sync(new)
        new.rename(new.with_suffix(".json"))
        _sync(own)
        self._place(part)

    def _place(self, part: Part) -> None:
        """Rename the files of a committed part to where they belong, unless that was done before."""
        for number, file in enumerate(part.files):
            place = self.path / file.path
            if place.exists():
                continue
            written = self.temporary(number)
            if not written.exists():
                raise ExportError(f"{self.path} lacks {file.path} of part {part.part}; restore it, or export again")
            place.parent.mkdir(parents=True, exist_ok=True)
            written.rename(place)


def part_name(number: int) -> str:
    """Return the name of the files of a part."""
    return f"part-{number:06d}.parquet"


def reports_path(survey_id: str, window_ms: int, shard: int, number: int) -> str:
    """Return the place of reports below the folder.

    >>> reports_path("browser-f812bda1", 60_000, 3, 1)
    'reports/survey=browser-f812bda1/window_ms=60000/shard=3/part-000001.parquet'
    """
    return f"{REPORTS}/survey={survey_id}/window_ms={window_ms}/shard={shard}/{part_name(number)}"


def placed(path: str) -> Mapping[str, str]:
    """Return what the folders of a path say of its rows: survey, and for reports window_ms and shard."""
    return dict(piece.split("=", 1) for piece in path.split("/")[1:-1])


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
