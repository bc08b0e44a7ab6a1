"""What the Spark examples share: options, a session with Kafka's connector, the orders, and a loop that starts again.

They need `pip install 'holdfast-mq[spark,kafka]'` and Java 17 or 21, besides the servers.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import PySparkRuntimeError, StreamingQueryException
from pyspark.sql import SparkSession

from examples import shop
from holdfast.adapters.spark import require_java

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.adapters.spark import BatchReport

log = logging.getLogger("examples.spark")

#: Kafka's connector. Its version is Spark's own. Some versions have none: see 'Kafka' in docs/reference/spark.md.
CONNECTOR = {
    "spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    # One of its parts is not to be had in that version. An earlier one does.
    "spark.jars.excludes": "org.apache.spark:spark-token-provider-kafka-0-10_2.13",
    "spark.jars": "https://repo1.maven.org/maven2/org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.0.0/"
    "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
}
_FIELDS = "order_id string, customer string, cents bigint"
#: Times that a query may fail without getting on in between.
_FAILURES = 5
_WAIT_MAX_S = 60.0


def parser(description: str | None) -> argparse.ArgumentParser:
    """Where everything is."""
    made = shop.parser(description)
    made.add_argument(
        "--checkpoint", type=Path, help="where Spark keeps how far it has read (by default beside what is written)"
    )
    made.add_argument(
        "--jars", type=Path, help="a folder with Kafka's connector; else Spark fetches it from Maven Central"
    )
    made.add_argument("--once", action="store_true", help="end when what is there has been written")
    return made


def session(jars: Path | None) -> SparkSession:
    """Spark in this process, or what spark-submit gives. Exits with a sentence where it does not start."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers have the driver's interpreter
    builder = SparkSession.builder.appName("holdfast").config("spark.sql.shuffle.partitions", "4")
    if jars is None:
        builder = builder.config(map={**CONNECTOR})
    elif found := sorted(map(str, jars.glob("*.jar"))):
        builder = builder.config("spark.jars", ",".join(found))
    else:
        raise SystemExit(f"no jars in {jars}: `make setup` puts Kafka's connector into .servers/spark/lib")
    require_java()
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError:
        raise SystemExit(
            "Spark did not start, and has said why above; 'unresolved dependency' there: Kafka's connector was "
            "not found: see 'Kafka' in docs/reference/spark.md, and --jars"
        ) from None


def orders(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    """The orders of a topic, from its begin, as columns. What is no order comes as nulls, and is left out."""
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("subscribe", topic)
    # A first start reads all that is there: in batches that fit.
    stream = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 100_000)
    read = stream.load().selectExpr(f"from_json(CAST(value AS STRING), '{_FIELDS}') AS read").select("read.*")
    return read.where("order_id <> ''")


def keep_running(start: Callable[[], StreamingQuery]) -> None:
    """Start a query again when it fails, after a while that grows; until Ctrl-C, or until it has nothing left to read.

    Args:
        start: builds and starts it, each time anew.

    Raises:
        StreamingQueryException: it failed five times without a batch in between. Repeating will not cure that.
    """
    failures = 0
    while True:
        query = start()
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            failures = 1 if query.lastProgress else failures + 1
            if failures >= _FAILURES:
                raise
            wait_s = min(_WAIT_MAX_S, 2.0**failures)
            log.warning("the query is started again in %.0f s; it ended with: %s", wait_s, error)
            time.sleep(wait_s)
        except KeyboardInterrupt:
            query.stop()
            return
        else:
            return


def started(writer: DataStreamWriter, checkpoint: Path, *, once: bool) -> StreamingQuery:
    """With its checkpoint; a batch as soon as there is something to read, or until nothing is left."""
    writer = writer.option("checkpointLocation", str(checkpoint.absolute()))
    return (writer.trigger(availableNow=True) if once else writer).start()


def told(report: BatchReport) -> None:
    """An observer that says a line for each batch."""
    if report.finished_before:
        shop.say(f"batch {report.batch}: written before")
    else:
        shop.say(f"batch {report.batch}: {report.owned} of {report.rows} rows written")
