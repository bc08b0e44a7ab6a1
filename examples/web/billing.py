"""What the web services share: the consumer with its handler, the pool of both, and what they answer.

Which framework serves it is in `service.py` (FastAPI), `starlette_service.py` and `aiohttp_service.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.asyncio import Redis

from examples.shop import make_topics, parser, say
from holdfast import Holdfast, Record, RedisClaims
from holdfast.adapters.kafka import KafkaSource

if TYPE_CHECKING:
    import argparse

    from holdfast.plugin.observe.health import Health


class Billing:
    """One event loop has it: the web server's."""

    def __init__(self, bootstrap: str, redis_url: str, topic: str) -> None:
        self._topic = topic
        self._pool = Redis.from_url(redis_url, decode_responses=True)  # belongs to the event loop that uses it first
        self.consumer = Holdfast(
            KafkaSource({"bootstrap.servers": bootstrap, "group.id": "billing-web"}, assignment="sticky"),
            claims=RedisClaims.from_url(redis_url),
        )
        register = self.consumer.handler(topic, key="order_id", dead_letter=f"{topic}.dlq", name="bill")
        register(self._bill)

    async def _bill(self, record: Record) -> None:
        order_id = record.json()["order_id"]
        await self._pool.incr(self._key(order_id))
        say(f"billed {order_id}")

    async def bills(self, order_id: str) -> int:
        """How often an order was billed."""
        return int(await self._pool.get(self._key(order_id)) or 0)

    async def close(self) -> None:
        """End the pool, when neither a handler nor a request uses it any more."""
        await self._pool.aclose()

    def ready(self) -> tuple[int, dict[str, object]]:
        """For a probe: status and body. It waits for the consumer's own thread, so it is called in a thread."""
        return _answer(self.consumer.health(), "ready", len(self.consumer.snapshot().partitions))

    def live(self) -> tuple[int, dict[str, object]]:
        """As `ready`."""
        return _answer(self.consumer.health(), "live", len(self.consumer.snapshot().partitions))

    def _key(self, order_id: str) -> str:
        return f"{self._topic}:billed:{order_id}"


def _answer(health: Health, asked: str, partitions: int) -> tuple[int, dict[str, object]]:
    good = health.ready if asked == "ready" else health.live
    return 200 if good else 503, {asked: good, "reasons": health.reasons, "partitions": partitions}


def arguments(description: str | None) -> argparse.Namespace:
    """Of the command line; makes the topics."""
    options = parser(description)
    options.add_argument("--port", type=int, default=8000, help="where to serve HTTP (%(default)s); 0: any")
    asked = options.parse_args()
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    return asked
