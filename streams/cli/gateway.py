"""`thaw gateway`: take frames from devices over HTTP and hand them to Kafka, mixed."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import click
from prometheus_client import start_http_server

from producers.clock import system_clock
from producers.survey.folder import SurveyFolder
from producers.survey.signing import KeyFileError, Signer
from streams.connections import check_connection, gateway_tls
from streams.exporter.listen import serve
from streams.gateway.broker import Broker
from streams.gateway.documents import Documents
from streams.gateway.metrics import GatewayMetrics
from streams.gateway.server import SOCKETS, Gateway, make_app
from streams.settings import KAFKA, LOGS, Settings, SettingsError, load_settings, readable_file, settings_options
from streams.settings_gateway import GatewaySettings
from streams.urls import is_loopback

logger = logging.getLogger(__name__)


@click.command("gateway")
@settings_options(*KAFKA, "surveys", "prefix", "reports", "bind", *GatewaySettings.__annotations__, "insecure", *LOGS)
def command(**flags: Any) -> None:
    """Take frames (POST /v1/frames), and serve survey files (/v1/surveys) and /v1/openapi.json.

    A request is answered when a broker has its reports: what was confirmed is never lost, what was not is sent again.
    Reports of many requests are held for a moment and sent mixed. Nothing about a request is logged.
    """
    run_gateway(load_settings(flags))


def run_gateway(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT."""
    check_connection(settings)
    tls = gateway_tls(settings)
    if tls is None and not is_loopback(settings.bind) and not settings.insecure:
        raise click.ClickException(
            f"reports would travel to {settings.bind} unencrypted, and with them who sends them; set "
            "THAW_GATEWAY_CERT, listen on 127.0.0.1 behind a proxy with TLS, or say --insecure"
        )
    folder = SurveyFolder(settings.surveys_folder, system_clock())
    documents = Documents(
        folder, valid_hours=settings.gateway_valid_hours, signer=_signer(settings), dealer=settings.gateway_dealer
    )
    metrics = GatewayMetrics()
    if tls is not None:
        metrics.watch_handshakes(tls)
    family = socket.AF_INET6 if ":" in settings.bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((settings.bind, settings.gateway_port))
        except OSError as error:
            raise click.ClickException(
                f"cannot listen on {settings.bind}:{settings.gateway_port}: {error.strerror}; choose another with "
                "THAW_GATEWAY_PORT or THAW_BIND"
            ) from error
        gateway = Gateway(settings, folder, documents, Broker(settings), metrics)
        port = _serve_metrics(settings, metrics)
        scheme = "http" if tls is None else "https"
        address = f"{scheme}://{settings.bind}:{listener.getsockname()[1]}"
        logger.info("gateway on %s; metrics on http://%s:%d", address, settings.worker_bind, port)
        app = make_app(gateway, settings.gateway_origins)
        asyncio.run(serve(app, listener, tls, limits=SOCKETS, nameless=True))


def _signer(settings: Settings) -> Signer | None:
    path = readable_file("THAW_GATEWAY_SIGNING_KEY", settings.gateway_signing_key)
    if not path:
        logger.warning("survey files are served unsigned: THAW_GATEWAY_SIGNING_KEY is empty")
        return None
    try:
        signer = Signer(path)
    except KeyFileError as error:
        raise SettingsError(f"THAW_GATEWAY_SIGNING_KEY: {error}") from None
    logger.info("survey files are signed; devices check them with the key %s", signer.public_text)
    return signer


def _serve_metrics(settings: Settings, metrics: GatewayMetrics) -> int:
    try:
        server, _ = start_http_server(settings.gateway_metrics_port, settings.worker_bind, registry=metrics.registry)
    except OSError as error:
        raise click.ClickException(
            f"cannot serve metrics on {settings.worker_bind}:{settings.gateway_metrics_port}: {error.strerror}; choose "
            "another with THAW_GATEWAY_METRICS_PORT"
        ) from error
    return int(server.server_port)
