"""What the RocketMQ examples share: their options, their topic, and a shop that sends orders.

To run it:

    python -m examples.rocketmq.shop 20            # 20 orders to the topic `orders`, which is made where it is missing
    python -m examples.rocketmq.shop 20 --twice    # each is sent twice
"""

from __future__ import annotations

import argparse
import json
import uuid
from contextlib import closing

from holdfast.adapters.rocketmq import RocketMQProducer
from holdfast.adapters.rocketmq.remoting import Admin, RemotingClient
from holdfast.errors import UnknownTopic
from holdfast.timing import Deadline

_PATIENCE_S = 15.0
_CUSTOMERS = 5


def parser(description: str | None) -> argparse.ArgumentParser:
    """Where the servers are, and what to read."""
    made = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    made.add_argument("--namesrv", default="localhost:9876", help="RocketMQ's name server (%(default)s)")
    made.add_argument("--redis", default="redis://localhost:6379/0", help="the URL of Redis (%(default)s)")
    made.add_argument("--topic", default="orders", help="%(default)s")
    made.add_argument("--group", default="billing", help="%(default)s")
    return made


def make_topic(namesrv: str, topic: str, queues: int = 4) -> None:
    """Make it where it is missing. Raises SourceError."""
    with closing(RemotingClient(namesrv)) as client:
        try:
            client.route(topic, Deadline(_PATIENCE_S))
        except UnknownTopic:
            Admin(client).create_topic(topic, Deadline(_PATIENCE_S), queues=queues)


def send(namesrv: str, topic: str, ids: list[str]) -> None:
    """Send an order for each id; a customer's orders stay in order."""
    with RocketMQProducer(namesrv) as producer:
        for number, order_id in enumerate(ids):
            customer = f"customer-{number % _CUSTOMERS}"
            order = {"order_id": order_id, "customer": customer, "cents": 100 + number}
            producer.send(topic, json.dumps(order).encode(), keys=order_id, sharding_key=customer)


def main() -> None:
    """Send orders with ids that nobody had before."""
    options = parser(__doc__)
    options.add_argument("orders", type=int, nargs="?", default=20, help="how many (%(default)s)")
    options.add_argument("--twice", action="store_true", help="send each of them twice")
    asked = options.parse_args()
    make_topic(asked.namesrv, asked.topic)
    batch = uuid.uuid4().hex[:4]
    ids = [f"{batch}-{number}" for number in range(1, asked.orders + 1)]
    send(asked.namesrv, asked.topic, ids * (2 if asked.twice else 1))
    print(f"sent {ids[0]} to {ids[-1]}{', each twice' if asked.twice else ''}, to {asked.topic}")


if __name__ == "__main__":
    main()
