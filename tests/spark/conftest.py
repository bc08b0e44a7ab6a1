"""One Spark for all tests: a start takes 14 s of CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.servers.postgres import postgres
from tests.spark.lake import Lake
from tests.spark.session import local_session

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


__all__ = ["postgres"]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A classic session."""
    folder = tmp_path_factory.mktemp("spark")
    events = folder / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": str(events)}
    session = local_session(folder / "warehouse", conf)
    yield session
    session.stop()


@pytest.fixture
def lake(spark: SparkSession, redis_url: str, tmp_path: Path) -> Iterator[Lake]:
    """Over a Redis that is empty."""
    made = Lake(spark, redis_url, tmp_path / "lake")
    yield made
    made.store.close()
