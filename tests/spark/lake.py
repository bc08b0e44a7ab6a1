"""A sink over a folder, batches handed to it as foreachBatch would, and what it has told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark import BatchReport, idempotent_sink, writers
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_store import RedisClaims

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import IdempotentSink

SINK = "orders-lake"


class Lake:
    """A sink over a folder, and what it has told."""

    def __init__(self, spark: SparkSession, url: str, path: Path) -> None:
        self.spark = spark
        self.url = url
        self.writer = writers.partition(str(path))
        self.reports: list[BatchReport] = []
        self.store = RedisClaims.from_url(url)

    def rows(self, *rows: tuple[Any, ...]) -> DataFrame:
        return self.spark.createDataFrame(list(rows), "order_id string, amount int")

    def put(self, batch: int, *rows: tuple[Any, ...], query: str = "q", sink: str = SINK, **given: Any) -> BatchReport:
        self.sink(sink, query=query, **given)(self.rows(*rows), batch)
        return self.reports[-1]

    def sink(self, name: str = SINK, **given: Any) -> IdempotentSink:
        usual = {
            "write": self.writer,
            "key": "order_id",
            "claims": self.url,
            "patience_s": 1,
            "observer": self.reports.append,
        }
        settings: dict[str, Any] = usual | given
        return idempotent_sink(name, **settings)

    def read(self) -> list[tuple[str, int]]:
        return sorted((row.order_id, row.amount) for row in self.writer.read(self.spark).collect())

    def by_a_consumer(self, key: str, *, finish: bool) -> None:
        """What a consumer that is not Spark does with a key; its session goes on."""
        session = self.store.begin(600.0)
        claim = Claim(ClaimKey(SINK, f"s:{key}"), Token("orders-0", 7, 1))
        assert session.claim([claim]) == [Verdict.NEW]
        if finish:
            session.finish([claim])

    def asked_by_a_consumer(self, key: str) -> Verdict:
        [verdict] = self.store.begin(600.0).claim([Claim(ClaimKey(SINK, f"s:{key}"), Token("orders-0", 8, 1))])
        return verdict
