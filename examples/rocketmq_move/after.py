"""The group as it is to be: holdfast, which goes on at the offsets that the group has committed.

To run it: python -m examples.rocketmq_move.after
"""

from __future__ import annotations

import json
import logging
import sys
import time

from examples.rocketmq.shop import parser
from holdfast import Holdfast, Record, RedisClaims, RedisCoordinator, Settings
from holdfast.adapters.rocketmq import RocketMQSource


def bill(order: dict[str, str]) -> None:
    """What takes its time."""
    time.sleep(0.02)
    # A line, whole: threads of a pool call this, and `print` writes the end of a line by itself.
    sys.stdout.write(f"billed {order['order_id']}\n")
    sys.stdout.flush()


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    asked = parser(__doc__).parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    store = RedisClaims.from_url(asked.redis)
    app = Holdfast(
        # Refuses to start while a PushConsumer is in the group.
        RocketMQSource(asked.namesrv, asked.group, coordinator=RedisCoordinator(store)),
        claims=store,
        settings=Settings(workers=4),
    )

    @app.handler(asked.topic, dead_letter="%DLQ%")
    def handle(record: Record) -> None:
        bill(json.loads(record.value or b""))

    app.run()


if __name__ == "__main__":
    main()
