"""The same service with Starlette alone.

To run it:

    python -m examples.shop 20
    python -m examples.web.starlette_service     # until SIGTERM or Ctrl-C
    curl http://127.0.0.1:8000/orders/17
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from examples.web.billing import Billing, arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request


def make_service(billing: Billing) -> Starlette:
    """The web application; a server runs it."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with billing.consumer:  # at the server's end: drained, committed, left; only then is the pool closed
            yield
        await billing.close()

    async def order(request: Request) -> JSONResponse:
        return JSONResponse({"bills": await billing.bills(request.path_params["order_id"])})

    def ready(_: Request) -> JSONResponse:  # no `async def`: Starlette calls it in a thread
        status, said = billing.ready()
        return JSONResponse(said, status)

    def live(_: Request) -> JSONResponse:
        status, said = billing.live()
        return JSONResponse(said, status)

    routes = [Route("/orders/{order_id}", order), Route("/ready", ready), Route("/live", live)]
    return Starlette(routes=routes, lifespan=lifespan)


def main() -> None:
    """Serve and consume until SIGTERM or Ctrl-C."""
    asked = arguments(__doc__)
    billing = Billing(asked.bootstrap, asked.redis, asked.topic)
    uvicorn.run(make_service(billing), host="127.0.0.1", port=asked.port, access_log=False)


if __name__ == "__main__":
    main()
