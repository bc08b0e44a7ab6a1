"""Orders from Kafka to a table of PostgreSQL by Spark, each once.

To run it, with Kafka, Redis and PostgreSQL on this machine (`docker compose --profile postgres up -d`):

    pip install 'holdfast-mq[kafka,spark,postgres]'
    python -m examples.shop 1000 --twice
    python -m examples.spark_orders_to_postgres

Another database: `--database postgresql://user@host/database`, with the password where libpq looks for it (PGPASSWORD,
or ~/.pgpass), and not on the command line. Rows and a row that names their batch are one transaction: kill it (kill -9)
as often as you like, and start it again.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from examples import shop, spark_stream
from holdfast.adapters.spark import idempotent_sink, writers

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_TABLE = "CREATE TABLE IF NOT EXISTS orders (order_id text PRIMARY KEY, customer text, cents bigint)"


def ask(database: str, statement: str) -> list[tuple[Any, ...]]:
    """One statement, in a transaction of its own."""
    with psycopg.connect(database) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def main() -> None:
    """Write until Ctrl-C, or with --once until all is written."""
    options = spark_stream.parser(__doc__)
    options.add_argument(
        "--database", default="postgresql://holdfast@localhost:5432/holdfast", help="PostgreSQL's URL (%(default)s)"
    )
    asked = options.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    shop.make_topics(asked.bootstrap, asked.topic)
    ask(asked.database, _TABLE)
    spark = spark_stream.session(asked.jars)
    table = writers.postgres("orders", asked.database)
    told = spark_stream.told
    sink = idempotent_sink("orders-table", key="order_id", claims=asked.redis, write=table, observer=told)

    def start() -> StreamingQuery:
        orders = spark_stream.orders(spark, asked.bootstrap, asked.topic)
        checkpoint = asked.checkpoint or Path("orders-checkpoint")
        return spark_stream.started(orders.writeStream.foreachBatch(sink), checkpoint, once=asked.once)

    spark_stream.keep_running(start)
    [(orders, cents)] = ask(asked.database, "SELECT count(*), sum(cents) FROM orders")
    shop.say(f"{orders} orders of {cents} cents")


if __name__ == "__main__":
    main()
