"""`thaw exporter`: serve metrics, the page and the API."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any, Final

import click

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from streams.connections import server_tls
from streams.exporter.alert_states import PrometheusAlerts
from streams.exporter.audiences import NamelessHeartbeats, TierSurveys, tier_tokens
from streams.exporter.listen import serve
from streams.exporter.reader import Reader
from streams.exporter.server import make_app
from streams.exporter.views import Views
from streams.settings import LOGS, REDIS, Settings, load_settings, settings_options
from streams.store.connect import open_store, read_truths
from streams.urls import is_loopback

logger = logging.getLogger(__name__)

REDIS_SECONDS: Final = 2.0
"""Longest time of one answer of Redis. Longer: operators learn later that it hangs; shorter: a busy one looks down."""


@click.command("exporter")
@settings_options(
    *REDIS,
    "surveys",
    "prefix",
    "bind",
    "exporter_port",
    "exporter_cert",
    "exporter_key",
    "tier_tokens",
    "value_limit",
    "prometheus",
    "runbooks",
    "demo_gateway",
    "insecure",
    *LOGS,
)
def command(**flags: Any) -> None:
    """Serve the page, /metrics, /healthz and /api/v1 from what is in Redis.

    With THAW_TOKEN set (a variable only, since flags are visible to all users of the machine), /metrics and /api
    require it; tokens in the file THAW_TIER_TOKENS see tiers of surveys alone.
    """
    settings = load_settings(flags)
    run_exporter(settings)


def run_exporter(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    if not settings.token and not is_loopback(settings.bind):
        if not settings.insecure:
            raise click.ClickException(
                f"anyone who can reach {settings.bind} could read the estimates; set THAW_TOKEN to require a token, "
                "listen on 127.0.0.1, or say --insecure"
            )
        logger.warning("anyone who can reach %s can read the estimates: --insecure and no THAW_TOKEN", settings.bind)
    tls, tokens = server_tls(settings), tier_tokens(settings)
    store = open_store(settings, timeout_seconds=REDIS_SECONDS)
    folder = SurveyFolder(settings.surveys_folder, system_clock(), keep_removed=False)
    reader = Reader(store, folder, heartbeats=store.heartbeats)
    truths = read_truths(settings, timeout_seconds=REDIS_SECONDS)
    views = Views(reader, truths=truths)
    unnamed = NamelessHeartbeats(store.heartbeats)
    tiers = {
        tier: Views(Reader(store, TierSurveys(folder, tier), heartbeats=unnamed), truths=truths)
        for tier in sorted(set(tokens.values()))
    }
    alerts = PrometheusAlerts(settings.prometheus) if settings.prometheus else None
    app = make_app(
        reader,
        value_limit=settings.value_limit,
        views=views,
        alerts=alerts,
        token=settings.token,
        runbooks=settings.runbooks,
        demo_gateway=settings.demo_gateway,
        tiers=tiers,
        tokens=tokens,
    )
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
        scheme = "http" if tls is None else "https"
        logger.info("exporter on %s://%s:%d", scheme, settings.bind, listener.getsockname()[1])
        asyncio.run(serve(app, listener, tls))
