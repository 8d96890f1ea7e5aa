"""`thaw market demo` on a terminal: start the services, let devices answer, sell, and say what happened."""

from __future__ import annotations

import json
import secrets
import shutil
import time
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import click
import tomli_w

from producers.clock import system_clock
from producers.survey.candidates import candidates_path
from producers.survey.survey import parse_survey
from streams.folders import deploy_folder
from streams.local.demo import Demo, finish, running, wait_for_worker
from streams.local.fleet import FleetError
from streams.local.kafka import find_kafka
from streams.local.market_demo import play
from streams.local.process import ServiceError, signals_as_interrupt
from streams.market.failures import MarketError

_LOOK_SECONDS: Final = 0.5


def run_demo(seconds: int, devices: int, survey: Path | None, kafka: str, seed: int | None, *, as_json: bool) -> int:
    """Run the demo; return the exit status."""
    seed = secrets.randbits(32) if seed is None else seed
    click.echo(f"seed {seed}", err=True)
    try:
        find_kafka(kafka)
        with (
            signals_as_interrupt(),
            TemporaryDirectory() as folder,
            running(
                kafka,
                [_with_one_shard(survey or deploy_folder("surveys") / "browser.toml", Path(folder))],
                {},
                seconds=seconds,
                seed=seed,
                devices=devices,
                scenario="steady",
                real_data=False,
            ) as demo,
        ):
            wait_for_worker(demo)
            demo.start_fleets()
            click.echo(f"{devices:,} devices answer for {seconds} s", err=True)
            _watch(demo, demo.first_window_ms + seconds * 1_000)
            counted = finish(demo)
            click.echo("they have answered; now their answers are sold", err=True)
            sold = play(demo, counted["surveys"][0])
    except (ValueError, FleetError) as error:
        raise click.UsageError(str(error)) from error
    except (ServiceError, MarketError) as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        raise click.exceptions.Abort from None
    result = {name: counted[name] for name in ("kafka", "seed", "backlog", "lost", "double")} | sold
    if as_json:
        click.echo(json.dumps(result))
    else:
        _tell(result)
    for line in result["audit"]["contradictions"]:
        click.echo(f"contradiction: {line}", err=as_json)
    click.echo(closing_line(result), err=as_json)
    wrong = result["audit"]["contradictions"] or result["backlog"] or result["lost"] or result["double"]
    return 1 if wrong else 0


def _with_one_shard(path: Path, folder: Path) -> Path:
    """Return a copy whose report logs are long enough to drop lower answers: what is sold below is drawn then."""
    text = path.read_text()
    candidates = parse_survey(text, str(path)).candidates
    copy = folder / path.name
    copy.write_text(tomli_w.dumps(tomllib.loads(text) | {"shards": 1}))
    if candidates:
        shutil.copy(candidates_path(str(path), candidates), candidates_path(str(copy), candidates))
    return copy


def _watch(demo: Demo, end_ms: int) -> None:
    while system_clock() < end_ms:
        demo.look_after()
        time.sleep(_LOOK_SECONDS)


def _tell(result: dict[str, Any]) -> None:
    for sale in result["sales"]:
        click.echo(
            f"{sale['buyer']} paid {sale['paid']} for rung {sale['rung']} (epsilon {sale['epsilon']:g}) of "
            f"{result['windows']} windows: {sale['answers']:,} answers, {sale['drawn']:,} drawn; estimates from the "
            f"delivery hold {sale['inside']} of {sale['truths']} truths"
        )
    for reason in result["refused"]:
        click.echo(f"refused: {reason}")
    for loss in result["losses"]:
        click.echo(f"{loss['chains']:,} chains have lost epsilon {loss['epsilon']:g}")


def closing_line(result: dict[str, Any]) -> str:
    """Return the last line of the demo."""
    audited = result["audit"]
    wrong = len(audited["contradictions"])
    return (
        f"market: {audited['sales']} sales in {audited['deliveries']} deliveries of {audited['answers']:,} answers, "
        f"{len(result['refused'])} purchases refused, {result['killed']} killed; {result['chains']:,} chains; lost "
        f"{result['lost']}, double {result['double']}; " + (f"{wrong} contradictions" if wrong else "the books agree")
    )
