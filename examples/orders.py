"""The README's quick start, to be run: bill each order of the topic `orders` once, whatever happens to the group.

Needs a Kafka broker and a Redis:

    pip install 'holdfast[kafka]'
    python examples/orders.py --bootstrap-servers localhost:9092 --redis redis://localhost:6379/0

Start it in several terminals, produce some orders (JSON with an `order_id`), stop one with Ctrl-C, kill another: each
order is printed once, except what was in a killed process' hands at that moment.
"""

from __future__ import annotations

import argparse
import json
import logging

from holdfast import Holdfast, RedisClaims, Retry, Settings
from holdfast.adapters.kafka import KafkaSource
from holdfast.records import Record  # noqa: TC001 (handlers may be looked at by their annotations)


def make_app(bootstrap_servers: str, redis_url: str) -> Holdfast:
    """The whole consumer; `run()` it."""
    app = Holdfast(
        KafkaSource(
            {"bootstrap.servers": bootstrap_servers, "group.id": "billing", "auto.offset.reset": "earliest"},
            assignment="sticky",
        ),
        claims=RedisClaims.from_url(redis_url),
        settings=Settings(workers=16, ordering="key"),
    )

    @app.handler("orders", key="order_id", retry=Retry(attempts=5), dead_letter="orders.dlq")
    def handle(record: Record) -> None:
        order = json.loads(record.value or b"{}")
        print(f"billing {order['order_id']} ({record.partition}, offset {record.offset})", flush=True)

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description="Bill each order once.")
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--redis", default="redis://localhost:6379/0")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    make_app(options.bootstrap_servers, options.redis).run()


if __name__ == "__main__":
    main()
