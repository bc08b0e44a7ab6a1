"""An operator that keeps a state of its own, above the sink: it counts each customer's orders, a line a batch."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812 - as all of pyspark's documents have it
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, GroupedData
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues

#: The customer alone would be done after its first line.
KEY = ("customer", "line")
CONF = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
_CUSTOMERS = 40


class Counting(StatefulProcessor):
    """Of a customer: how many lines there are of it, and how many orders it has had."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._so_far = handle.getValueState("so_far", "line int, orders int")

    def handleInputRows(  # noqa: N802 - Spark's name
        self,
        key: Any,
        rows: Iterator[pd.DataFrame],
        timerValues: TimerValues,  # noqa: N803 - Spark's name
    ) -> Iterator[pd.DataFrame]:
        line, orders = self._so_far.get() or (0, 0)
        now = (line + 1, orders + sum(len(some) for some in rows))
        self._so_far.update(now)
        yield pd.DataFrame({"customer": [key[0]], "line": [now[0]], "orders": [now[1]]})

    def close(self) -> None:
        pass


def lines(orders: DataFrame) -> DataFrame:
    """A stream of them: in update mode."""
    of = _by_customer(orders)
    return of.transformWithStateInPandas(Counting(), "customer int, line int, orders int", "Update", "None")


def judged(written: DataFrame, orders: DataFrame) -> dict[str, int]:
    """What is wrong with the lines that were written. Args: orders: all that were read."""
    sent = {row.customer: row["count"] for row in _by_customer(orders).count().collect()}
    found = defaultdict(list)
    for row in written.collect():
        found[row.customer].append((row.line, row.orders))
    counted = {customer: max(of)[1] for customer, of in found.items()}
    numbers = {customer: {line for line, _ in of} for customer, of in found.items()}
    return {
        "lost": sum(max(0, of - counted.get(customer, 0)) for customer, of in sent.items())
        + sum(max(of) - len(of) for of in numbers.values()),
        "doubled": sum(max(0, counted.get(customer, 0) - of) for customer, of in sent.items())
        + sum(len(of) - len(numbers[customer]) for customer, of in found.items()),
    }


def _by_customer(orders: DataFrame) -> GroupedData:
    customer = F.pmod(F.hash("order_id"), F.lit(_CUSTOMERS)).alias("customer")
    return orders.select(customer, "order_id").groupBy("customer")
