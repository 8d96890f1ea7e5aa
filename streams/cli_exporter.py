"""`thaw exporter`: serve metrics, the page and the API."""

from __future__ import annotations

import logging
from typing import Any

import click

from streams.settings import Settings, load_settings, settings_options

logger = logging.getLogger(__name__)


@click.command("exporter")
@settings_options(
    "redis", "redis_ca", "surveys", "prefix", "bind", "exporter_port", "value_limit", "log_level", "log_format"
)
def exporter_command(**flags: Any) -> None:
    """Serve /metrics, /healthz, / and /api/v1/surveys from what is in Redis."""
    from streams import logs

    settings = load_settings(flags)
    logs.configure(settings.log_level, settings.log_format)
    run_exporter(settings)


def run_exporter(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    import socket

    from aiohttp import web

    from producers.survey_folder import SurveyFolder
    from streams.clock import system_clock
    from streams.connections import open_store
    from streams.exporter import Reader, make_app

    reader = Reader(open_store(settings), SurveyFolder(settings.surveys_folder, system_clock()))
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.bind, settings.exporter_port))
        except OSError as error:
            raise click.ClickException(
                f"cannot listen on {settings.bind}:{settings.exporter_port}: {error.strerror}; "
                "choose another with THAW_EXPORTER_PORT or THAW_BIND"
            ) from error
        logger.info("exporter on http://%s:%d", settings.bind, listener.getsockname()[1])
        web.run_app(
            make_app(reader, value_limit=settings.value_limit),
            sock=listener,
            print=None,
            access_log=None,
            shutdown_timeout=2.0,
        )
