"""Engines that count the reports of an export: DuckDB in this process, Spark on this machine or a cluster.

Both run the same two nested GROUP BYs: of every token the report that counts, which is the greatest by `PRECEDENCE`;
then the number of users for each rung, group and answer. Which reports may count was judged when they were exported.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import duckdb
import numpy as np
import pyarrow as pa

from estimators.tally import Tally
from streams.failures import OutsideError
from streams.store.shape import Shape

PRECEDENCE: Final = ("rung", "tie", "group_number", "answer", "bits")
"""The order of the reports of one token: `streams.worker.precedence` as columns of an export. Of two reports with the
same hash the greater number of group and answer counts."""

_WINNERS: Final = """
    SELECT reports.survey, reports.window_ms, cuts.look, reports.shard, reports.token, max({order}) AS best
    FROM reports JOIN cuts
        ON reports.survey = cuts.survey AND reports.window_ms = cuts.window_ms AND reports.shard = cuts.shard
    WHERE reports.kafka_offset < cuts.below
    GROUP BY reports.survey, reports.window_ms, cuts.look, reports.shard, reports.token
"""
_BY_ANSWER: Final = """
    SELECT survey, window_ms, look, best.rung AS rung, best.group_number AS group_number, best.answer AS answer,
        count(*) AS users
    FROM ({winners}) AS winners
    GROUP BY 1, 2, 3, 4, 5, 6
"""
_BY_BYTE: Final = """
    SELECT survey, window_ms, look, rung, group_number, place, substr(bits, place, 2) AS digits, count(*) AS users
    FROM (
        SELECT survey, window_ms, look, best.rung AS rung, best.group_number AS group_number, best.bits AS bits,
            {places} AS place
        FROM ({winners}) AS winners
    ) AS pieces
    GROUP BY 1, 2, 3, 4, 5, 6, 7
