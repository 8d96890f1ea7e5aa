"""`thaw device`: be a device; show what left one, what it cost and means."""

from __future__ import annotations

import datetime
import json
import math
import os
from pathlib import Path
from typing import Any

import click

from producers.clock import system_clock
from producers.device.ledger import Ledger, LedgerError
from producers.device.page import page_of
from producers.device.statement import SUSPICION, Level, Statement, as_data, meaning, read_statement, switched_off
from producers.device.taking_back import take_back
from producers.device.wishing import wish_next
from streams.cli.terminal.parameters import FiniteRange
from streams.cli.terminal.times import moment_ms
from streams.device.process import Wanted, run_device
from streams.settings import LOGS, load_settings, settings_options

_MOST_WINDOWS = 10


@click.group("device")
def command() -> None:
    """Run a device, or read the ledger of one, as its owner."""


def _default_ledger() -> Path:
    state = os.environ.get("STATE_DIRECTORY") or os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / ("" if "STATE_DIRECTORY" in os.environ else "thaw") / "ledger.sqlite"


@command.command("run")
@click.option(
    "--survey",
    "urls",
    multiple=True,
    metavar="URL",
    help="Address of a survey at a gateway, such as https://reports.example/v1/surveys/ID; repeatable.",
)
@click.option(
    "--value-command",
    "commands",
    multiple=True,
    metavar="CMD",
    help="Shell command that prints the value of a survey, one for each --survey, in their order. It is run once per "
    "window, with THAW_SURVEY_ID and THAW_SURVEY_NAME. No output: this window is not answered.",
)
@click.option("--client-reports", metavar="URL", help="Survey to answer about what could not be sent.")
@click.option(
    "--ledger",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_default_ledger,
    show_default=False,
    help="Ledger; default: $STATE_DIRECTORY/ledger.sqlite, or thaw/ledger.sqlite in the user's state folder.",
)
@click.option("--key", metavar="BASE64", help="Public key that signs surveys; others are refused then.")
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), help="File of the gateway's token.")
@click.option("--ca", type=click.Path(dir_okay=False, path_type=Path), help="CA of the gateway; default: the system's.")
@click.option("--cert", type=click.Path(dir_okay=False, path_type=Path), help="Certificate and key to show (PEM).")
@click.option(
    "--value-key",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File with 32 random bytes or more, not beside the ledger: levels that a survey adds later are released then. "
    "What they are drawn from is kept sealed with it until windows expire.",
)
@click.option("--cap", "caps", multiple=True, metavar="NAME=EPSILON", help="Most per window of a survey; repeatable.")
@click.option("--lifetime", type=FiniteRange(0, 1e9), help="Most in the device's life, over all surveys; default 100.")
@click.option("--unlock", metavar="'E per TIME'", help="How much of that may be spent over time, such as 1 per day.")
@click.option(
    "--catch-up",
    default=60,
    show_default=True,
    type=click.IntRange(1, 100_000),
    help="Most reports a minute, such as after a long time offline.",
)
@settings_options(*LOGS)
def run_command(urls: tuple[str, ...], commands: tuple[str, ...], **given: Any) -> None:
    """Answer surveys until stopped: fetch them, ask a command for values, send through their gateway.

    Everything is in the ledger before it is sent: stop it, kill it or pull the plug at any time, and start it again.
    Values are never logged, and never stored but sealed with the key of --value-key.
    """
    load_settings({name: given.pop(name) for name in LOGS})
    if not urls or len(urls) != len(commands):
        raise click.UsageError(
            f"give one --value-command for each --survey; got {len(urls)} surveys and {len(commands)} commands"
        )
    run_device(Wanted(urls=urls, commands=commands, **given))


@command.command("show")
@click.argument("ledger", type=click.Path(path_type=Path))
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write a page to this file as well.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option(
    "--suspicion",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=SUSPICION,
    show_default=True,
    help="What somebody suspects beforehand, between 0 and 1.",
)
def show_command(ledger: Path, html: Path | None, as_json: bool, suspicion: float) -> None:
    """Show what left the device of LEDGER and when, what it cost, what is left, and what one more level would cost.

    No value and no answer is shown. Only the owner of the file may read it, and only while nobody else can.
    """
    if math.isnan(suspicion):
        raise click.BadParameter("it must be a number between 0 and 1", param_hint="--suspicion")
    try:
        statement = read_statement(ledger, system_clock())
    except LedgerError as error:
        raise click.ClickException(str(error)) from None
    if html is not None:
        _write_private(html, page_of(statement, suspicion))
    if as_json:
        click.echo(json.dumps(as_data(statement, suspicion), allow_nan=False))
    else:
        show(statement, suspicion)


@command.command("off")
@click.argument("ledger", type=click.Path(path_type=Path))
def off_command(ledger: Path) -> None:
    """Withdraw consent: the device of LEDGER draws and sends nothing more, and keeps only what was spent.

    What has left of open windows is withdrawn where its survey allows it; the device sends these withdrawals, so keep
    it running until they have left. All else that has left before stays counted.
    """
    opened, before = _opened(ledger)
    opened.wipe(system_clock())
    opened.close()
    windows = sum(len(survey.windows) for survey in before.surveys)
    click.echo(
        f"Consent is withdrawn: {windows:,} windows and {before.waiting - before.withdrawals:,} waiting reports were "
        f"erased; that {before.spent:.6g} was spent stays recorded."
    )
    _say_withdrawals(ledger)


@command.command("on")
@click.argument("ledger", type=click.Path(path_type=Path))
def on_command(ledger: Path) -> None:
    """Consent again: the device of LEDGER answers windows that it has not answered before."""
    opened, _ = _opened(ledger)
    opened.allow()
    opened.close()
    click.echo("The device answers again, from the next window on.")


