"""A driver with batches of 200 partitions on a standalone cluster: even ones, and with one key in half a million rows.

    python -m tests.spark.wide FOLDER MASTER REDIS_URL

What came of each batch goes to FOLDER/found.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as all of pyspark's documents have it

from holdfast.adapters.spark import idempotent_sink, writers
from tests.spark.session import local_session
from tests.spark.standalone import CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONS, ROWS, HOT = 200, 1_000_000, 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One. Args: hot: rows of one key, the first ones; the others have a key each."""

    name: str
    hot: int
    hash_keys: bool

    @property
    def keys(self) -> int:
        return ROWS - self.hot + (self.hot > 0)


BATCHES = (
    Batch(name="warm-up", hot=0, hash_keys=True),
    Batch(name="even-digests", hot=0, hash_keys=True),
    Batch(name="skewed-digests", hot=HOT, hash_keys=True),
    Batch(name="even-plain", hot=0, hash_keys=False),
    Batch(name="skewed-plain", hot=HOT, hash_keys=False),
)


def rows(spark: SparkSession, hot: int) -> DataFrame:
    """About 60 bytes each; the hot ones in many partitions."""
    numbers = spark.range(ROWS, numPartitions=PARTITIONS)
    key = F.when(F.col("id") < hot, F.lit("hot")).otherwise(F.concat(F.lit("order-"), F.col("id").cast("string")))
    return numbers.select(
        key.alias("order_id"), F.col("id").alias("at"), F.md5(F.col("id").cast("string")).alias("note")
    )


def run(folder: Path, master: str, url: str) -> None:
    """All of them, one after the other."""
    conf = {"spark.master": master, "spark.sql.shuffle.partitions": str(PARTITIONS)}
    spark = local_session(folder / "warehouse", CONF | conf, connectors=False)
    found = {}
    for batch in BATCHES:
        lake = writers.partition(str(folder / batch.name))
        sink = idempotent_sink(
            batch.name,
            key="order_id",
            claims=url,
            write=lake,
            query="q",
            keep=("last", "at"),
            namespace=f"wide-{batch.hash_keys}",
            hash_keys=batch.hash_keys,
            keys_expected=3 * ROWS,
        )
        began = time.perf_counter()
        sink(rows(spark, batch.hot), 0)
        elapsed_s = time.perf_counter() - began
        written = lake.read(spark)
        [(count, keys, last)] = written.agg(F.count(F.lit(1)), F.count_distinct("order_id"), F.min("at")).collect()
        found[batch.name] = {
            "lost": batch.keys - keys,
            "doubled": count - keys,
            "first": last,
            "elapsed_s": round(elapsed_s, 1),
        }
    (folder / "found").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
