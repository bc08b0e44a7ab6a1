"""A web service with FastAPI that consumes orders in its own event loop, with its own connection pool.

To run it:

    python -m examples.shop 20
    python -m examples.web.service               # until SIGTERM or Ctrl-C
    curl http://127.0.0.1:8000/orders/17
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import uvicorn
from fastapi import FastAPI, Response

from examples.web.billing import Billing, arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def make_service(billing: Billing) -> FastAPI:
    """The web application; a server runs it."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with billing.consumer:  # at the server's end: drained, committed, left; only then is the pool closed
            yield
        await billing.close()

    service = FastAPI(lifespan=lifespan)

    @service.get("/orders/{order_id}")
    async def order(order_id: str) -> dict[str, int]:
        return {"bills": await billing.bills(order_id)}

    @service.get("/ready")
    def ready(response: Response) -> dict[str, object]:  # no `async def`: FastAPI calls it in a thread
        response.status_code, said = billing.ready()
        return said

    @service.get("/live")
    def live(response: Response) -> dict[str, object]:
        response.status_code, said = billing.live()
        return said

    return service


def main() -> None:
    """Serve and consume until SIGTERM or Ctrl-C."""
    asked = arguments(__doc__)
    billing = Billing(asked.bootstrap, asked.redis, asked.topic)
    uvicorn.run(make_service(billing), host="127.0.0.1", port=asked.port, access_log=False)


if __name__ == "__main__":
    main()
