"""`thaw gateway` as a process of its own, for tests on real services."""

from __future__ import annotations

import http.client
import json
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from producers.wire.http import CONTENT_TYPE
from streams.local.process import Child, free_ports
from streams.settings import Settings
from tests.support.exporter_process import until_healthy


class GatewayProcess:
    """A gateway that can be killed and started again on the same ports; `settings` are its own."""

    def __init__(self, shared: Settings, folder: Path, **settings: Any) -> None:
        self.port, self.metrics_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = folder / f"gateway-{self.port}.log"
        given = {
            "kafka": shared.kafka,
            "prefix": shared.prefix,
            "surveys": shared.surveys,
            "gateway_port": self.port,
            "gateway_metrics_port": self.metrics_port,
            "gateway_hold_ms": 50,
            "gateway_rate": 0,
            **settings,
        }
        self._env = {f"THAW_{name.upper()}": str(value) for name, value in given.items()}
        self.start()

    def start(self, *, healthy: bool = True) -> None:
        """Start the process, and wait until it reaches the broker unless told otherwise."""
        self.child = Child("gateway", [sys.executable, "-m", "streams.cli", "gateway"], log=self.log, env=self._env)
        if healthy and "THAW_GATEWAY_CERT" not in self._env:
            until_healthy(self.child, self.url)

    def post(
        self, body: bytes, *, headers: Mapping[str, str] | None = None, path: str = "/v1/frames", method: str = "POST"
    ) -> tuple[int, dict[str, Any], Mapping[str, str]]:
        """Send one request; return status, answer and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, body, {"Content-Type": CONTENT_TYPE, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else {}, dict(answer.headers)
        finally:
            connection.close()

    def metric(self, name: str, **labels: str) -> float:
        """Return one sample of its metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=60) as page:
            text = page.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return float(sample.value)
        return 0.0

    def stop(self) -> None:
        """End it, if it still runs."""
        self.child.kill()
