"""`thaw audit`: attack recorded devices and hold them against their ledgers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from estimators.auditing.declared import NotAuditedError
from estimators.auditing.guesses import ATTACKS
from producers.survey.survey import Survey
from streams.audit import report
from streams.audit.run import Audit, Options, audit
from streams.audit.selftest import SelfTest, self_test
from streams.cli.terminal.parameters import FiniteRange
from streams.cli.terminal.surveys import survey_called
from streams.connections import check_connection
from streams.reproduction.pictures import draw
from streams.settings import KAFKA, Settings, load_settings, settings_options

_WIDTH_WITHOUT_TERMINAL = 120


@click.command("audit")
@click.argument("survey", required=False)
@click.option(
    "--users",
    default=10_000,
    show_default=True,
    type=click.IntRange(1, 10_000_000),
    help="Chains to record; a device in a window is one. More give sharper lower bounds.",
)
@click.option("--crashes", default=24, show_default=True, type=click.IntRange(0, 10_000), help="Crashes to replay.")
@click.option("--seed", default=1, show_default=True, type=click.IntRange(0), help="Of the devices' true values.")
@click.option(
    "--alpha",
    default=1e-6,
    show_default=True,
    type=FiniteRange(0, 0.5, min_open=True, max_open=True),
    help="Chance that a sound device is accused, over all bounds and tests together.",
)
@click.option("--self-test", "testing", is_flag=True, help="Plant defects in the device; exit 1 if one is not caught.")
@click.option("--svg", type=click.Path(dir_okay=False, path_type=Path), help="Write a picture of the levels.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*KAFKA, "prefix", "surveys")
def command(
    survey: str | None,
    users: int,
    crashes: int,
    seed: int,
    alpha: float,
    testing: bool,
    svg: Path | None,
    as_json: bool,
    **flags: Any,
) -> int:
    """Audit SURVEY (a file, or a name or id in the survey folder): are its devices as private as their ledgers say?

    Real devices with known values answer in several processes, are restarted and killed. Everything that they send is
    attacked: lower bounds on epsilon per level and chain, guesses of the value, tests of every declared law, linkage
    across windows. Given a connection to Kafka, reports travel through a topic of their own on that broker.
    Exit status 1 if anything contradicts the ledger.
    """
    settings = load_settings(flags)
    options = Options(users=users, crashes=crashes, seed=seed, alpha=alpha)
    asked = None if survey is None else survey_called(survey, settings)
    if testing:
        _refuse_beside_self_test(svg, flags)
        return _self_test(asked, options, as_json=as_json)
    if asked is None:
        raise click.UsageError("name a survey: a file, or a name or id in the survey folder; or use --self-test")
    broker = _broker(settings, flags)
    if svg is not None:
        # Before the work: a picture that cannot be written should not cost minutes.
        svg.touch()
    try:
        with _progress(asked.id) as tell:
            done = audit(asked, options, settings=broker, tell=tell)
    except NotAuditedError as error:
        _print_not_audited(asked, str(error), options, as_json=as_json)
        return 0
    if svg is not None:
        svg.write_text(draw([report.chart(done)]))
    if as_json:
        click.echo(json.dumps(report.as_json(done), allow_nan=False))
    else:
        _print(done)
    click.echo(report.closing_line(done), err=as_json)
    return 1 if done.contradictions() else 0


def _refuse_beside_self_test(svg: Path | None, flags: dict[str, Any]) -> None:
    """Refuse what would change nothing: defects are planted in devices of this machine, and no picture is drawn."""
    without = [] if svg is None else ["svg"]
    without += [name for name in KAFKA if flags.get(name) is not None]
    if without:
        flag = without[0].replace("_", "-")
        raise click.UsageError(f"--{flag} changes nothing beside --self-test: leave one of the two out")


def _self_test(asked: Survey | None, options: Options, *, as_json: bool) -> int:
    try:
        with _progress("planted defects") as tell:
            found = self_test(options, asked, tell=tell)
    except NotAuditedError as error:
        if asked is None:
            raise
        _print_not_audited(asked, str(error), options, as_json=as_json)
        return 0
    _print_self_test(found, as_json=as_json)
    return 0 if found.passed else 1


def _broker(settings: Settings, flags: dict[str, Any]) -> Settings | None:
    """Return the settings if a flag names a broker or how to reach it."""
    if all(flags.get(name) is None for name in KAFKA):
        return None
    check_connection(settings)
    return settings


@contextmanager
def _progress(name: str) -> Iterator[Callable[[float], None]]:
    """Return what draws the progress of a recording; nothing unless stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(f"recording {name}", total=1.0)
        yield lambda part: bar.update(task, completed=part)


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=_WIDTH_WITHOUT_TERMINAL, highlight=False)


