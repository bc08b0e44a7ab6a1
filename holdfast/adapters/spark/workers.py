"""Whether Spark's Python workers can run what the sink sends them: asked when a batch could not be claimed."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import SPARK_ERRORS
from holdfast.errors import ClientUnusable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from holdfast.adapters.spark._pyspark import SparkSession, pa


def require_workers(spark: SparkSession) -> None:
    """Two tiny jobs, which tell the one from the other; Spark says both in the middle of a trace.

    Raises:
        ClientUnusable: workers of another Python, or without what mapInArrow needs, or without holdfast.
    """
    if (error := _failure(spark, FunctionType(_through.__code__, {}))) is not None:
        raise ClientUnusable(
            f"Spark's Python workers do not run: they need this driver's Python, {sys.version_info[0]}."
            f"{sys.version_info[1]}, with 'holdfast[spark]' installed: set PYSPARK_PYTHON, or the conf "
            "spark.pyspark.python, to such a one before the session starts"
        ) from error
    if (error := _failure(spark, _through)) is not None:
        raise ClientUnusable(
            "Spark's Python workers cannot import holdfast: pip install 'holdfast[spark]' where the executors run, in "
            "the version that the driver has"
        ) from error


def _through(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Travels by its name, so a worker imports this package to find it; its code alone, without one, by its value."""
    yield from batches


def _failure(
    spark: SparkSession, function: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
) -> Exception | None:
    try:
        spark.range(1).mapInArrow(function, "id bigint").collect()
    except SPARK_ERRORS as error:
        return error
    return None
