"""`thaw verify`: count again what stored estimates say they contain, and compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.survey import Survey
from streams.cli.terminal.surveys import surveys_named
from streams.cli.terminal.verdicts import closing_line, print_verdicts
from streams.cli.terminal.windows import ProgressLines, check_start, window_option
from streams.kafka.reader import TopicReader
from streams.kafka.topic_state import TopicWatch
from streams.kafka.topics import tier_topics
from streams.repair.export_files import ExportFolder, Part
from streams.repair.verify import Verdict, Verifier, published, stored
from streams.settings import KAFKA, REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.windows.proof import version
from streams.windows.record import EstimateRecord
from streams.windows.rows import parquet_available

Exported = tuple[ExportFolder, list[Part]]


@click.command("verify")
@click.argument("survey", required=False)
@window_option
@click.option(
    "--source",
    type=click.Choice(["topic", "redis"]),
    default="topic",
    show_default=True,
    help="Where estimates are read: those published to the estimates topic, or those stored in Redis.",
)
@click.option(
    "--export",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Count from this export (`thaw export`) instead of Kafka, and check the estimates in it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*KAFKA, *REDIS, "surveys", "prefix", "reports")
def command(
    survey: str | None, window: int | None, source: str, export: Path | None, as_json: bool, **flags: Any
) -> int:
    """Count again from the topic what the estimates of SURVEY (a name or an id; without it, of all surveys) say they
    contain, estimate again, and say for every window whether it is equal.

    Needs the survey files and the right to read two topics, or an export of them; Redis only with --source redis.
    Workers may keep running.
    Exit status 0 if every window that can be checked is equal, 1 if one is different or none can be checked, 75 if
    Kafka or Redis is down.
    """
    settings = load_settings(flags)
    known = SurveyFolder(settings.surveys_folder, system_clock()).surveys(system_clock())
    wanted = surveys_named(known, survey, settings.surveys_folder)
    check_start(window, wanted)
    exported = None if export is None else _opened(export)
    records = _estimates(settings, wanted, source, exported)
    unknown = {survey_id for survey_id, _ in records} - {found.id for found in known}
    if unknown and survey is None:
        click.echo(f"left out: {len(unknown)} surveys without a file in {settings.surveys_folder}", err=True)
    results = []
    for found in wanted:
        chosen = [record for (survey_id, start), record in records.items() if survey_id == found.id]
        chosen = [record for record in chosen if window in (None, record.window_start_ms)]
        if chosen:
            results.append((found, _verify(settings, found, chosen, exported)))
    verdicts = [verdict for _, some in results for verdict in some]
    if as_json:
        click.echo(msgspec.json.encode(as_data(source, results)))
    else:
        for found, some in results:
            print_verdicts(found, some, "Kafka" if export is None else str(export))
        click.echo(closing_line(verdicts))
    statuses = {verdict.status for verdict in verdicts}
    return 0 if "equal" in statuses and "different" not in statuses else 1


def _opened(path: Path) -> Exported:
    if not parquet_available():
        raise click.UsageError(
            "--export needs the package pyarrow, which is not installed; run: pip install 'thaw[export]'"
        )
    folder = ExportFolder(path)
    return folder, folder.committed()


def _estimates(
    settings: Settings, surveys: Sequence[Survey], source: str, exported: Exported | None
) -> dict[tuple[str, int], EstimateRecord]:
    if source == "redis":
        return stored(open_store(settings).estimates, surveys)
    if exported is not None:
        # Half a second, for those who ask for it: optional.
        from streams.repair.export_bus import ExportedEstimates

        return published(ExportedEstimates(*exported))
    found: dict[tuple[str, int], EstimateRecord] = {}
    for topic in [settings.estimates_topic, *tier_topics(settings, [survey.whole for survey in surveys])]:
        with TopicReader(settings, topic) as reader:
            found |= published(reader)
    return found


def _verify(
    settings: Settings, survey: Survey, records: Sequence[EstimateRecord], exported: Exported | None
) -> list[Verdict]:
    tell = ProgressLines(survey.id)
    if exported is not None:
        from streams.repair.export_bus import ExportedReports

        bus = ExportedReports(*exported, survey.whole)
        return _checked(
            Verifier(bus, survey, partitions=bus.partitions, topic_id=bus.topic_id, tell=tell), tell, records
        )
    state = TopicWatch(settings, settings.reports_topic).look()
    with TopicReader(settings, settings.reports_topic) as reader:
        topic_id = "" if state is None else state.topic_id
        verifier = Verifier(reader, survey, partitions=reader.partitions, topic_id=topic_id, tell=tell)
        return _checked(verifier, tell, records)


def _checked(verifier: Verifier, tell: ProgressLines, records: Sequence[EstimateRecord]) -> list[Verdict]:
    verdicts = verifier.run(records)
    tell.done(verifier.progress)
    return verdicts


def as_data(source: str, results: Sequence[tuple[Survey, Sequence[Verdict]]]) -> dict[str, Any]:
    """Return the outcome under stable keys."""
    numbers = Counter(verdict.status for _, verdicts in results for verdict in verdicts)
    return {
        "source": source,
        "thaw": version(),
        "windows": sum(numbers.values()),
        "equal": numbers["equal"],
        "different": numbers["different"],
        "unchecked": numbers["unchecked"],
        "unproven": numbers["unproven"],
        "surveys": [
            {
                "survey": survey.id,
                "windows": [
                    {
                        "start_ms": verdict.window_ms,
                        "status": verdict.status,
                        "users": verdict.users,
                        "differences": dict(verdict.differences),
                        "reason": verdict.reason,
                        "winners_compared": verdict.winners,
                        "identical": verdict.identical,
                        "thaw": verdict.version,
                    }
                    for verdict in verdicts
                ],
            }
            for survey, verdicts in results
        ],
    }
