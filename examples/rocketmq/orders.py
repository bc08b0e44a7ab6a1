"""Bill each order once, from RocketMQ, whatever happens to the group.

To run it:

    python -m examples.rocketmq.orders
"""

from __future__ import annotations

import json
import logging
import sys

from examples.rocketmq.shop import make_topic, parser
from holdfast import Holdfast, Record, RedisClaims, RedisCoordinator, Retry, Settings
from holdfast.adapters.rocketmq import RocketMQSource


def make_app(namesrv: str, redis_url: str, topic: str, group: str) -> Holdfast:
    """The whole consumer; `run()` it."""
    store = RedisClaims.from_url(redis_url)
    app = Holdfast(
        RocketMQSource(namesrv, group, coordinator=RedisCoordinator(store)),
        claims=store,
        settings=Settings(workers=16, ordering="key"),
    )

    @app.handler(topic, key="order_id", retry=Retry(attempts=5), dead_letter="%DLQ%", name="bill")
    def handle(record: Record) -> None:
        order = json.loads(record.value or b"")
        # A line, whole: handlers run in threads, and `print` writes the end of a line by itself.
        sys.stdout.write(f"billed {order['order_id']} ({record.partition}, offset {record.offset})\n")
        sys.stdout.flush()

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    asked = parser(__doc__).parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topic(asked.namesrv, asked.topic)
    make_app(asked.namesrv, asked.redis, asked.topic, asked.group).run()


if __name__ == "__main__":
    main()
