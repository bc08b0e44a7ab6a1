"""Bill each order, in a loop of one's own around the client.

To run it: python -m examples.loop.before (or after)
"""

from __future__ import annotations

import json
import time

from confluent_kafka import Consumer

from examples.shop import make_topics, parser


def bill(order: dict[str, str]) -> None:
    """What takes its time in your loop."""
    time.sleep(0.05)
    print(f"billed {order['order_id']}", flush=True)


def main() -> None:
    """Consume until Ctrl-C, or until there is nothing more and N records have come."""
    options = parser(__doc__)
    options.add_argument("--records", type=int, metavar="N", help="end when that many have come")
    asked = options.parse_args()
    make_topics(asked.bootstrap, asked.topic)

    conf = {"bootstrap.servers": asked.bootstrap, "group.id": "billing-loop", "auto.offset.reset": "earliest"}
    consumer = Consumer(conf)
    consumer.subscribe([asked.topic])
    records = 0
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                if asked.records is not None and records >= asked.records:
                    break
                continue
            if message.error() is not None:
                print(f"trouble: {message.error()}")
                continue
            bill(json.loads(message.value() or b""))
            records += 1
    except KeyboardInterrupt:
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
