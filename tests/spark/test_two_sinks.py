"""Two sinks in one batch, each in a thread: neither takes what the other works with."""

from __future__ import annotations

import uuid
from threading import Event
from typing import TYPE_CHECKING

from pyspark import InheritableThread
from pyspark.sql import functions

from holdfast.adapters.spark import drop_done
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from holdfast.adapters.spark import BatchWrite
    from tests.spark.lake import Lake


def test_what_one_writes_was_claimed_by_it_whoever_ends_first(lake: Lake) -> None:
    """The rows are others each time that they are evaluated, as those of a join with a table that changes."""
    b_has_claimed, a_has_ended, written = Event(), Event(), list[str]()

    def write_a(rows: DataFrame, batch: BatchWrite) -> None:
        rows.collect()
        assert b_has_claimed.wait(PATIENCE_S)

    def write_b(rows: DataFrame, batch: BatchWrite) -> None:
        b_has_claimed.set()
        assert a_has_ended.wait(PATIENCE_S)
        written.extend(row.order_id for row in rows.collect())

    def put(name: str, write: Callable[..., None], ended: Event) -> None:
        lake.sink(name, write=write, safe="replace", query="q")(rows, 0)
        ended.set()

    fresh = functions.udf(lambda _: uuid.uuid4().hex, "string").asNondeterministic()
    rows = lake.spark.range(4).select(fresh("id").alias("order_id"))
    threads = [
        InheritableThread(target=put, args=("a", write_a, a_has_ended)),
        InheritableThread(target=put, args=("b", write_b, Event())),
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    again = lake.spark.createDataFrame([(key,) for key in written], "order_id string")
    assert len(written) == 4
    assert drop_done(again, key="order_id", claims=lake.url, scope="b").count() == 0
