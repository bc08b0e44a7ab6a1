"""Orders to a service over HTTP, by an `async def`: what fails is tried again, what cannot be cured is a dead letter.

To run it:

    python -m examples.http.service --fail-first 2 --refuse 7
    python -m examples.http.orders
"""

from __future__ import annotations

import asyncio
import json
import logging

from examples.http.client import post
from examples.shop import Once, make_topics, parser, say
from holdfast import Holdfast, Record, RedisClaims, Retry, Settings, Unretriable
from holdfast.adapters.kafka import KafkaSource

#: One request; the record's next attempt comes after it.
_REQUEST_S = 2.0


def make_app(bootstrap: str, redis_url: str, topic: str, service: str, *, once: bool) -> Holdfast:
    """The whole consumer; `run()` it."""
    app = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "billing-http"}, assignment="sticky"),
        claims=RedisClaims.from_url(redis_url),
        settings=Settings(async_workers=32, handler_timeout_s=30),  # 32 requests at a time, in one event loop
        observers=[Once(lambda: app.stop())] if once else [],  # noqa: PLW0108 - there is no app yet
    )

    retry = Retry(attempts=4, wait_initial_s=0.1)

    @app.handler(topic, key="order_id", retry=retry, dead_letter=f"{topic}.dlq", name="bill")
    async def bill(record: Record) -> None:
        order_id = json.loads(record.value or b"")["order_id"]
        async with asyncio.timeout(_REQUEST_S):
            # The key is for the one case that holdfast cannot close: a crash after the bill and before the mark.
            status = await post(service, record.value or b"", {"Idempotency-Key": order_id})
        if 400 <= status < 500:
            raise Unretriable(f"the service refuses order {order_id}: {status}")
        if status >= 500:
            raise ConnectionError(f"the service cannot bill order {order_id} now: {status}")
        say(f"billed {order_id}")

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    options = parser(__doc__)
    options.add_argument("--service", default="http://127.0.0.1:8080/bills", help="where to send orders (%(default)s)")
    options.add_argument("--once", action="store_true", help="end when what is there has been handled")
    asked = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    make_app(asked.bootstrap, asked.redis, asked.topic, asked.service, once=asked.once).run()


if __name__ == "__main__":
    main()
