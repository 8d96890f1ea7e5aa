"""What the exporter of a demo serves in addition: the client for browsers, and where its gateway is.

Visitors of a demo can be a device themselves. Outside of a demo the page loads nothing of this, and its policy lets it
speak to nobody but the exporter.
"""

from __future__ import annotations

import html
from collections.abc import Mapping
from pathlib import Path

from streams.exporter.guard import POLICY
from streams.folders import client_folder

_BODY = b"<body "


def client_modules() -> dict[str, Path]:
    """Return the modules of the client by the path under which the page imports them."""
    return {f"client/{path.name}": path for path in sorted(client_folder().glob("*.js"))}


def with_gateway(page: bytes, gateway: str) -> bytes:
    """Return the page with the gateway's address in it, which makes it offer to answer."""
    assert page.count(_BODY) == 1
    return page.replace(_BODY, _BODY + f'data-gateway="{html.escape(gateway)}" '.encode())


def headers(gateway: str) -> Mapping[str, str]:
    """Return the header that lets the page speak to the gateway; none without one."""
    return {"Content-Security-Policy": f"{POLICY}; connect-src 'self' {gateway}"} if gateway else {}
