"""Batches of a few rows, into many tables: compiling their plans takes longer than running them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.spark.session import changed
from tests.spark.session import SHORT_LIFE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture
def quick(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, for a test."""
    with changed(spark, SHORT_LIFE):
        yield spark