"""


_MASTER: Final = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|spark://.+:\d+|yarn|k8s://.+")
_LOGS: Final = Path(__file__).with_name("spark_logs.properties")


class EngineError(OutsideError):
    """An engine is not installed, does not start or gives up; the message says what to do."""


class Cut(NamedTuple):
    """Reports of one log below an offset; `look` tells counts of the same log up to different offsets apart."""

    look: int
    survey: str
    window_ms: int
    shard: int
    below: int


CUT_COLUMNS: Final = Cut._fields
Window = tuple[int, str, int]
"""A look, a survey id, the start of a window."""


class Engine(Protocol):
    """Runs the query on files of an export; use as a context manager."""

    name: str

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...

    def answers(self, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterable[tuple[Any, ...]]:
        """Return survey, window, look, rung, group, answer and number of users, for answers of kind `index`."""
        ...

    def pieces(self, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterable[tuple[Any, ...]]:
        """Return survey, window, look, rung, group, place of two digits, the digits, and number of users."""
        ...


class DuckDB:
    """DuckDB in this process. What does not fit into memory goes to its temporary folder."""

    name = "duckdb"

    def __enter__(self) -> DuckDB:
        self._connection = duckdb.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def answers(self, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """Return the counts of answers."""
        return self._rows(_BY_ANSWER.format(winners=self._winners()), files, cuts)

    def pieces(self, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterable[tuple[Any, ...]]:  # noqa: ARG002
        """Return the counts of pieces of bits."""
        query = _BY_BYTE.format(winners=self._winners(), places="unnest(range(1, length(best.bits), 2))")
        return self._rows(query, files, cuts)

    def _winners(self) -> str:
        fields = ", ".join(f"{name} := {name}" for name in PRECEDENCE)
        return _WINNERS.format(order=f"struct_pack({fields})")

    def _rows(self, query: str, files: Sequence[Path], cuts: Sequence[Cut]) -> Iterator[tuple[Any, ...]]:
        columns = {name: [cut[at] for cut in cuts] for at, name in enumerate(CUT_COLUMNS)}
        try:
            self._connection.register("cuts", pa.table(columns))
            found = self._connection.execute(
                "WITH reports AS (SELECT * FROM read_parquet($files, union_by_name = true, hive_partitioning = true, "
                f"hive_types = {{'survey': VARCHAR, 'window_ms': BIGINT, 'shard': INTEGER}})) {query}",
                {"files": [str(file) for file in files]},
            )
            while rows := found.fetchmany(10_000):
                yield from rows
        except duckdb.Error as error:
            raise EngineError(f"DuckDB gave up: {_first_line(error)}") from error


class Spark:
    """Apache Spark. Executors of a cluster must see the files under the same path.

    Args:
        master: as Spark has it: `local[*]`, `spark://HOST:PORT`, `yarn`, `k8s://...`.
    """

    name = "spark"

    def __init__(self, master: str) -> None:
        self._master = master

    def __enter__(self) -> Spark:
        try:
            from pyspark.errors import PySparkException  # optional: 450 MB
            from pyspark.sql import SparkSession
        except ModuleNotFoundError as error:
            raise EngineError(
                "--engine spark needs the package pyspark, which is not installed; run: pip install 'thaw[spark]'"
            ) from error
        if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
            raise EngineError("Spark needs Java 17, and there is no java here; install it, or set JAVA_HOME")
        if not _MASTER.fullmatch(self._master):
            raise EngineError(
                f"Spark does not start with --master {self._master}; write local[N], local-cluster[N,CORES,MIB], "
                "spark://HOST:PORT, yarn or k8s://URL"
            )
        self._refusals: tuple[type[Exception], ...] = (PySparkException, *_java_errors())
        local = self._master.startswith("local")
        builder = SparkSession.builder.master(self._master).appName("thaw recount")
        options = {
            "spark.driver.defaultJavaOptions": f"-Dlog4j2.configurationFile={_LOGS.as_uri()}",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            # Names of folders are text; the columns are cast below.
            "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
            # On one machine, 200 tasks for every step only take time.
            **({"spark.sql.shuffle.partitions": "8"} if local else {}),
        }
        for name, value in options.items():
            builder = builder.config(name, value)
        try:
            self._session: Any = builder.getOrCreate()
        except self._refusals as error:
            raise EngineError(f"Spark does not start with --master {self._master}: {_first_line(error)}") from error
        return self

    def __exit__(self, *_: object) -> None:
        self._session.stop()

    def answers(self, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterable[tuple[Any, ...]]:
        """Return the counts of answers."""
        return self._rows(_BY_ANSWER.format(winners=self._winners()), files, root, cuts)

    def pieces(self, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterable[tuple[Any, ...]]:
        """Return the counts of pieces of bits."""
        places = "explode(sequence(1, length(best.bits) - 1, 2))"
        return self._rows(_BY_BYTE.format(winners=self._winners(), places=places), files, root, cuts)

    def _winners(self) -> str:
        fields = ", ".join(f"'{name}', {name}" for name in PRECEDENCE)
        return _WINNERS.format(order=f"named_struct({fields})")

    def _rows(self, query: str, files: Sequence[Path], root: Path, cuts: Sequence[Cut]) -> Iterator[tuple[Any, ...]]:
        form = "look INT, survey STRING, window_ms BIGINT, shard INT, below BIGINT"
        kept = ("kafka_offset", "token", *(name for name in PRECEDENCE))
        try:
            self._session.createDataFrame([tuple(cut) for cut in cuts], form).createOrReplaceTempView("cuts")
            reports = self._session.read.option("basePath", str(root)).parquet(*map(str, files))
            reports.selectExpr(
                "survey", "CAST(window_ms AS BIGINT) AS window_ms", "CAST(shard AS INT) AS shard", *kept
            ).createOrReplaceTempView("reports")
            yield from map(tuple, self._session.sql(query).toLocalIterator())
        except self._refusals as error:
            raise EngineError(f"Spark gave up: {_first_line(error)}") from error


def _java_errors() -> tuple[type[Exception], ...]:
    """Return what the bridge to Java raises; it comes with pyspark."""
    import py4j.protocol

    return (py4j.protocol.Py4JError,)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    # Errors of Java begin with a line that says only that there was one.
    return next((line for line in lines if not line.startswith("An error occurred while")), type(error).__name__)[:300]


def tallies(
    engine: Engine, files: Mapping[str, Sequence[Path]], root: Path, cuts: Sequence[Cut], shapes: Mapping[str, Shape]
) -> dict[Window, Tally]:
    """Count logs up to offsets, and return the tallies of their windows.

    Args:
        engine: what counts.
        files: by survey id, the files with its reports.
        root: the folder whose subfolders name survey, window and shard.
        cuts: the logs and offsets.
        shapes: by survey id.
    """
    found = {(cut.look, cut.survey, cut.window_ms): Tally.empty(*_dimensions(shapes[cut.survey])) for cut in cuts}
    for kind in ("index", "bits"):
        some = [cut for cut in cuts if shapes[cut.survey].kind == kind]
        chosen = [file for name in {cut.survey for cut in some} for file in files.get(name, ())]
        if not chosen:
            continue
        if kind == "index":
            _add_answers(found, engine.answers(chosen, root, some))
        else:
            _add_pieces(found, engine.pieces(chosen, root, some), shapes)
    return found


def _dimensions(shape: Shape) -> tuple[int, int, int]:
    return shape.rungs, shape.groups, shape.size


def _add_answers(found: Mapping[Window, Tally], rows: Iterable[tuple[Any, ...]]) -> None:
    for survey, window_ms, look, rung, group, answer, users in rows:
        tally = found[look, survey, window_ms]
        tally.counts[rung, group, answer] += users
        tally.users[rung, group] += users


def _add_pieces(found: Mapping[Window, Tally], rows: Iterable[tuple[Any, ...]], shapes: Mapping[str, Shape]) -> None:
    for survey, window_ms, look, rung, group, place, digits, users in rows:
        shape, tally = shapes[survey], found[look, survey, window_ms]
        # The first digits are of the last byte.
        byte = shape.width - 1 - (place - 1) // 2
        bits = np.unpackbits(np.frombuffer(bytes.fromhex(digits), dtype=np.uint8), bitorder="little")
        cells = 8 * byte + np.flatnonzero(bits)
        tally.counts[rung, group, cells] += users
        if byte == 0:
            tally.users[rung, group] += users
