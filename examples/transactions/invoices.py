"""Orders become invoices, exactly once: what the handler sends and the group's offsets are one transaction of Kafka.

To run it:

    python -m examples.shop 20
    python -m examples.transactions.invoices          # kill it with `kill -9`, and start it again
    python -m examples.transactions.invoices --read   # what a reader of committed records gets
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from examples.shop import Once, make_topics, parser, say
from holdfast import Holdfast, Outputs, Record
from holdfast.adapters.kafka import KafkaSource, Transactions

if TYPE_CHECKING:
    from collections.abc import Iterator


def make_app(bootstrap: str, topic: str, *, once: bool) -> Holdfast:
    """The whole consumer; `run()` it. It needs no store: the group's offsets say what is done."""
    source = KafkaSource(
        {"bootstrap.servers": bootstrap, "group.id": "invoices"},
        assignment="sticky",
        transactions=Transactions(interval_s=0.1),
    )
    app = Holdfast(source, claims=None, observers=[Once(lambda: app.stop())] if once else [])  # noqa: PLW0108 - there is no app yet

    @app.handler(topic, dead_letter=f"{topic}.dlq")
    def invoice(record: Record, *, out: Outputs) -> None:
        order = json.loads(record.value or b"")
        out.send(f"{topic}.invoices", key=record.key, value=json.dumps({"invoice": order["order_id"]}))
        out.send(f"{topic}.ledger", key=record.key, value=str(order["cents"]))

    return app


def read(bootstrap: str, topic: str) -> Iterator[str]:
    """The values that are committed in a topic, from its first to its last."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.partition.eof": True})
    open_ = set(reader.list_topics(topic, timeout=10).topics[topic].partitions)
    reader.assign([TopicPartition(topic, number, 0) for number in open_])
    while open_:
        message = reader.poll(10)
        if message is None:
            raise SystemExit(f"no answer from {bootstrap}")
        if (error := message.error()) is None:
            yield (message.value() or b"").decode()
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name
            open_.discard(message.partition() or 0)
    reader.close()


def main() -> None:
    """Consume until SIGTERM or Ctrl-C; or read what was written."""
    options = parser(__doc__)
    options.add_argument("--once", action="store_true", help="end when what is there has been handled")
    options.add_argument("--read", action="store_true", help="print the invoices")
    asked = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    if asked.read:
        for line in read(asked.bootstrap, f"{asked.topic}.invoices"):
            say(line)
        return
    make_topics(asked.bootstrap, *(f"{asked.topic}{each}" for each in ("", ".dlq", ".invoices", ".ledger")))
    make_app(asked.bootstrap, asked.topic, once=asked.once).run()


if __name__ == "__main__":
    main()
