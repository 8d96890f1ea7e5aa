"""`thaw reproduce`: repeat the experiments of the papers and judge every number."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from estimators.reproduction.laboratory import Laboratory
from estimators.reproduction.registry import EXPERIMENTS
from streams.reproduction import report
from streams.reproduction.datasets import PackagedData
from streams.reproduction.pictures import draw
from streams.reproduction.published import load_published
from streams.reproduction.report import Finding
from streams.reproduction.run import UnknownExperimentError, chosen, perform

_WIDTH_WITHOUT_TERMINAL = 160


@click.command("reproduce")
@click.argument("names", nargs=-1, required=True)
@click.option("--quick", is_flag=True, help="Fewer repetitions: all experiments in under five minutes.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Of all simulations.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one row per number.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--svg", type=click.Path(file_okay=False, path_type=Path), help="Folder for one picture per experiment.")
def command(names: tuple[str, ...], quick: bool, seed: int, as_csv: bool, as_json: bool, svg: Path | None) -> int:
    """Perform the experiments NAMES: names, patterns such as 'pan-*', or `all`. `list` prints the names.

    Exit status 1 if a number differs from a published one and no known correction explains it.
    """
    if names == ("list",):
        listed = [{"name": e.name, "paper": e.paper, "title": e.title} for e in EXPERIMENTS.values()]
        click.echo(json.dumps(listed) if as_json else "\n".join(EXPERIMENTS))
        return 0
    if as_csv and as_json:
        raise click.UsageError("--csv and --json exclude each other; choose one")
    try:
        experiments = chosen(names)
    except UnknownExperimentError as error:
        raise click.UsageError(str(error)) from error
    if svg is not None:
        svg.mkdir(parents=True, exist_ok=True)
    laboratory = Laboratory(load_published(), PackagedData(), seed=seed, quick=quick)
    findings = []
    with _progress(len(experiments)) as bar:
        for finding in perform(experiments, laboratory, tell=bar.begin):
            findings.append(finding)
            if not as_csv and not as_json:
                with bar.hidden():
                    _print(finding)
            if svg is not None and finding.result.charts:
                (svg / f"{finding.experiment.name}.svg").write_text(draw(finding.result.charts))
    if as_csv:
        click.echo(report.csv_text(findings), nl=False)
    elif as_json:
        click.echo(json.dumps(report.as_json(findings, seed=seed, quick=quick), allow_nan=False))
    click.echo(report.closing_line(findings), err=as_csv or as_json)
    return 1 if report.counts(findings)["differs"] else 0


@dataclass(frozen=True)
class _Bar:
    """What the loop over experiments tells the bar."""

    begin: Callable[[str], None]
    """Takes the name of the experiment that is about to run."""
    hidden: Callable[[], AbstractContextManager[None]]
    """Clears the bar's line for what is printed inside."""


@contextmanager
def _progress(total: int) -> Iterator[_Bar]:
    """Show a bar on stderr if that is a terminal, which may be the one that stdout prints on."""
    if not sys.stderr.isatty():
        yield _Bar(lambda _: None, nullcontext)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        started = 0

        def begin(name: str) -> None:
            nonlocal started
            progress.update(task, description=name, completed=started)
            started += 1

        @contextmanager
        def hidden() -> Iterator[None]:
            progress.stop()
            yield
            progress.start()

        yield _Bar(begin, hidden)


def _print(finding: Finding) -> None:
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH_WITHOUT_TERMINAL)
    experiment = finding.experiment
    console.print(f"[bold]{experiment.name}[/bold]  {experiment.paper}, {experiment.title}", highlight=False)
    table = Table("number", "expected", "ours", "verdict", "place", box=None, padding=(0, 2, 0, 0))
    colours = {"differs": "red", "explained": "yellow"}
    for line in finding.result.lines:
        cells = (line.what, report.against_text(line), report.ours_text(line), report.verdict_text(line), line.place)
        table.add_row(*(cell.replace("[", "\\[") for cell in cells), style=colours.get(line.verdict))
    console.print(table, highlight=False)
    for note in finding.result.notes:
        console.print(note, style="dim", highlight=False, markup=False)
    console.print()
