"""The same service with aiohttp, which brings its own server.

To run it:

    python -m examples.shop 20
    python -m examples.web.aiohttp_service       # until SIGTERM or Ctrl-C
    curl http://127.0.0.1:8000/orders/17
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from examples.web.billing import Billing, arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def make_service(billing: Billing) -> web.Application:
    """The web application; a server runs it."""

    async def consuming(_: web.Application) -> AsyncIterator[None]:
        async with billing.consumer:  # at the server's end: drained, committed, left; only then is the pool closed
            yield
        await billing.close()

    async def order(request: web.Request) -> web.Response:
        return web.json_response({"bills": await billing.bills(request.match_info["order_id"])})

    async def ready(_: web.Request) -> web.Response:
        status, said = await asyncio.to_thread(billing.ready)  # it waits: never in the event loop
        return web.json_response(said, status=status)

    async def live(_: web.Request) -> web.Response:
        status, said = await asyncio.to_thread(billing.live)
        return web.json_response(said, status=status)

    service = web.Application()
    service.cleanup_ctx.append(consuming)
    service.add_routes([web.get("/orders/{order_id}", order), web.get("/ready", ready), web.get("/live", live)])
    return service


def main() -> None:
    """Serve and consume until SIGTERM or Ctrl-C."""
    asked = arguments(__doc__)
    billing = Billing(asked.bootstrap, asked.redis, asked.topic)
    web.run_app(make_service(billing), host="127.0.0.1", port=asked.port, access_log=None, print=None)


if __name__ == "__main__":
    main()
