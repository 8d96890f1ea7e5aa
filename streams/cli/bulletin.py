"""`thaw bulletin`: sign which levels devices may release, by a rule on bands."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import click

from producers.clock import system_clock
from producers.survey.bulletin import Bulletin, BulletinError, bulletin_of, opened_bulletin, sealed_bulletin
from producers.survey.folder import SurveyFolder
from producers.survey.signing import KeyFileError, Signer, verifier
from producers.survey.survey import Survey
from streams.settings import REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store
from streams.store.contract import Store
from streams.store.shape import Shape
from streams.windows.stopping import Opening, opening_of


@click.command("bulletin")
@click.argument("survey", required=False)
@click.option(
    "--key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Private key (Ed25519, PEM), as `openssl genpkey -algorithm ed25519` makes it.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File of the bulletin; default: beside the survey file, where the gateway serves it.",
)
@click.option("--dry-run", is_flag=True, help="Print what would be opened; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@settings_options(*REDIS, "surveys", "prefix")
def command(
    survey: str | None, key: Path | None, output: Path | None, dry_run: bool, as_json: bool, **flags: Any
) -> None:
    """Open the next level of windows of SURVEY (a name or id) whose band is still too wide, and sign what is open.

    Without SURVEY the public key is printed, for `key` in the survey file. Run it regularly, for example every hour:
    where nothing is to be opened the bulletin stays as it is. What was opened is never closed.
    """
    settings = load_settings(flags)
    store = open_store(settings)
    path, asked = (None, None) if survey is None else _survey(survey, settings)
    if output is not None and not output.absolute().parent.is_dir():
        raise click.BadParameter(f"the folder of {output} does not exist; create it", param_hint="--output")
    if key is None:
        raise click.UsageError("--key is missing: the private key that signs")
    try:
        signer = Signer(key)
    except KeyFileError as error:
        raise click.BadParameter(str(error), param_hint="--key") from None
    if path is None or asked is None:
        click.echo(signer.public_text)
        return
    if asked.stop is None:
        raise click.ClickException(f'{asked.id}: its levels open by other rules, not kind = "while_wide"')
    if asked.stop.key != signer.public_text:
        raise click.ClickException(
            f"{asked.id} names the key {asked.stop.key}, and {key} is {signer.public_text}: devices would refuse the "
            "bulletin; use the right key, or change the survey file"
        )
    target = output or path.with_suffix(".bulletin")
    before, now_ms = _before(target, asked), system_clock()
    openings = _openings(store, asked, before, now_ms)
    opened = {one.window_ms: one.rung for one in openings}
    # The time as number: a lost file does not begin again at a number that devices refuse.
    number = now_ms if before is None else max(before.number + 1, now_ms)
    bulletin = bulletin_of(asked, number, now_ms, opened)
    changed = before is None or before.open != bulletin.open
    if changed and not dry_run:
        _write(target, sealed_bulletin(bulletin, signer.sign))
    _tell(asked, bulletin if changed or before is None else before, openings, changed=changed, as_json=as_json)


def _survey(named: str, settings: Settings) -> tuple[Path, Survey]:
    now_ms = system_clock()
    for path, survey in SurveyFolder(settings.surveys_folder, now_ms).files(now_ms).items():
        if named in (survey.name, *survey.ids):
            return path, survey
    raise click.ClickException(f"no survey {named!r} in {settings.surveys_folder}; name one of its surveys, or its id")


def _before(path: Path, survey: Survey) -> Bulletin | None:
    assert survey.stop is not None
    if not path.exists():
        return None
    try:
        return opened_bulletin(path.read_bytes(), survey, verifier(survey.stop.key))
    except (OSError, BulletinError) as error:
        raise click.ClickException(
            f"{path} is in the way and is not the last bulletin ({error}); move it away"
        ) from None


def _openings(store: Store, survey: Survey, before: Bulletin | None, now_ms: int) -> list[Opening]:
    """Return what is open of every window that still takes answers."""
    shape = Shape.of(survey)
    alive = [start for start in store.estimates.window_starts(survey.id) if now_ms <= survey.expiry_ms(start)]
    found = []
    for start in alive:
        tally = store.estimates.tally(survey.id, start, survey.shards, shape)
        found.append(opening_of(survey, start, tally, 0 if before is None else before.rung(start), now_ms))
    return found


def _write(path: Path, raw: bytes) -> None:
    """Replace a file in one step: a device never reads half of it."""
    draft = path.with_name(f".{path.name}.draft")
    try:
        with draft.open("wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        raise click.ClickException(
            f"{path} cannot be written: {error.strerror}; choose another with --output"
        ) from None


def _tell(survey: Survey, bulletin: Bulletin, openings: list[Opening], *, changed: bool, as_json: bool) -> None:
    assert survey.stop is not None
    if as_json:
        windows = [one._asdict() | {"width": one.width if math.isfinite(one.width) else None} for one in openings]
        told = {"survey": survey.id, "number": bulletin.number, "changed": changed, "windows": windows}
        click.echo(json.dumps(told, allow_nan=False))
        return
    click.echo(f"{survey.id}: bulletin {bulletin.number}, {'new' if changed else 'as before'}")
    for one in openings:
        band = f"{one.width:.4g} wide" if math.isfinite(one.width) else "not known"
        click.echo(f"  window {one.window_ms}: open up to rung {one.rung}; band {band}, wanted {survey.stop.width:g}")
