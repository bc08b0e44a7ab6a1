"""Orders into a database by SQLAlchemy: each order once, whatever crashes, and without Redis.

To run it:

    python -m examples.database.orders --database sqlite:///orders.db
"""

from __future__ import annotations

import logging

from sqlalchemy import create_engine
from sqlalchemy.orm import Session, sessionmaker

from examples.database.models import Base, Order, book
from examples.shop import Once, make_topics, parser, say
from holdfast import BatchFailed, BatchOf, Holdfast, Record, Settings, Unretriable
from holdfast.adapters.kafka import KafkaSource
from holdfast.adapters.sql import SqlPositions

_WORKERS = 4


def store_all(session: Session, records: list[Record]) -> None:
    """Write a batch. What is no order fails alone, and the others are written in another transaction."""
    orders: list[Order] = []
    failed: dict[int, Exception] = {}
    for position, record in enumerate(records):
        try:
            orders.append(Order.read(record.value))
        except Unretriable as error:
            failed[position] = error
    if failed:
        raise BatchFailed(failed)
    book(session, orders)
    first, last = records[0], records[-1]
    say(f"stores {len(orders)} ({first.partition}, offsets {first.offset} to {last.offset})")


def make_app(bootstrap: str, database: str, topic: str, *, once: bool) -> Holdfast:
    """The whole consumer; `run()` it."""
    engine = create_engine(database, pool_size=_WORKERS)
    Base.metadata.create_all(engine)
    # A service has the tables in its migrations: `holdfast sql schema` prints the store's.
    store = SqlPositions.from_url(database, create=True)
    app = Holdfast(
        KafkaSource({"bootstrap.servers": bootstrap, "group.id": "warehouse"}, assignment="sticky"),
        claims=store,
        settings=Settings(workers=_WORKERS),
        observers=[Once(lambda: app.stop())] if once else [],  # noqa: PLW0108 - there is no app yet
    )

    @app.handler(
        topic,
        key="order_id",  # a producer that sends an order twice is another way to have it twice
        batch=BatchOf(records=100, wait_s=0.1),
        dead_letter=f"{topic}.dlq",
        name="store",
        transaction=store.sqlalchemy(sessionmaker(engine)),
    )
    def _(records: list[Record], *, tx: Session) -> None:
        store_all(tx, records)

    return app


def main() -> None:
    """Consume until SIGTERM or Ctrl-C."""
    options = parser(__doc__)
    options.add_argument("--database", default="sqlite:///orders.db", help="a URL of SQLAlchemy's (%(default)s)")
    options.add_argument("--once", action="store_true", help="end when what is there has been stored")
    asked = options.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    make_topics(asked.bootstrap, asked.topic, f"{asked.topic}.dlq")
    make_app(asked.bootstrap, asked.database, asked.topic, once=asked.once).run()


if __name__ == "__main__":
    main()
