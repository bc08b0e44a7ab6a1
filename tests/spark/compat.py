"""What the adapter needs of pyspark, in one short run: `make compat` has it on the oldest and the newest promised.

python -m tests.spark.compat
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from holdfast.adapters.spark import BatchReport, drop_done, idempotent_sink, reason, require_java, writers
from holdfast.adapters.spark.audit import follow, stream
from tests.harness.servers.redis import RedisServer
from tests.spark.audit.endless import Endless
from tests.spark.session import SHORT_LIFE, local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SAID = "key='orderid': the rows have no such column (they have: order_id, amount)"


def run(spark: SparkSession, url: str, folder: Path, **layout: Any) -> None:
    """A stream through the sink, twice; a setting that is wrong; rows that are done; batches without a stream."""
    folder.mkdir()
    lake = writers.partition(str(folder / "lake"))
    reports: list[BatchReport] = []

    def stream(key: str, checkpoint: str) -> None:
        sink = idempotent_sink("orders", key=key, claims=url, write=lake, observer=reports.append, **layout)
        rows = spark.readStream.schema("order_id string, amount int").json(str(folder / "in"))
        writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
        writer.option("checkpointLocation", str(folder / checkpoint)).start().awaitTermination()

    (folder / "in").mkdir()
    (folder / "in" / "0.json").write_text(
        '{"order_id": "a", "amount": 1}\n{"order_id": "b", "amount": 2}\n{"order_id": "b", "amount": 2}\n'
    )
    stream("order_id", "first")
    stream("order_id", "another")  # the checkpoint was deleted
    assert [(each.rows, each.owned, each.copies, each.skipped) for each in reports] == [(3, 2, 1, 0), (3, 0, 1, 2)]
    assert sorted((row.order_id, row.amount) for row in lake.read(spark).collect()) == [("a", 1), ("b", 2)]
    with pytest.raises(StreamingQueryException) as wrong:
        stream("orderid", "wrong")
    assert reason(wrong.value) == _SAID
    rows = spark.createDataFrame([("a", 1), ("c", 1)], "order_id string, amount int")
    left = drop_done(rows, key="order_id", claims=url, scope="orders", **layout)
    assert [row.order_id for row in left.collect()] == ["c"]
    sink = idempotent_sink("orders", key="order_id", claims=url, write=lake, query="direct", **layout)
    for number, order in enumerate("def"):
        sink(spark.createDataFrame([(order, number)], "order_id string, amount int"), number)
    assert sorted(row.order_id for row in lake.read(spark).collect()) == ["a", "b", "d", "e", "f"]


def run_audit(spark: SparkSession, folder: Path) -> None:
    """The audit of a stream, started twice."""
    endless, come = Endless(), folder / "events"
    come.mkdir()
    for number in range(2):
        (come / f"{number}.jsonl").write_text("\n".join(endless.lines(60)))
        lines, now = stream(spark, str(come)), {"availableNow": True}
        query = follow(lines, output=str(folder / "tables"), checkpoint=str(folder / "followed"), trigger=now)
        query.awaitTermination()
    gaps = spark.read.parquet(str(folder / "tables" / "gaps")).where("verdict = 'lost'")
    assert sum(row.offsets for row in gaps.collect()) == endless.lost > 0


if __name__ == "__main__":
    logging.basicConfig()
    logging.getLogger("holdfast").setLevel(logging.INFO)  # py4j has a line for each call
    java = require_java()
    with tempfile.TemporaryDirectory() as made, RedisServer() as server:
        session = local_session(Path(made, "warehouse"), {**SHORT_LIFE, "spark.ui.showConsoleProgress": "false"})
        run(session, server.url, Path(made, "plain"))
        run(session, server.url, Path(made, "digests"), namespace="digests", hash_keys=True)
        run_audit(session, Path(made))
        print(f"pyspark {session.version}, Java {java}, Python {sys.version.split()[0]}: works")
        session.stop()
