"""`thaw fleet`: simulate devices that report to Kafka, or through a gateway."""

from __future__ import annotations

import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from producers.simulation.run import Progress
from producers.simulation.scenarios import SCENARIOS
from producers.survey.survey import load_survey
from streams.cli.terminal.parameters import FiniteRange
from streams.local.fleet import FleetEndedError, FleetError, FleetOptions, run_fleet
from streams.settings import KAFKA, LOGS, REDIS, Settings, load_settings, settings_options
from streams.urls import is_web_address, without_secrets

LIVE_TICK_MS, FAST_TICK_MS = 100, 2_000
"""Shorter: smaller frames, which cost fleet, broker and workers more; longer: reports that are due wait."""


@click.command("fleet")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False), metavar="[SURVEYS]...")
@click.option("--devices", default=100_000, show_default=True, type=click.IntRange(1, 100_000_000))
@click.option(
    "--scenario",
    default="steady",
    show_default=True,
    type=click.Choice([*SCENARIOS, "flights"]),
    help="Behaviour of the fleet; `flights` replays the carriers of flights from New York in 2013 (thaw[flights]).",
)
@click.option(
    "--data",
    type=click.Choice(["real", "synthetic"]),
    default="synthetic",
    show_default=True,
    help="real: replay data that an installed package ships for a survey, where there are any (thaw[data]).",
)
@click.option("--jump", help="WINDOW:VALUE:SHARE: from that window on, the value with that index has that share.")
@click.option(
    "--seed", type=click.IntRange(0), help="Seed of everything that the fleet does; random, and printed, if absent."
)
@click.option(
    "--windows", type=click.IntRange(1, 10_000_000), help="Stop after this many windows; default: run until stopped."
)
@click.option("--rate", type=FiniteRange(1, 1e9), help="At most this many reports per second.")
@click.option(
    "--pace",
    type=click.Choice(["live", "fast"]),
    default="live",
    show_default=True,
    help="live: send reports when they are due. fast: send past windows as fast as the broker accepts them.",
)
@click.option("--processes", default=1, show_default=True, type=click.IntRange(1, 64))
@click.option("--canary", is_flag=True, help="Take devices, seed and true shares from the survey's [canary] table.")
@click.option(
    "--first-window-ms", type=click.IntRange(0, 1 << 53), help="Start of the first window; needed to continue a fleet."
)
@click.option(
    "--tick-ms",
    type=click.IntRange(1, 60_000),
    help=f"Reports that are due within it are sent together; default: {LIVE_TICK_MS}, with --pace fast {FAST_TICK_MS}.",
)
@click.option(
    "--journal", type=click.Path(file_okay=False), help="Folder to record which reports the broker has acknowledged."
)
@click.option(
    "--truth/--no-truth",
    default=True,
    show_default=True,
    help="Write the simulated truth to Redis; with --canary also the lower bound on epsilon that its answers prove.",
)
@click.option(
    "--api-version", help="Kafka protocol version, such as 2.3, for brokers that do not announce it (the embedded one)."
)
@click.option("--json", "as_json", is_flag=True, help="Print the number of reports sent as one JSON object.")
@click.option("--gateway", help="Send through the gateway at this address instead of to the broker.")
@click.option("--dealer", help="Every device asks the dealer at this address for a card before it answers.")
@settings_options(*KAFKA, *REDIS, "prefix", "reports", "surveys", *LOGS)
def command(
    files: tuple[str, ...],
    devices: int,
    scenario: str,
    data: str,
    jump: str | None,
    seed: int | None,
    windows: int | None,
    rate: float | None,
    pace: str,
    processes: int,
    canary: bool,
    first_window_ms: int | None,
    tick_ms: int | None,
    journal: str | None,
    truth: bool,
    api_version: str | None,
    gateway: str | None,
    dealer: str | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Simulate devices that answer SURVEYS (files; default: all in the surveys folder, or its canaries).

    Devices are rows of arrays, so a million of them fit. What a device does is a function of the seed, the survey, the
    window and its number: a fleet that was killed and is started again sends the same reports.
    """
    settings = load_settings(flags)
    if pace == "fast" and windows is None:
        raise click.UsageError("--pace fast needs --windows: how many windows of the past to send")
    options = FleetOptions(
        settings=settings,
        files=files or _default_files(settings, canary=canary),
        devices=devices,
        scenario=scenario,
        real_data=data == "real",
        jump=_parse_jump(jump),
        seed=secrets.randbits(32) if seed is None else seed,
        windows=windows,
        rate=rate,
        live=pace == "live",
        canary=canary,
        first_window_ms=first_window_ms,
        tick_ms=tick_ms or (LIVE_TICK_MS if pace == "live" else FAST_TICK_MS),
        journal=journal,
        truth=truth,
        processes=processes,
        gateway=_checked_address("--gateway", "reports", gateway),
        dealer=_checked_address("--dealer", "dealer", dealer),
        api_version=_parse_version(api_version),
    )
    _run(options, as_json=as_json)


def _run(options: FleetOptions, *, as_json: bool) -> None:
    click.echo(f"seed {options.seed}", err=True)
    started = time.monotonic()
    try:
        with _terminal_progress(options) as tell:
            progress = run_fleet(options, tell)
    except FleetError as error:
        raise click.UsageError(str(error)) from error
    except FleetEndedError as error:
        raise click.ClickException(str(error)) from error
    _print(options.seed, progress, time.monotonic() - started, as_json=as_json)


def _print(seed: int, progress: Progress, seconds: float, *, as_json: bool) -> None:
    if as_json:
        done = {"seed": seed, "reports": progress.reports, "messages": progress.messages, "seconds": seconds}
        click.echo(json.dumps(done))
    else:
        rate = progress.reports / max(seconds, 1e-9)
        click.echo(f"{progress.reports:,} reports in {progress.messages:,} messages, {rate:,.0f} a second")


def _default_files(settings: Settings, *, canary: bool) -> tuple[str, ...]:
    paths = sorted(settings.surveys_folder.glob("*.toml"))
    found = [str(path) for path in paths if (load_survey(path).canary is not None) == canary]
    if not found:
        raise click.UsageError(f"no {'canary' if canary else 'survey'} file in {settings.surveys_folder}; name one")
    return tuple(found)


def _checked_address(flag: str, host: str, url: str | None) -> str:
    if url is not None and not is_web_address(url):
        raise click.BadParameter(f"{flag} must be like https://{host}.example; got {without_secrets(url)!r}")
    return url or ""


def _parse_jump(text: str | None) -> tuple[int, int, float] | None:
    if text is None:
        return None
    try:
        window, value, share = text.split(":")
        jump = int(window), int(value), float(share)
    except ValueError:
        jump = -1, -1, -1.0
    if jump[0] < 0 or jump[1] < 0 or not 0.0 <= jump[2] <= 1.0:
        raise click.BadParameter(
            f"write --jump as WINDOW:VALUE:SHARE, such as 5:0:0.5, with a share from 0 to 1; got {text!r}"
        )
    return jump


def _parse_version(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    parts = text.split(".")
    if not 2 <= len(parts) <= 3 or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise click.BadParameter(f"write --api-version as numbers with points between, such as 2.3; got {text!r}")
    return tuple(map(int, parts))


@contextmanager
def _terminal_progress(options: FleetOptions) -> Iterator[Callable[[Progress], None]]:
    """Return what draws the progress of a fleet; nothing unless stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    shown = _TerminalProgress(options)
    try:
        yield shown
    finally:
        shown.stop()


class _TerminalProgress:
    """One line on the terminal: reports so far, rate, windows delivered, delay against the schedule."""

    def __init__(self, options: FleetOptions) -> None:
        total = options.windows * len(options.files) if options.windows else None
        self._bar = Bar(
            TextColumn("fleet"),
            BarColumn(),
            TextColumn("{task.fields[text]}"),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("fleet", total=total, text="")
        self._bar.start()
        self._started = time.monotonic()

    def stop(self) -> None:
        """Remove the line."""
        self._bar.stop()

    def __call__(self, progress: Progress) -> None:
        rate = progress.reports / max(time.monotonic() - self._started, 1e-9)
        text = f"{progress.reports:,} reports, {rate:,.0f}/s"
        if progress.behind_ms > 1_000:
            text += f", {progress.behind_ms / 1_000:.1f} s behind"
        self._bar.update(self._task, completed=progress.windows_settled, text=text)
