"""The examples of Spark as they stand, in the Spark that is there: a start of another would be dear."""

from __future__ import annotations

import runpy
import shutil
import sys
import uuid
from typing import TYPE_CHECKING

import pytest

from examples.shop import make_topics, send
from tests.spark.session import CONF

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.postgres import PostgresServer

pytestmark = pytest.mark.full

_PARTITIONS = "spark.sql.shuffle.partitions"


class Shop:
    """A topic, and the examples that read it to its end."""

    def __init__(
        self, kafka: KafkaServer, redis_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self._topic = f"shop-{uuid.uuid4().hex[:8]}"
        self._where = ["--bootstrap", kafka.bootstrap, "--redis", redis_url, "--topic", self._topic]
        self._bootstrap = kafka.bootstrap
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def send(self, *ids: str) -> None:
        make_topics(self._bootstrap, self._topic)
        send(self._bootstrap, self._topic, list(ids))

    def run(self, module: str, *arguments: object) -> list[str]:
        """Returns what it says, line by line."""
        self._capsys.readouterr()
        self._monkeypatch.setattr(sys, "argv", [module, *self._where, *map(str, arguments), "--once"])
        runpy.run_module(module, run_name="__main__")
        return self._capsys.readouterr().out.splitlines()


@pytest.fixture
def shop(
    spark: SparkSession,
    kafka: KafkaServer,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Iterator[Shop]:
    yield Shop(kafka, redis_url, monkeypatch, capsys)
    spark.conf.set(_PARTITIONS, CONF[_PARTITIONS])  # an example has its own


@pytest.mark.timeout(900)
def test_orders_that_come_twice_are_in_the_lake_once_also_after_the_checkpoint_is_lost(
    shop: Shop, tmp_path: Path
) -> None:
    lake = tmp_path / "orders"
    shop.send("a", "b", "c", "a", "b", "c")
    assert shop.run("examples.spark_orders_to_parquet", "--lake", lake) == [
        "batch 0: 3 of 6 rows written",
        f"3 orders in {lake}",
    ]
    shutil.rmtree(tmp_path / "orders-checkpoint")
    shop.send("d")
    assert shop.run("examples.spark_orders_to_parquet", "--lake", lake) == [
        "batch 0: 1 of 7 rows written",
        f"4 orders in {lake}",
    ]


@pytest.mark.timeout(900)
def test_orders_that_come_twice_are_in_the_table_once(shop: Shop, tmp_path: Path, postgres: PostgresServer) -> None:
    given = ["--database", postgres.database(), "--checkpoint", tmp_path / "checkpoint"]
    shop.send("a", "b", "c", "a", "b", "c")
    first, second = (shop.run("examples.spark_orders_to_postgres", *given) for _ in range(2))
    assert first[-1].startswith("3 orders of ")
    assert second == first[-1:]  # nothing new to read
