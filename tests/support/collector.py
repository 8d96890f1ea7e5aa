"""A collector of OpenTelemetry that takes spans over HTTP, for tests."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Keeps what it gets; use as a context manager."""

    def __init__(self) -> None:
        self.resources: list[dict[str, Any]] = []
        self.spans: list[tuple[str, dict[str, Any]]] = []
        """Name and attributes."""
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
                self.send_response(200)
                self.send_header("Content-Type", "application/x-protobuf")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_words: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Collector:
        threading.Thread(target=self._server.serve_forever, name="collector").start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for group in request.resource_spans:
            self.resources.append(_read(group.resource.attributes))
            for scope in group.scope_spans:
                self.spans += [(span.name, _read(span.attributes)) for span in scope.spans]


def _read(attributes: Any) -> dict[str, Any]:
    found = {}
    for row in attributes:
        kind = row.value.WhichOneof("value")
        value = getattr(row.value, kind)
        found[row.key] = [item.string_value for item in value.values] if kind == "array_value" else value
    return found