@command.command("withdraw")
@click.argument("ledger", type=click.Path(path_type=Path))
@click.option("--survey", "name", metavar="NAME", help="Name or id of one survey; default: all that allow it.")
@click.option(
    "--window", "moment", metavar="TIME", help="Start of one window, as ms or like 2026-01-31T12:00; default: all open."
)
def withdraw_command(ledger: Path, name: str | None, moment: str | None) -> None:
    """Take answers back: the device of LEDGER sends the withdrawals, and does not answer these windows again.

    Only for surveys with withdrawable = true, while the window takes answers. What they cost stays spent.
    """
    window_ms = None if moment is None else _window_ms(moment)
    opened, _ = _opened(ledger)
    try:
        taken = take_back(opened, name, window_ms, system_clock())
    except LedgerError as error:
        raise click.ClickException(str(error)) from None
    finally:
        opened.close()
    click.echo(
        f"{taken.withdrawn:,} windows are taken back"
        + (f", and {taken.erased:,} of which nothing had left are erased" if taken.erased else "")
        + "; what they cost stays spent."
    )
    _say_withdrawals(ledger)


@command.command("release")
@click.argument("ledger", type=click.Path(path_type=Path))
@click.option("--survey", "name", required=True, metavar="NAME", help="Name or id of a survey.")
@click.option(
    "--window",
    "moment",
    metavar="TIME",
    help="Start of one window, as ms or like 2026-01-31T12:00; default: the newest with a level left.",
)
def release_command(ledger: Path, name: str, moment: str | None) -> None:
    """Ask the device of LEDGER to release one level more of a window, whose answers then cost that level together.

    Only for surveys with kind = "on_demand". Asking again before it is released changes nothing. Decide by anything but
    the value: who goes further may tell something by it.
    """
    window_ms = None if moment is None else _window_ms(moment)
    opened, _ = _opened(ledger)
    try:
        wish = wish_next(opened, name, window_ms, system_clock())
    except LedgerError as error:
        raise click.ClickException(str(error)) from None
    finally:
        opened.close()
    click.echo(
        f"Level {_epsilon(wish.epsilon)} of {wish.survey_id}, window from {_moment(wish.window_ms)}, is asked for: the "
        "device releases it when it opens, or says in its log why the person's cap or budget forbids it."
    )


def _window_ms(text: str) -> int:
    try:
        return moment_ms(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is no time; give ms since 1970, or one like 2026-01-31T12:00", param_hint="--window"
        ) from None


def _say_withdrawals(ledger: Path) -> None:
    """Say how many withdrawals wait: no command sends them, since the device alone has their moments and a way out."""
    if waiting := read_statement(ledger, system_clock()).withdrawals:
        click.echo(
            f"{waiting:,} withdrawals still wait, each for a random delay: keep the device running until they are "
            "sent; `thaw device show` says how many are left."
        )


def _opened(path: Path) -> tuple[Ledger, Statement]:
    """Open a ledger for its owner, and only one that exists."""
    try:
        before = read_statement(path, system_clock())
        return Ledger(path), before
    except LedgerError as error:
        raise click.ClickException(str(error)) from None


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read: it tells which surveys a person answered, and when."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        path.chmod(0o600)
        file.write(text)


def show(statement: Statement, suspicion: float) -> None:
    """Print the statement for a person."""
    click.echo(
        f"Spent {statement.spent:.6g} of {_epsilon(statement.limit)} over the lifetime, {_epsilon(statement.left)} left"
        + (f"; {statement.unbounded:,} answers had no finite cost" if statement.unbounded else "")
        + (f"; {statement.waiting:,} reports wait to be sent" if statement.waiting else "")
        + "."
    )
    if not statement.consent:
        click.echo(switched_off(statement.withdrawals))
    click.echo(f"Over the lifetime: {meaning(statement.epsilon, suspicion)}.")
    for survey in statement.surveys:
        click.echo(f"\n{survey.name}: {survey.question or 'its question is not recorded'}")
        protects = f"; it protects {survey.protects}" if survey.protects not in ("", "every value") else ""
        unlock = f", unlocking {survey.unlock}" if survey.unlock else ""
        click.echo(f"  spent {survey.spent:.6g}; it may ask for at most {_epsilon(survey.left)} more{unlock}{protects}")
        for window in survey.windows[:_MOST_WINDOWS]:
            click.echo(f"  window from {_moment(window.window_ms)}")
            for level in window.levels:
                click.echo(f"    level {_epsilon(level.epsilon)}: {_when(level)}")
            click.echo(f"    paid {window.paid:.6g}: {meaning(window.epsilon, suspicion)}")
            if window.withdrawn_ms is not None:
                click.echo(
                    f"    taken back {_moment(window.withdrawn_ms)}: not counted any more; what was seen was seen"
                )
            if window.following is not None:
                click.echo(
                    f"    one more level ({_epsilon(window.following.epsilon)}) would cost "
                    f"{_epsilon(window.following.costs)} more: then {meaning(window.following.epsilon, suspicion)}"
                    + ("; it is asked for" if window.following.wished else "")
                )
        older = len(survey.windows) - _MOST_WINDOWS
        if older > 0:
            click.echo(f"  {older:,} older windows: --html and --json have them")


def _when(level: Level) -> str:
    released = "at an unknown moment" if level.released_ms is None else _moment(level.released_ms)
    if level.waiting:
        return f"released {released}, waits to be sent"
    return f"released {released}" + ("" if level.sent_ms is None else f", sent {_moment(level.sent_ms)}")


def _epsilon(epsilon: float) -> str:
    return "unbounded" if math.isinf(epsilon) else f"{epsilon:.6g}"


def _moment(moment_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(moment_ms / 1_000, datetime.UTC):%Y-%m-%d %H:%M:%S} UTC"
