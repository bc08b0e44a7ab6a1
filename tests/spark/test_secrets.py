"""A password in the URL of Redis is in no plan, event log, log or error."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.spark import BatchFenced, drop_done
from holdfast.errors import SettingError, StoreError
from tests.harness.servers.redis import RedisServer
from tests.spark.lake import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import BatchWrite

_PASSWORD = "hunter2-in-no-log"  # noqa: S105 - of a server that this test starts


def test_a_password_shows_up_nowhere(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, logger="holdfast")
    said: list[str] = []

    def fail(rows: DataFrame, batch: BatchWrite) -> None:
        rows.explain(True)
        lake.store.parts().client.delete("{hf:holdfast:0}:sessions")

    with RedisServer(password=_PASSWORD) as server:
        assert _PASSWORD in server.url
        lake = Lake(spark, server.url, tmp_path / "lake")
        lake.put(0, ("a", 1))
        lake.put(0, ("a", 1))
        with pytest.raises(BatchFenced) as raised:
            lake.put(1, ("b", 1), write=fail, safe="replace")
        said.append(str(raised.value))
        left = drop_done(lake.rows(("a", 1)), key="order_id", claims=server.url, scope="s")
        left.explain(True)
        assert left.count() == 1
        with pytest.raises(StoreError) as refused:
            lake.put(2, ("b", 1), claims=server.url.replace(_PASSWORD, f"{_PASSWORD}-no"))
        said.append(str(refused.value))
        with pytest.raises(SettingError) as misspelt:
            lake.put(2, ("b", 1), claims=server.url.replace("://", "//"))
        said.append(str(misspelt.value))
        lake.store.close()
    with pytest.raises(StoreError) as away:
        lake.put(2, ("b", 1))
    said.append(str(away.value))
    printed = capfd.readouterr()
    assert "MapInArrow" in printed.out
    events = event_log(spark)
    assert "MapInArrow" in events
    for where in (*said, printed.out, printed.err, caplog.text, events):
        assert _PASSWORD not in where


def event_log(spark: SparkSession) -> str:
    """What Spark has written of itself so far."""
    folder = Path(spark.sparkContext.getConf().get("spark.eventLog.dir", ""))
    return "".join(each.read_text() for each in folder.rglob("*") if each.is_file() and each.suffix != ".crc")
