"""Orders into PostgreSQL, whose tables refuse a former owner and know what they have.

To run it, with Kafka, Redis and PostgreSQL on this machine (`docker compose --profile postgres up -d`):

    pip install 'holdfast-mq[kafka,postgres]'
    python -m examples.shop 1000
    python -m examples.fences.orders
"""

from __future__ import annotations

import logging

from examples.fences.fenced import FencedOrders
from examples.fences.once import RevenueOnce
from examples.shop import Once, make_topics, parser, say
from holdfast import Holdfast, Record, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaSource


def make_app(
    bootstrap: str, redis_url: str, topic: str, orders: FencedOrders, revenue: RevenueOnce, *, once: bool = False
) -> Holdfast:
    """The whole consumer; `run()` it."""
    app = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "ledger"}, assignment="sticky"),
        claims=RedisClaims.from_url(redis_url),
        settings=Settings(workers=4),
        observers=[Once(lambda: app.stop())] if once else [],  # noqa: PLW0108 - there is no app yet
    )

    @app.handler(topic, name="book")
    def book(record: Record) -> None:
        orders.write(record)
        added = revenue.add(record)
        say(f"{'booked' if added else 'booked before'} {record.json()['order_id']}")

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    options = parser(__doc__)
    options.add_argument(
        "--database", default="postgresql://holdfast@localhost:5432/holdfast", help="PostgreSQL's URL (%(default)s)"
    )
    options.add_argument("--once", action="store_true", help="end when what is there has been booked")
    asked = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topics(asked.bootstrap, asked.topic)
    orders, revenue = FencedOrders(asked.database), RevenueOnce(asked.database)
    try:
        make_app(asked.bootstrap, asked.redis, asked.topic, orders, revenue, once=asked.once).run()
    finally:
        orders.close()
        revenue.close()


if __name__ == "__main__":
    main()
