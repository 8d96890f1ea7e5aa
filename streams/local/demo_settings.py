"""The settings of a demo's own processes: free ports, and short times."""

from __future__ import annotations

from typing import Any

from streams.local.process import free_ports

_PORTS = ("worker_port", "exporter_port", "gateway_port", "gateway_metrics_port", "dealer_port")
HOLD_MS = 200
"""How long the gateway of a demo holds reports: its windows are seconds long."""


def own_flags(*, visitors: bool) -> dict[str, Any]:
    """Return the settings of this machine's processes: free ports, and short times."""
    ports: dict[str, Any] = dict(zip(_PORTS, free_ports(len(_PORTS)), strict=True))
    if visitors:
        page = f"http://127.0.0.1:{ports['exporter_port']},http://localhost:{ports['exporter_port']}"
        ports |= {"demo_gateway": f"http://127.0.0.1:{ports['gateway_port']}", "gateway_origins": page}
    # The whole fleet comes from one address.
    return {"tick_ms": 250, "gateway_hold_ms": HOLD_MS, "gateway_rate": 0, **ports}