def _print(done: Audit) -> None:
    console = _console()
    console.print(
        f"[bold]{done.survey.id}[/bold] ({done.survey.mechanism.name}): {done.chains:,} chains of {done.devices} "
        f"devices, recorded from {done.source}; false-alarm rate {done.options.alpha:g} over everything"
    )
    table = Table("answers", box=None, padding=(0, 2, 0, 0))
    for name in ("declared", "exact", "charged", "empirical at least", "best possible guess"):
        table.add_column(name, justify="right")
    for row in done.examination.rows:
        numbers = (_epsilon(row.declared), f"{row.exact:.6g}", _epsilon(row.charged), f"{row.empirical.lower:.4g}")
        style = "red" if row.contradictions() else None
        table.add_row(row.name, *numbers, f"{row.best_success:.2%}", style=style)
    console.print(table)
    console.print()
    attacks = Table("attack", "right", "at least", "best possible", "guesses", box=None, padding=(0, 2, 0, 0))
    for guess in done.examination.guesses:
        cells = (guess.attack, f"{guess.share:.2%}", f"{guess.lower:.2%}", f"{guess.best:.2%}", ATTACKS[guess.attack])
        attacks.add_row(*cells, style="red" if guess.contradicts else None)
    console.print(attacks)
    console.print()
    checks = Table("declared laws", "comparisons", "smallest p-value", box=None, padding=(0, 2, 0, 0))
    for family, tests in done.examination.tests.items():
        smallest = min((test.corrected for test in tests), default=1.0) * len(tests)
        comparisons = sum(test.comparisons for test in tests)
        style = "red" if smallest <= done.examination.share else None
        checks.add_row(family, f"{comparisons:,}", f"{min(smallest, 1.0):.2g}", style=style)
    console.print(checks)
    _print_contradictions(console, done.contradictions())


def _print_contradictions(console: Console, sentences: list[str]) -> None:
    for sentence in sentences:
        console.print(f"[red]contradiction:[/red] {escape(sentence)}")


def _print_self_test(found: SelfTest, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.self_test_json(found), allow_nan=False))
        return
    console = _console()
    table = Table("planted defect", "caught", "by", box=None, padding=(0, 2, 0, 0))
    for planted in found.planted:
        by = escape(planted.contradictions[0]) if planted.caught else "nothing"
        table.add_row(planted.defect, "yes" if planted.caught else "[red]no[/red]", by)
    console.print(table)
    for one in found.left_out:
        console.print(f"not planted: {one.defect}: {one.reason}")
    if found.missed:
        console.print(f"not caught with {found.chains:,} chains: {', '.join(found.missed)}")
        console.print("Each changes what leaves devices, but too little to be seen in so few: give more --users.")
    accused = "" if not found.control else f"; the real device is accused: {escape(found.control[0])}"
    caught = sum(planted.caught for planted in found.planted)
    console.print(f"planted {len(found.planted)}, caught {caught}{accused}")


def _print_not_audited(survey: Survey, reason: str, options: Options, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(report.not_audited(survey.id, survey.mechanism.name, reason, options)))
    else:
        click.echo(f"{survey.id}: not audited: {reason}")


def _epsilon(value: float) -> str:
    return "none" if value == float("inf") else f"{value:.6g}"
