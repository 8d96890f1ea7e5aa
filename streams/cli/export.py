"""`thaw export`: write the topics of reports and estimates as Parquet files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams.cli.terminal.exports import folder_argument
from streams.cli.terminal.windows import ProgressLines
from streams.kafka.reader import TopicReader
from streams.kafka.topic_state import TopicWatch
from streams.repair.export import Exporter, check_source, starts
from streams.repair.export_files import ESTIMATES, REFUSED, REPORTS, ExportFolder, Part, Source
from streams.settings import KAFKA, Settings, load_settings, settings_options


class _Topic(NamedTuple):
    """One of the two topics, open for reading from where the export ends."""

    name: str
    id: str
    reader: TopicReader
    starts: dict[int, int]
    ends: dict[int, int]


@click.command("export")
@folder_argument
@click.option("--dry-run", is_flag=True, help="Print which offsets would be exported; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*KAFKA, "surveys", "prefix", "reports")
def command(folder: Path, dry_run: bool, as_json: bool, **flags: Any) -> int:
    """Write the topics of reports and estimates as Parquet files into FOLDER, up to the ends that they have now.

    Run it again, or after a kill, and it goes on where it stopped: every offset is exported exactly once. Reports are
    judged as workers judge them; what does not count is in a table of its own, with the reason. Needs the right to read
    two topics; joins no consumer group. Exit status 75 if Kafka is down.
    """
    settings = load_settings(flags)
    export = ExportFolder(folder)
    if dry_run:
        with _topics(settings, export.parts()) as topics:
            planned = {kind: _span(topic) for kind, topic in topics.items()}
        data = {"folder": str(folder), **planned}
        if as_json:
            click.echo(msgspec.json.encode(data))
        else:
            for kind, spans in planned.items():
                for span in spans:
                    click.echo(f"{kind}: partition {span['partition']}, offsets {span['start']} to {span['end']}")
            click.echo(f"nothing written; {sum(map(len, planned.values()))} partitions have something new")
        return 0
    surveys = SurveyFolder(settings.surveys_folder, system_clock())
    with export.writing() as parts, _topics(settings, parts) as topics:
        tell = ProgressLines(str(folder))
        exporter = Exporter(
            export,
            parts,
            topics[REPORTS].reader,
            topics[ESTIMATES].reader,
            surveys,
            topics={kind: (topic.name, topic.id) for kind, topic in topics.items()},
            tell=tell,
        )
        written = exporter.run()
    _tell_missing(written)
    if as_json:
        click.echo(msgspec.json.encode(as_data(folder, len(parts), written)))
    else:
        click.echo(closing_line(folder, written))
    return 0


@contextmanager
def _topics(settings: Settings, parts: Sequence[Part]) -> Iterator[dict[str, _Topic]]:
    """Open both topics where an export goes on, after checking that they are those that it was made of."""
    last: dict[str, Source] = {REPORTS: parts[-1].reports, ESTIMATES: parts[-1].estimates} if parts else {}
    names = {REPORTS: settings.reports_topic, ESTIMATES: settings.estimates_topic}
    begins = {kind: starts(last.get(kind)) for kind in names}
    with (
        TopicReader(settings, names[REPORTS], start=begins[REPORTS]) as reports,
        TopicReader(settings, names[ESTIMATES], start=begins[ESTIMATES]) as estimates,
    ):
        topics = {}
        for kind, reader in ((REPORTS, reports), (ESTIMATES, estimates)):
            ends, state = reader.ends(), TopicWatch(settings, names[kind]).look()
            topic_id = "" if state is None else state.topic_id
            check_source(last.get(kind), names[kind], topic_id, ends)
            topics[kind] = _Topic(names[kind], topic_id, reader, begins[kind], ends)
        yield topics


def _span(topic: _Topic) -> list[dict[str, int]]:
    """Return which offsets are new, by partition."""
    held = topic.reader.held()
    spans = [
        {"partition": at, "start": max(topic.starts.get(at, 0), held[at].first_offset), "end": end}
        for at, end in sorted(topic.ends.items())
    ]
    return [span for span in spans if span["end"] > span["start"]]


def _tell_missing(written: Sequence[Part]) -> None:
    missing = sum(sum(part.reports.missing) + sum(part.estimates.missing) for part in written)
    if missing:
        click.echo(
            f"{missing:,} offsets were deleted by the brokers before they could be exported; export more often, or "
            "let topics keep their records longer",
            err=True,
        )


def as_data(folder: Path, earlier: int, written: Sequence[Part]) -> dict[str, Any]:
    """Return what was done under stable keys."""
    refused: Counter[str] = Counter()
    for part in written:
        refused.update(part.refused)
    return {
        "folder": str(folder),
        "parts": earlier + len(written),
        "new_parts": len(written),
        "files": sum(len(part.files) for part in written),
        **{kind: sum(part.rows[kind] for part in written) for kind in (REPORTS, REFUSED, ESTIMATES)},
        "reasons": dict(sorted(refused.items())),
        "missing_offsets": sum(sum(part.reports.missing) + sum(part.estimates.missing) for part in written),
        "ends": written[-1].reports.end if written else None,
    }


def closing_line(folder: Path, written: Sequence[Part]) -> str:
    """Return what was done."""
    if not written:
        return f"{folder}: nothing new"
    told = as_data(folder, 0, written)
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in told["reasons"].items())
    refused = f"{told['refused']:,} refused frames" + (f" ({reasons})" if reasons else "")
    return (
        f"{folder}: {told['reports']:,} reports, {refused} and {told['estimates']:,} estimates in {told['files']:,} "
        "new files"
    )
