"""`thaw demo`: run the whole pipeline on this machine."""

from __future__ import annotations

import json
import secrets
import shlex
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import click
from redis import RedisError
from rich.console import Console
from rich.live import Live

from producers.clock import system_clock
from producers.simulation.scenarios import SCENARIOS
from streams.cli.terminal.demo import render, survey_view
from streams.folders import deploy_folder
from streams.local.demo import Demo, finish, running, wait_for_worker
from streams.local.fleet import FleetError
from streams.local.kafka import find_kafka
from streams.local.process import ServiceError, signals_as_interrupt
from streams.local.standing_demo import lines_of
from streams.settings import LOGS, settings_options
from streams.store.contract import StoreError
from streams.windows.record import RecordError

DEFAULT_SECONDS = 120
"""The time that windows are scaled to when the demo runs until Ctrl-C: ten windows in two minutes."""
DEVICES = 20_000
LOOK_SECONDS = 0.5


def _broker(_context: click.Context, _parameter: click.Parameter, choice: str) -> str:
    try:
        find_kafka(choice)
    except ServiceError as error:
        raise click.ClickException(str(error)) from error
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return choice


@click.command("demo")
@click.option(
    "--seconds",
    type=click.IntRange(10, 86_400),
    help="Stop this many seconds after the first report; default: run until Ctrl-C.",
)
@click.option(
    "--kafka",
    default="auto",
    show_default=True,
    callback=_broker,
    help="auto: Apache Kafka if installed, else the embedded broker; real; embedded; or HOST:PORT of your own.",
)
@click.option(
    "--survey",
    "files",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run a scaled copy of this survey instead of the example surveys; repeatable.",
)
@click.option("--devices", default=DEVICES, show_default=True, type=click.IntRange(1, 10_000_000))
@click.option(
    "--scenario",
    default="city",
    show_default=True,
    type=click.Choice([*SCENARIOS, "flights"]),
    help="Behaviour of the fleet, as for `thaw fleet`.",
)
@click.option(
    "--data",
    type=click.Choice(["real", "synthetic"]),
    default="real",
    show_default=True,
    help="real: replay data that an installed package ships for this survey, if there are any (thaw[data]).",
)
@click.option(
    "--visitors/--no-visitors",
    default=None,
    help="Let visitors of the page answer from their browsers; default: unless --json is given.",
)
@click.option("--gateway", is_flag=True, help="Let the devices send over HTTP, through a gateway before the broker.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the fleet; a random one is printed if absent.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout at the end, and nothing else.")
@settings_options(*LOGS)
def command(
    seconds: int | None,
    kafka: str,
    files: tuple[Path, ...],
    devices: int,
    scenario: str,
    data: str,
    visitors: bool | None,
    gateway: bool,
    seed: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Run the whole pipeline on this machine: broker, Redis, worker, exporter and simulated devices with a known truth.

    Exit status 0 only if all reports were applied, none was lost and none was counted twice. Kill the worker, or the
    gateway, with -9 while it runs: it is restarted, and the counts do not change.
    """
    seed = secrets.randbits(32) if seed is None else seed
    console = Console(stderr=True)
    paths = list(files) or [deploy_folder("surveys") / name for name in ("browser.toml", "canary.toml")]
    click.echo(f"seed {seed}", err=True)
    try:
        with (
            signals_as_interrupt(),
            running(
                kafka,
                paths,
                flags,
                seconds=seconds or DEFAULT_SECONDS,
                seed=seed,
                devices=devices,
                scenario=scenario,
                real_data=data == "real",
                gateway=gateway,
                visitors=not as_json if visitors is None else visitors,
            ) as demo,
        ):
            wait_for_worker(demo)
            demo.start_fleets()
            end_ms = demo.first_window_ms + seconds * 1_000 if seconds else None
            click.echo(f"page http://127.0.0.1:{demo.exporter_port}/", err=True)
            click.echo(f"for other commands: {_exports(demo)}", err=True)
            with suppress(KeyboardInterrupt):
                _watch(demo, end_ms, console, show=console.is_terminal and not as_json)
            result = finish(demo)
    except FleetError as error:
        raise click.UsageError(str(error)) from error
    except ServiceError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Abort from None
    if as_json:
        click.echo(json.dumps(result))
    click.echo(_summary(result), err=True)
    if result["backlog"] or result["lost"] or result["double"]:
        raise SystemExit(1)


def _exports(demo: Demo) -> str:
    """Return the line that lets other commands, in another terminal, use the services of the demo."""
    shared = ("kafka", "redis", "surveys", "prefix")
    values = {f"THAW_{name.upper()}": str(getattr(demo.settings, name)) for name in shared}
    return shlex.join(["export", *(f"{name}={value}" for name, value in values.items() if value)])


def _watch(demo: Demo, end_ms: int | None, console: Console, *, show: bool) -> None:
    """Restart children that end, and redraw, until the time is over or Ctrl-C."""
    url = f"http://127.0.0.1:{demo.exporter_port}/"
    with Live(console=console, refresh_per_second=4, screen=False, transient=False) if show else nullcontext() as live:
        while end_ms is None or system_clock() < end_ms:
            demo.look_after()
            if live is not None:
                note = f"page {url}   seed {demo.seed}   broker {demo.kind}   restarts {demo.restarts}   Ctrl-C stops"
                with suppress(StoreError, RedisError, RecordError):
                    live.update(render([survey_view(demo, item.survey) for item in demo.surveys], note))
            time.sleep(LOOK_SECONDS)


def _summary(result: dict[str, Any]) -> str:
    rows = [row for survey in result["surveys"] for window in survey["windows"] for row in window["estimates"]]
    inside = sum(row["inside"] for row in rows)
    windows = sum(len(survey["windows"]) for survey in result["surveys"])
    latency = result["latency_seconds"]
    text = f"{result['reports']['sent']:,} reports, {result['reports_per_second']:,.0f} a second; "
    text += f"{windows} settled windows, {inside} of {len(rows)} truths inside their band"
    if result.get("visitors"):
        text += f"; {result['visitors']} answers of visitors"
    if latency["p50"] is not None:
        text += f"; estimate {latency['p50']:.2f} s behind (p99 {latency['p99']:.2f} s)"
    if result["backlog"]:
        text += f"; backlog {result['backlog']}: the worker had not applied all reports, so the check is incomplete"
    text += f"; lost {result['lost']}, double {result['double']}"
    for tier in result.get("tiers", ()):
        text += f"\n{tier['tier']}, answers of at most epsilon {tier['epsilon']:.3g}: {tier['windows']} windows, "
        text += f"{tier['inside']} of {tier['truths']} truths inside"
        text += "" if tier["band"] is None else f", bands of {tier['band']:.3f}"
    return "\n".join([text, *lines_of(result["standing"])]) if "standing" in result else text
