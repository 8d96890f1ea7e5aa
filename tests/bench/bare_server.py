"""What the gateway is compared with: a server of the same framework that reads a body and answers.

python -m tests.bench.bare_server PORT
"""

from __future__ import annotations

import sys

from aiohttp import web


async def answer(request: web.Request) -> web.Response:
    """Read the body and confirm it."""
    await request.read()
    return web.json_response({"frames": 1, "reports": 1})


def main(port: str) -> None:
    """Serve until killed."""
    app = web.Application()
    app.router.add_post("/v1/frames", answer)
    web.run_app(app, host="127.0.0.1", port=int(port), access_log=None, print=None)


if __name__ == "__main__":
    main(sys.argv[1])
