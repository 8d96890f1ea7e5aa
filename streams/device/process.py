"""The process of `thaw device run`: files, commands, signals and certificates around the program of a device."""

from __future__ import annotations

import logging
import os
import signal
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from producers.device.ledger import LedgerError
from producers.device.program import Program, Source
from producers.device.sealing import Seal
from producers.device.troubles import Troubles, WatchedTransport
from producers.survey.document import Verify
from producers.survey.signing import KeyFileError, verifier
from producers.survey.survey import Survey
from producers.survey.unlocking import parse_unlock
from producers.wire.http import HttpTransport, fetched
from streams.device.command import printed
from streams.urls import has_secret, is_web_address, masked

logger = logging.getLogger(__name__)

_PLACE: Final = "/v1/surveys/"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What the command line asks for."""

    urls: tuple[str, ...]
    commands: tuple[str, ...]
    client_reports: str | None
    ledger: Path
    key: str | None
    token_file: Path | None
    ca: Path | None
    cert: Path | None
    caps: tuple[str, ...]
    lifetime: float | None
    unlock: str | None
    catch_up: int
    value_key: Path | None = None


def run_device(wanted: Wanted) -> None:
    """Run until SIGTERM or SIGINT."""
    gateway, wishes, verify = _gateway(wanted), _wishes(wanted), _verify(wanted.key)
    tls = _tls(wanted) if gateway.startswith("https:") else None
    token = None if wanted.token_file is None else _read(wanted.token_file, "--token-file").strip()
    troubles = Troubles()
    carrier = HttpTransport(gateway, token=token, tls=tls)
    stop = threading.Event()
    sources = [Source(url, partial(_value, text, stop)) for url, text in zip(wanted.urls, wanted.commands, strict=True)]
    sources += [] if wanted.client_reports is None else [Source(wanted.client_reports, None)]
    wanted.ledger.parent.mkdir(parents=True, exist_ok=True)
    program = Program(
        sources,
        folder=wanted.ledger.parent / "surveys",
        ledger=wanted.ledger,
        transport=WatchedTransport(carrier, troubles, per_minute=wanted.catch_up),
        troubles=troubles,
        fetch=partial(fetched, tls=tls),
        verify=verify,
        verifier=verifier,
        wishes=wishes,
    )
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logger.info("ledger %s, gateway %s", wanted.ledger, gateway)
    try:
        _loop(program, stop)
    except LedgerError as error:
        raise click.ClickException(str(error)) from None
    finally:
        program.close()
        carrier.close()


def _loop(program: Program, stop: threading.Event) -> None:
    while not stop.is_set():
        wait_ms = program.step()
        # At least a little: a step that has nothing to do must not be repeated at once.
        stop.wait(max(wait_ms, 50) / 1_000)


def _value(command: str, stop: threading.Event, survey: Survey) -> str:
    """Return what a command prints about a survey; OSError if it fails."""
    return printed(command, os.environ | {"THAW_SURVEY_ID": survey.id, "THAW_SURVEY_NAME": survey.name}, stop.is_set)


def _gateway(wanted: Wanted) -> str:
    """Return the one gateway that all surveys are at."""
    found: list[str] = []
    for url in (*wanted.urls, *filter(None, [wanted.client_reports])):
        base, place, survey_id = url.partition(_PLACE)
        if not is_web_address(url) or has_secret(url) or not place or not survey_id or "/" in survey_id:
            raise click.BadParameter(
                f"a survey must be like https://reports.example{_PLACE}ID, without a password; got {masked(url)!r}"
            )
        found.append(base)
        if base != found[0]:
            raise click.BadParameter(f"all surveys must be at one gateway, {found[0]}; got {url}; run one per gateway")
    return found[0]


def _wishes(wanted: Wanted) -> Mapping[str, Any]:
    caps = {}
    for text in wanted.caps:
        name, equals, epsilon = text.partition("=")
        try:
            caps[name] = float(epsilon)
        except ValueError:
            equals = ""
        if not equals or not caps[name] >= 0:
            raise click.BadParameter(f"--cap must be NAME=EPSILON, such as browser=1; got {text!r}")
    if wanted.unlock is not None:
        try:
            parse_unlock(wanted.unlock)
        except ValueError as error:
            raise click.BadParameter(f"--unlock: {error}") from None
    return {
        "caps": caps,
        "lifetime_epsilon": wanted.lifetime,
        "unlock": wanted.unlock,
        "value_key": None if wanted.value_key is None else _value_key(wanted.value_key),
    }


def _value_key(path: Path) -> bytes:
    """Return the key that values are sealed with; it must be readable by nobody else."""
    try:
        mode, key = path.stat().st_mode & 0o777, path.read_bytes()
        Seal(key)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"--value-key {path}: {error}; make one: head -c 32 /dev/urandom > FILE") from None
    if mode & 0o077:
        raise click.BadParameter(f"--value-key {path} is open to other users (mode {mode:04o}); run: chmod 600 {path}")
    return key


def _verify(key: str | None) -> Verify | None:
    if key is None:
        logger.warning("unsigned surveys are taken: tell this device the key that signs them with --key")
        return None
    try:
        return verifier(key)
    except KeyFileError as error:
        raise click.BadParameter(f"--key: {error}") from None


def _tls(wanted: Wanted) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=wanted.ca)
        if wanted.cert is not None:
            context.load_cert_chain(wanted.cert)
    except (OSError, ssl.SSLError) as error:
        raise click.BadParameter(f"--ca and --cert must be PEM files that can be read: {error}") from None
    return context


def _read(path: Path, flag: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{flag} must be a text file that can be read: {error}") from None
