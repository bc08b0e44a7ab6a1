"""Orders from Kafka to a folder of Parquet files by Spark, each once.

To run it, with Kafka and Redis on this machine (`docker compose up -d`):

    pip install 'holdfast-mq[kafka,spark]'
    python -m examples.shop 1000 --twice
    python -m examples.spark_orders_to_parquet --lake lake/orders

Kill it (kill -9) as often as you like, or delete lake/orders-checkpoint, and start it again: no order is lost, and none
is there twice.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from examples import shop, spark_stream
from holdfast.adapters.spark import idempotent_sink, writers

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


def main() -> None:
    """Write until Ctrl-C, or with --once until all is written."""
    options = spark_stream.parser(__doc__)
    options.add_argument("--lake", type=Path, default=Path("lake/orders"), help="a folder (%(default)s)")
    asked = options.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s")
    shop.make_topics(asked.bootstrap, asked.topic)
    spark = spark_stream.session(asked.jars)
    lake = writers.partition(str(asked.lake.absolute()))
    told = spark_stream.told
    sink = idempotent_sink("orders-lake", key="order_id", claims=asked.redis, write=lake, observer=told)

    def start() -> StreamingQuery:
        orders = spark_stream.orders(spark, asked.bootstrap, asked.topic)
        checkpoint = asked.checkpoint or asked.lake.with_name(f"{asked.lake.name}-checkpoint")
        return spark_stream.started(orders.writeStream.foreachBatch(sink), checkpoint, once=asked.once)

    spark_stream.keep_running(start)
    shop.say(f"{lake.read(spark).count()} orders in {asked.lake}")


if __name__ == "__main__":
    main()
