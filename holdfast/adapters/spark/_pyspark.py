"""The only file that imports pyspark, so that a missing extra is reported in one sentence."""

from __future__ import annotations

from holdfast.errors import MissingExtraError

try:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
except ModuleNotFoundError as error:
    if error.name not in ("numpy", "pandas", "pyarrow"):
        raise
    raise MissingExtraError(error.name, "spark") from error
try:
    from py4j.java_gateway import JavaPackage  # comes with pyspark
    from py4j.protocol import Py4JError
    from pyspark import TaskContext
    from pyspark.errors import AnalysisException, PySparkException
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession, Window, types
    from pyspark.sql import functions as F  # noqa: N812 - as all of pyspark's documents have it
    from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.streaming.state import GroupStateTimeout
except ModuleNotFoundError as error:
    missing = (error.name or "").partition(".")[0]
    if missing not in ("pyspark", "py4j"):
        raise
    raise MissingExtraError(missing, "spark") from error

#: Spark's errors on the driver. Some errors of the JVM have no pyspark class.
SPARK_ERRORS = (PySparkException, Py4JError)

__all__ = [
    "SPARK_ERRORS",
    "AnalysisException",
    "ClassicDataFrame",
    "Column",
    "DataFrame",
    "DataFrameReader",
    "F",
    "GroupStateTimeout",
    "JavaPackage",
    "Py4JError",
    "PySparkException",
    "SparkSession",
    "TaskContext",
    "Window",
    "np",
    "pa",
    "pc",
    "pd",
    "to_arrow_schema",
    "types",
]
