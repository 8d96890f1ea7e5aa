"""Spans for OpenTelemetry, where THAW_TRACING asks for them; otherwise nothing of it is loaded.

Where spans are sent and how many is said by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT,
OTEL_TRACES_SAMPLER, ...). A span has topics, offsets and numbers, never a token or an answer.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from streams.settings import Settings, SettingsError

Value = str | int | Sequence[str]


class Span(Protocol):
    """What happened between two moments."""

    def set_attribute(self, name: str, value: Value) -> object:
        """Say something about it."""
        ...


class _NoSpan:
    def set_attribute(self, name: str, value: Value) -> None:  # of the protocol
        """Forget it."""


_NO_SPAN: Final = _NoSpan()

Spans = Callable[[str], AbstractContextManager[Span]]
"""Begins a span of this name, which ends with its block; an exception is noted and passed on."""


def no_spans(name: str) -> AbstractContextManager[Span]:  # noqa: ARG001  # of the protocol
    """Begin nothing."""
    return nullcontext(_NO_SPAN)


class Tracing:
    """Sends spans of a service, from a thread of its own; what cannot be sent is dropped.

    Args:
        service: its name, such as thaw-worker.
        settings: whether there are spans, and the name of the instance.

    Raises:
        SettingsError: the packages are not installed.
    """

    def __init__(self, service: str, settings: Settings) -> None:
        self.spans: Spans = no_spans
        self.close: Callable[[], None] = lambda: None
        """Send what is left; waits some seconds at most."""
        if not settings.tracing:
            return
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
            from opentelemetry.trace import SpanKind
        except ModuleNotFoundError as error:
            raise SettingsError(
                "THAW_TRACING needs the packages of OpenTelemetry, which are not installed; run: "
                "pip install 'thaw[tracing]'"
            ) from error
        about = {
            "service.name": service,
            "service.instance.id": settings.instance_id,
            "service.version": importlib.metadata.version("thaw"),
        }
        provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        tracer = provider.get_tracer("thaw")
        self.spans = lambda name: tracer.start_as_current_span(name, kind=SpanKind.CONSUMER)
        self.close = provider.shutdown
