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
from redis.asyncio import Redis

from examples.shop import make_topics, parser, say
from holdfast import Holdfast, Record, RedisClaims
from holdfast.adapters.kafka import KafkaSource

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


def make_service(bootstrap: str, redis_url: str, topic: str) -> FastAPI:
    """The web application; a server runs it."""
    pool = Redis.from_url(redis_url, decode_responses=True)  # belongs to the event loop that uses it first
    consumer = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "billing-web"}, assignment="sticky"),
        claims=RedisClaims.from_url(redis_url),
    )

    @consumer.handler(topic, key="order_id", dead_letter=f"{topic}.dlq", name="bill")
    async def bill(record: Record) -> None:
        order_id = record.json()["order_id"]
        await pool.incr(f"{topic}:billed:{order_id}")
        say(f"billed {order_id}")

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with consumer:  # at the server's end: drained, committed, left; only then is the pool closed
            yield
        await pool.aclose()

    service = FastAPI(lifespan=lifespan)

    @service.get("/orders/{order_id}")
    async def order(order_id: str) -> dict[str, int]:
        return {"bills": int(await pool.get(f"{topic}:billed:{order_id}") or 0)}

    @service.get("/ready")
    def ready(response: Response) -> dict[str, object]:  # in a thread: it may wait for the consumer's own
        health, partitions = consumer.health(), consumer.snapshot().partitions
        response.status_code = 200 if health.ready else 503
        return {"ready": health.ready, "reasons": health.reasons, "partitions": len(partitions)}

    @service.get("/live")
    def live(response: Response) -> dict[str, object]:
        health = consumer.health()
        response.status_code = 200 if health.live else 503
        return {"live": health.live, "reasons": health.reasons}

    return service


def main() -> None:
    """Serve and consume until SIGTERM or Ctrl-C."""
    options = parser(__doc__)
    options.add_argument("--port", type=int, default=8000, help="where to serve HTTP (%(default)s); 0: any")
    asked = options.parse_args()
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    uvicorn.run(
        make_service(asked.bootstrap, asked.redis, asked.topic), host="127.0.0.1", port=asked.port, access_log=False
    )


if __name__ == "__main__":
    main()
