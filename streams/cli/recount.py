"""`thaw recount`: count an export with another engine, and compare with Redis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams.cli.terminal.exports import folder_argument
from streams.cli.terminal.surveys import surveys_named
from streams.cli.terminal.verdicts import closing_line, print_verdicts
from streams.cli.terminal.windows import check_start, window_option
from streams.repair.compare import ExportComparison
from streams.repair.engines import DuckDB, Engine, Spark
from streams.repair.export_files import ExportError, ExportFolder, Part
from streams.repair.verify import Verdict
from streams.settings import REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.redis import RedisStore


@click.command("recount")
@folder_argument
@click.option(
    "--engine", type=click.Choice(["duckdb", "spark"]), default="duckdb", show_default=True, help="What counts."
)
@click.option("--master", help="Where Spark runs, as Spark names it, such as spark://HOST:7077; local[*] if not given.")
@click.option("--survey", help="Only the survey with this name or id.")
@window_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*REDIS, "surveys", "prefix", "reports")
def command(
    folder: Path, engine: str, master: str | None, survey: str | None, window: int | None, as_json: bool, **flags: Any
) -> int:
    """Count the export in FOLDER (`thaw export`) with another engine, estimate, and compare with what Redis holds.

    Each window is counted exactly as far as Redis says it was, so workers may keep running; needs no Kafka. Exit status
    0 if every window that can be checked is equal, 1 if one is different or none can be checked, 75 if Redis is down.
    """
    settings = load_settings(flags)
    if master is not None and engine != "spark":
        raise click.UsageError(f"--master is for --engine spark; got --master {master} and --engine {engine}")
    known = SurveyFolder(settings.surveys_folder, system_clock()).surveys(system_clock())
    # An export holds reports of whole surveys; what tiers know follows from them.
    wanted = surveys_named([one for one in known if one.tier is None], survey, settings.surveys_folder)
    check_start(window, wanted)
    store = open_store(settings)
    export = ExportFolder(folder)
    parts = export.committed()
    since_ms = _counted_since(settings, store, parts[-1])
    counting: Engine = DuckDB() if engine == "duckdb" else Spark(master or "local[*]")
    with counting:
        comparison = ExportComparison(
            export,
            parts,
            store,
            wanted,
            counting,
            topic=settings.reports_topic,
            since_ms=since_ms,
            window_ms=window,
        )
        results = comparison.run()
    verdicts = [verdict for _, some in results for verdict in some]
    for found, some in results:
        # With --json all windows are talk, and those that are not equal worth it.
        shown = [verdict for verdict in some if verdict.status != "equal"] if as_json else some
        if shown:
            print_verdicts(found, shown, f"{folder} with {engine}", err=as_json)
    click.echo(msgspec.json.encode(as_data(engine, verdicts)) if as_json else closing_line(verdicts))
    statuses = {verdict.status for verdict in verdicts}
    return 0 if "equal" in statuses and "different" not in statuses else 1


def _counted_since(settings: Settings, store: RedisStore, part: Part) -> int | None:
    """Return since when reports of the exported topic are counted; None if no others ever were.

    Raises:
        ExportError: what is stored was counted from another topic.
    """
    topic, topic_id = settings.reports_topic, part.reports.topic_id
    noted = store.sources.noted(topic)
    if noted is None:
        return None
    if topic_id and noted.topic_id and topic_id != noted.topic_id:
        raise ExportError(
            f"Redis counts {topic} with id {noted.topic_id}, and the export has the one with id {topic_id}: the topic "
            "was made again; export it into another folder"
        )
    return store.sources.counted_since(topic, noted, store.now_ms())


def as_data(engine: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the outcome under stable keys; `windows` are those that could be compared."""
    numbers = Counter(verdict.status for verdict in verdicts)
    return {
        "engine": engine,
        "windows": numbers["equal"] + numbers["different"],
        "equal": numbers["equal"],
        "different": numbers["different"],
    }
