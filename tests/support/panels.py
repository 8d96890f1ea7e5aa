"""The queries of the Grafana dashboards, run against a real Prometheus as Grafana runs them."""

from __future__ import annotations

import json
import math
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

from deploy.grafana.build import DASHBOARDS, FOLDER

CHOSEN = {"$survey": ".*", "$value": ".*", "$window": "1"}
"""What a person chooses at the top of a dashboard: everything, and the newest closed window."""


def panels(name: str) -> Iterator[tuple[str, str]]:
    """Return title and query of every panel of a dashboard."""
    data = json.loads((FOLDER / name).read_text())
    for panel in data["panels"]:
        for nested in [panel, *panel.get("panels", [])]:
            for target in nested.get("targets", []):
                query = target["expr"]
                for variable, value in CHOSEN.items():
                    query = query.replace(variable, value)
                yield f"{name}: {nested['title']}: {target['expr']}", query


def has_data(url: str, query: str) -> bool:
    """Tell whether a query returns a number; raise if Prometheus does not take it."""
    with urllib.request.urlopen(f"{url}/api/v1/query?query={urllib.parse.quote(query)}", timeout=30) as answer:
        found: dict[str, Any] = json.load(answer)
    assert found["status"] == "success", found
    return any(not math.isnan(float(sample["value"][1])) for sample in found["data"]["result"])


def empty_panels(url: str) -> list[str]:
    """Return the panels that show nothing."""
    return [title for name in DASHBOARDS for title, query in panels(name) if not has_data(url, query)]
