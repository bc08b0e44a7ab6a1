"""As standalone.py, by Spark Connect: a client, whose server is the driver. Its writer is a function of the user's.

python -m tests.spark.connect_standalone FOLDER
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from holdfast.adapters.spark import idempotent_sink
from tests.spark.connect import started_well
from tests.spark.standalone import Aims, Plan, judged, orders, standing, writing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from holdfast.adapters.spark import BatchReport, BatchWrite

#: Of standalone.py those that a function of the user's, and the tasks below it, come by.
PHASES = ("claiming", "claimed", "writing", "written", "settled")


class Overwriting:
    """A user's function, safe by "replace". On the server, where it comes by cloudpickle."""

    def __init__(self, folder: Path) -> None:
        self._aims, self._lake = Aims(folder), str(folder / "lake")

    def __call__(self, rows: DataFrame, batch: BatchWrite) -> None:
        self._aims.at("claimed", batch.batch)
        found = writing(rows, self._aims, batch)
        found.write.mode("overwrite").parquet(f"{self._lake}/of_batch={batch.batch}")
        self._aims.at("written", batch.batch)

    def observe(self, report: BatchReport) -> None:
        self._aims.at("settled", report.batch)


def run(folder: Path, plan: Plan) -> None:
    """From the checkpoint to the end. `plan.master`: the server."""
    spark = SparkSession.builder.remote(plan.master).create()
    write = Overwriting(folder)
    sink = idempotent_sink(
        "orders",
        key="order_id",
        claims=plan.redis,
        query="q",
        write=write,
        safe="replace",
        observer=write.observe,
        hash_keys=plan.hash_keys,
        keys_expected=10_000,
    )
    stream = orders(spark, folder).writeStream.foreachBatch(standing(sink, folder)).trigger(availableNow=True)
    started_well(stream.option("checkpointLocation", str(folder / "checkpoint"))).awaitTermination()
    found = judged(spark.read.parquet(str(folder / "lake")), plan)
    (folder / "found").write_text(json.dumps(found))


if __name__ == "__main__":
    run(Path(sys.argv[1]), Plan.read(Path(sys.argv[1])))
    os._exit(0)  # whatever becomes of the server
