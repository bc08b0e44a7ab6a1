"""The quick start of the README: bill each order once, whatever happens to the group.

To run it:

    python -m examples.quickstart.orders
"""

from __future__ import annotations

import json
import logging

from examples.shop import Once, make_topics, parser, say
from holdfast import Holdfast, Record, RedisClaims, Retry, Settings
from holdfast.adapters.kafka import KafkaSource


def make_app(bootstrap: str, redis_url: str, topic: str, *, once: bool) -> Holdfast:
    """The whole consumer; `run()` it."""
    app = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "billing"}, assignment="sticky"),
        claims=RedisClaims.from_url(redis_url),
        settings=Settings(workers=16, ordering="key"),
        observers=[Once(lambda: app.stop())] if once else [],  # noqa: PLW0108 - there is no app yet
    )

    @app.handler(topic, key="order_id", retry=Retry(attempts=5), dead_letter=f"{topic}.dlq", name="bill")
    def handle(record: Record) -> None:
        order = json.loads(record.value or b"")
        say(f"billed {order['order_id']} ({record.partition}, offset {record.offset})")

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    options = parser(__doc__)
    options.add_argument("--once", action="store_true", help="end when what is there has been handled")
    asked = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    make_app(asked.bootstrap, asked.redis, asked.topic, once=asked.once).run()


if __name__ == "__main__":
    main()
