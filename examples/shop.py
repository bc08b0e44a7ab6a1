"""What the examples share: their options, their topics, and a shop that sends orders.

To run it:

    python -m examples.shop 20            # 20 orders to the topic `orders`, which is made where it is missing
    python -m examples.shop 20 --twice    # each is sent twice, as by a producer that did not see the first answer
"""

from __future__ import annotations

import argparse
import json
import sys
import uuid
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.plugin.events import RebalanceReport

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE_S = 15.0
_CUSTOMERS = 5


def parser(description: str | None) -> argparse.ArgumentParser:
    """Where the servers are, and what to read."""
    made = argparse.ArgumentParser(description=(description or "").split("\n", 1)[0])
    made.add_argument("--bootstrap", default="localhost:9092", help="Kafka's address (%(default)s)")
    made.add_argument("--redis", default="redis://localhost:6379/0", help="the URL of Redis (%(default)s)")
    made.add_argument("--topic", default="orders", help="%(default)s; dead letters go to TOPIC.dlq")
    return made


def make_topics(bootstrap: str, *topics: str, partitions: int = 4) -> None:
    """Make those that are missing. Raises KafkaException: the broker refuses."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})  # what is wrong is said below
    made = admin.create_topics([NewTopic(topic, num_partitions=partitions) for topic in topics])
    for future in made.values():
        try:
            future.result(_PATIENCE_S)
        except TimeoutError:
            raise SystemExit(f"no answer from {bootstrap} within {_PATIENCE_S:g} s: is it the right address?") from None
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def say(line: str) -> None:
    """A line, whole: handlers run in threads, and `print` writes the end of a line by itself."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Once:
    """An observer that stops an app when it has worked off what was there at its start: for `--once`.

    An app of your own runs until SIGTERM or Ctrl-C, and needs nothing of the kind.
    """

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def on_event(self, event: object) -> None:
        """The report of the first assignment is told when its lag is gone."""
        if isinstance(event, RebalanceReport) and event.recovered_s is not None:
            self._stop()


def send(bootstrap: str, topic: str, ids: list[str]) -> None:
    """Send an order for each id, and wait until the broker has them all."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for number, order_id in enumerate(ids):
        customer = f"customer-{number % _CUSTOMERS}"
        order = {"order_id": order_id, "customer": customer, "cents": 100 + number}
        producer.produce(topic, key=customer, value=json.dumps(order))
    if producer.flush(_PATIENCE_S):
        raise SystemExit(f"{bootstrap} has not taken all orders within {_PATIENCE_S:g} s: is it the right address?")


def main() -> None:
    """Send orders with ids that nobody had before."""
    options = parser(__doc__)
    options.add_argument("orders", type=int, nargs="?", default=20, help="how many (%(default)s)")
    options.add_argument("--twice", action="store_true", help="send each of them twice")
    asked = options.parse_args()
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    batch = uuid.uuid4().hex[:4]
    ids = [f"{batch}-{number}" for number in range(1, asked.orders + 1)]
    send(asked.bootstrap, asked.topic, ids * (2 if asked.twice else 1))
    print(f"sent {ids[0]} to {ids[-1]}{', each twice' if asked.twice else ''}, to {asked.topic}")


if __name__ == "__main__":
    main()
