"""Orders into a database, in batches: one transaction a batch, and a database that refuses a former owner.

To run it:

    python -m examples.database.orders --database orders.db
"""

from __future__ import annotations

import logging
from pathlib import Path

from examples.database.sink import Order, Sink
from examples.shop import Once, make_topics, parser, say
from holdfast import BatchFailed, BatchOf, Holdfast, Record, RedisClaims, Settings, Unretriable
from holdfast.adapters.kafka import KafkaSource


def store(sink: Sink, records: list[Record]) -> None:
    """Write a batch; what it raises about single records is about these alone. The records are of one partition."""
    orders: list[Order] = []
    failed: dict[int, Exception] = {}
    for position, record in enumerate(records):
        try:
            orders.append(Order.read(record.value))
        except Unretriable as error:
            failed[position] = error
    first, last = records[0], records[-1]
    new = sink.write(str(first.partition), first.fence.epoch, orders)  # raises: all of the batch is tried again
    say(f"stored {new} of {len(records)} ({first.partition}, offsets {first.offset} to {last.offset})")
    if failed:
        raise BatchFailed(failed)


def make_app(bootstrap: str, redis_url: str, topic: str, sink: Sink, *, once: bool) -> Holdfast:
    """The whole consumer; `run()` it."""
    app = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "warehouse"}, assignment="sticky"),
        claims=RedisClaims.from_url(redis_url),
        settings=Settings(workers=4),
        observers=[Once(lambda: app.stop())] if once else [],  # noqa: PLW0108 - there is no app yet
    )

    @app.handler(
        topic, key="order_id", batch=BatchOf(records=100, wait_s=0.1), dead_letter=f"{topic}.dlq", name="store"
    )
    def _(records: list[Record]) -> None:
        store(sink, records)

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    options = parser(__doc__)
    options.add_argument("--database", type=Path, default=Path("orders.db"), help="a SQLite file (%(default)s)")
    options.add_argument("--once", action="store_true", help="end when what is there has been stored")
    asked = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    sink = Sink(asked.database)
    try:
        make_app(asked.bootstrap, asked.redis, asked.topic, sink, once=asked.once).run()
    finally:
        sink.close()


if __name__ == "__main__":
    main()
