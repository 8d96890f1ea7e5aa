"""`thaw dealer`: deal cards to devices, each once; run it apart from the worker."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import click

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams.dealer.server import Dealer, make_app
from streams.dealer.state import DealerState
from streams.exporter.listen import serve
from streams.settings import LOGS, Settings, load_settings, settings_options
from streams.urls import is_loopback

logger = logging.getLogger(__name__)


@click.command("dealer")
@settings_options("surveys", "bind", "dealer_port", "dealer_file", "insecure", *LOGS)
def command(**flags: Any) -> None:
    """Deal the cards of surveys with improved_christofides: POST /deal, /metrics, /healthz.

    A card is on disk before it is handed out, so that no kill deals it twice. The dealer never sees answers, and must
    not be run by those who do: together they can read values.
    """
    run_dealer(load_settings(flags))


def run_dealer(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    if not is_loopback(settings.bind) and not settings.insecure:
        raise click.ClickException(
            f"cards would travel to {settings.bind} unencrypted, and anyone who sees one reads its answer; listen on "
            "127.0.0.1 behind a proxy with TLS, or say --insecure"
        )
    surveys = SurveyFolder(settings.surveys_folder, system_clock())
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.bind, settings.dealer_port))
        except OSError as error:
            raise click.ClickException(
                f"cannot listen on {settings.bind}:{settings.dealer_port}: {error.strerror}; choose another with "
                "THAW_DEALER_PORT or THAW_BIND"
            ) from error
        app = make_app(Dealer(DealerState(settings.dealer_file), surveys))
        logger.info("dealer on http://%s:%d", settings.bind, listener.getsockname()[1])
        asyncio.run(serve(app, listener))
